"""Several models in one server: --model-dir."""

import pathlib
import re
import shutil

import pytest

from ggufs import save_split
from program import GOLDEN, TINY, Server, eventually, incipit, serving, together

NAMES = {"llama": "llama", "sub/qwen2": "qwen2", "gemma2": "gemma2"}


def body(name, **more):
    return {"model": name, "prompt": [5, 6, 7, 8], "max_tokens": 12, "temperature": 0, "ignore_eos": True} | more


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    (folder / "sub").mkdir()
    for name, golden in NAMES.items():
        shutil.copy(GOLDEN / f"models/{golden}.gguf", folder / f"{name}.gguf")
    save_split(folder, TINY, 3, stem="split")
    (folder / "mmproj-F16.gguf").write_bytes(b"no model for text")
    (folder / "notes.txt").write_text("nor this")
    return folder


@pytest.fixture(scope="module")
def expected():
    """What each model says when it is alone."""
    texts = {}
    for name, golden in NAMES.items():
        with serving("-m", GOLDEN / f"models/{golden}.gguf", "--cache-ram", "64M") as s:
            texts[name] = s.post("/v1/completions", body(None)).json["choices"][0]["text"]
    assert len(set(texts.values())) == len(texts)
    return texts | {"split": texts["llama"]}


def answer(s, name):
    a = s.post("/v1/completions", body(name))
    assert a.status == 200 and a.json["model"] == name, a
    return a.json["choices"][0]["text"]


def statuses(s):
    return {m["id"]: m["status"]["value"] for m in s.get("/v1/models").json["data"]}


def metric(s, model, name):
    text = s.get(f"/metrics?model={model}").body.decode()
    assert f'model_name="{model}"' in text
    return float(re.search(rf"^{name}\S* (\S+)$", text, re.M)[1])


def limit_of(s, model):
    return metric(s, model, "incipit_memory_limit_bytes")


def test_models_by_name(folder, expected):
    with serving("--model-dir", folder, "--cache-ram", "128M") as s:
        assert statuses(s) == dict.fromkeys(sorted(expected), "unloaded")
        assert s.get("/v1/models/sub/qwen2").json["id"] == "sub/qwen2"
        a = s.get("/metrics")
        assert a.status == 503 and a.error["code"] == "model_not_loaded"
        for i, name in enumerate(expected):
            assert answer(s, name) == expected[name]
            assert limit_of(s, name) == (64 if i else 128) << 20
        loaded = statuses(s)
        assert list(loaded.values()).count("loaded") == 2, "two at most, unless --max-models says more"
        [facts] = [m for m in s.get("/v1/models").json["data"] if m["id"] == "split"]
        assert facts["context_length"] == 512 and facts["meta"]["architecture"] == "llama"
        # one limit for all: each of two has half of it
        for name in (n for n, status in loaded.items() if status == "loaded"):
            assert limit_of(s, name) == 64 << 20
        assert s.get("/props?model=split").json["model_alias"] == "split"
        assert s.post("/tokenize", {"model": "gemma2", "content": "hi"}).status == 200


def test_one_limit_for_all(folder):
    """A lone model has all of it; another makes it shrink, and it grows again when that has gone."""

    def ask(name, i):
        prompt = [5 + (i + k * k) % 250 for k in range(450)]
        return s.post("/v1/completions", body(name, prompt=prompt, max_tokens=1)).json

    cached = lambda name, i: ask(name, i)["usage"]["prompt_tokens_details"]["cached_tokens"]
    with serving("--model-dir", folder, "--cache-ram", "24M", "--model-idle", 1.5) as s:
        first = ask("llama", 0)["choices"][0]["text"]
        context = s.get("/v1/models/llama").json["context_length"]
        pages = metric(s, "llama", "incipit_pages")
        n = int(pages * 0.9 / 8)  # of eight pages each
        for i in range(n):
            ask("llama", i)
        assert metric(s, "llama", "incipit_pages_cached") > pages * 0.8 and cached("llama", 1) == 449
        assert ask("gemma2", 0)
        assert limit_of(s, "llama") == limit_of(s, "gemma2") == 12 << 20
        fewer = metric(s, "llama", "incipit_pages")
        assert metric(s, "llama", "incipit_pages_cached") <= fewer < pages * 0.6
        assert cached("llama", n - 1) == 449, "what was used last is there"
        again = ask("llama", 0)
        assert again["choices"][0]["text"] == first

        def alone():
            ask("llama", n - 1)
            return limit_of(s, "llama") == 24 << 20

        assert eventually(alone)
        assert statuses(s)["gemma2"] == "unloaded" and metric(s, "llama", "incipit_pages") == pages
        assert s.get("/v1/models/llama").json["context_length"] == context
        assert cached("llama", n - 1) == 449


def free_memory():
    return int(re.search(r"MemAvailable: +(\d+) kB", pathlib.Path("/proc/meminfo").read_text())[1]) * 1024


@pytest.fixture
def large(tmp_path):
    """A folder with three models: of two the files seem to be large, for they end with a hole."""
    for name, share in (("small", 0), ("large", 0.9), ("too-large", 4)):
        path = tmp_path / f"{name}.gguf"
        shutil.copy(TINY, path)
        with path.open("r+b") as f:
            f.truncate(max(path.stat().st_size, int(share * free_memory())))
    return tmp_path


def test_memory_is_short(large, expected):
    """What does not fit beside the others takes the place of an unused one; that of one in use when
    it has answered; and what fits nowhere is not tried."""
    with serving("--model-dir", large, "--max-models", 3, "--cache-ram", "64M") as s:
        assert answer(s, "small") == expected["llama"]
        assert answer(s, "large") == expected["llama"]
        assert statuses(s) == {"small": "unloaded", "large": "loaded", "too-large": "unloaded"}
        assert limit_of(s, "large") == 64 << 20
        a = s.post("/v1/completions", body("too-large"))
        assert a.status == 503 and a.error["code"] == "model_load_failed" and "memory are free" in a.error["message"], a
        assert statuses(s)["large"] == "loaded", "nobody goes for it"
    with serving("--model-dir", large, "--max-models", 3, "--cache-ram", "64M") as s:

        def one(i):
            if i == 0:
                return s.post("/v1/completions", body("small", max_tokens=400, stream=True)).body
            eventually(lambda: statuses(s)["small"] == "loaded")
            return answer(s, "large")

        stream, text = together(2, one)
        assert stream.count(b"data: ") > 300 and stream.endswith(b"data: [DONE]\n\n")
        assert text == expected["llama"] and statuses(s)["small"] == "unloaded"


def test_wrong_names(folder):
    with serving("--model-dir", folder, "--cache-ram", "64M") as s:
        for name in ("nothing", "", "llama.gguf", "../llama", "llam", "llamaa", "sub", "mmproj-F16", "x" * 5000):
            a = s.post("/v1/completions", body(name))
            assert a.status == 404 and a.error["code"] == "model_not_found", (name, a)
        a = s.get("/v1/models/nothing")
        assert a.status == 404 and a.error["code"] == "model_not_found"
        assert s.get("/props?model=nothing").error["code"] == "model_not_found"
        no_model = body("x")
        del no_model["model"]
        a = s.post("/v1/completions", no_model)
        assert a.status == 400 and a.error["code"] == "missing_field" and a.error["param"] == "model"
        assert s.post("/v1/completions", body(7)).status == 400
        a = s.post("/v1/messages", {"model": "nothing", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]})
        assert a.status == 404 and a.json["error"]["type"] == "not_found_error"
        assert list(statuses(s).values()).count("loaded") == 0, "a wrong name loads nothing"


def test_a_hit_belongs_to_its_model(folder):
    with serving("--model-dir", folder, "--cache-ram", "128M") as s:
        prompt = list(range(5, 205))
        cached = lambda name: s.post("/v1/completions", body(name, prompt=prompt)).json["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached("llama") == 0 and cached("gemma2") == 0
        assert cached("llama") == 199 and cached("gemma2") == 199


def test_one_place_for_many(folder, expected):
    """Requests for all models at once, and room for one: all are answered, and answered right."""
    with serving("--model-dir", folder, "--max-models", 1, "--cache-ram", "64M") as s:
        names = [list(expected)[i % len(expected)] for i in range(24)]
        texts = together(len(names), lambda i: [answer(s, names[(i + k) % len(names)]) for k in range(3)])
        for i, three in enumerate(texts):
            assert three == [expected[names[(i + k) % len(names)]] for k in range(3)]
        assert list(statuses(s).values()).count("loaded") == 1
        assert " unloaded" in s.log


def test_a_stream_keeps_its_model(folder, expected):
    """A model that is in use is not taken away: who wants its place waits, and gets it."""
    with serving("--model-dir", folder, "--max-models", 1, "--cache-ram", "64M") as s:

        def one(i):
            if i == 0:
                return s.post("/v1/completions", body("llama", max_tokens=300, stream=True)).body
            eventually(lambda: statuses(s)["llama"] == "loaded")
            return answer(s, "gemma2")

        stream, text = together(2, one)
        assert b"[DONE]" in stream and b'"finish_reason":"length"' in stream
        assert text == expected["gemma2"]
        assert answer(s, "llama") == expected["llama"]


def test_idle_models_go(folder, expected):
    with serving("--model-dir", folder, "--model-idle", 0.5, "--cache-ram", "64M") as s:
        assert answer(s, "llama") == expected["llama"]
        assert eventually(lambda: statuses(s)["llama"] == "unloaded")
        assert answer(s, "llama") == expected["llama"]


def test_files_that_are_no_models(tmp_path, expected):
    shutil.copy(TINY, tmp_path / "good.gguf")
    (tmp_path / "bad.gguf").write_bytes(pathlib.Path(TINY).read_bytes()[:5000])
    with serving("--model-dir", f"{tmp_path}/", "--cache-ram", "64M") as s:
        for _ in range(2):
            a = s.post("/v1/completions", body("bad"))
            assert a.status == 500 and a.error["code"] == "model_load_failed" and "bad.gguf: byte" in a.error["message"], a
        assert answer(s, "good") == expected["llama"]
        # files may come while the server runs, and go
        shutil.copy(GOLDEN / "models/gemma2.gguf", tmp_path / "late.gguf")
        assert answer(s, "late") == expected["gemma2"]
        (tmp_path / "bad.gguf").unlink()
        assert "No such file" in s.post("/v1/completions", body("bad")).error["message"]


def test_a_single_model_needs_no_name(tmp_path, expected):
    shutil.copy(TINY, tmp_path / "m.gguf")
    with serving("--model-dir", tmp_path, "--cache-ram", "64M") as s:
        unnamed = body("x")
        del unnamed["model"]
        a = s.post("/v1/completions", unnamed)
        assert a.json["model"] == "m" and a.json["choices"][0]["text"] == expected["llama"]


def test_keys_and_models(folder, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("ann key-of-ann\nbob key-of-bob\n")
    with serving("--model-dir", folder, "--cache-ram", "64M", "--api-key-file", keys) as s:
        assert s.get("/v1/models").status == 401
        assert s.post("/v1/completions", body("llama"), headers={"x-api-key": "key-of-ann"}).status == 200
        assert s.post("/v1/completions", body("llama")).status == 401


def test_wrong_folders(tmp_path):
    for path, expected in ((tmp_path / "none", "No such file"), (TINY, "is no folder")):
        p = incipit("serve", "--port", 0, "--model-dir", path, timeout=20)
        assert p.returncode == 1 and expected in p.stderr.decode(), p
    p = incipit("serve", "--model-dir", tmp_path, "-m", TINY)
    assert p.returncode == 2 and b"stands alone" in p.stderr


def test_the_end_while_models_are_wanted(folder):
    """Whoever waits for a model when the server must end is told so, or answered."""
    s = Server("--model-dir", folder, "--max-models", 1, "--cache-ram", "64M", "--drain", 0.2)
    statuses_seen = []

    def one(i):
        if i == 0:
            eventually(lambda: "loaded" in statuses(s).values(), 5)
            s.process.terminate()
            return
        try:
            statuses_seen.append(s.post("/v1/completions", body(["llama", "gemma2"][i % 2], max_tokens=400)).status)
        except OSError:
            statuses_seen.append("closed")

    together(13, one)
    assert s.process.wait(20) == 0, s.log
    assert set(statuses_seen) <= {200, 503, "closed"} and " error " not in s.log
