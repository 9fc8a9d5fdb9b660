"""LoRA adapters: one server, requests with other scales beside each other."""

import concurrent.futures
import json

import pytest

from program import GOLDEN, TINY, incipit, serving

ADAPTER = str(GOLDEN / "models/llama-lora.gguf")
IDS = [(i * 37 + 11) % 256 for i in range(150)]
SCALES = [0, 1, 0.5, -1]


@pytest.fixture(scope="module")
def adapted():
    with serving("-m", TINY, "--lora", ADAPTER, "--cache-ram", "64M") as s:
        yield s


def complete(server, **fields):
    body = {"prompt": IDS, "temperature": 0, "n_predict": 12, "n_probs": 1, "return_tokens": True} | fields
    answer = server.post("/completion", body)
    assert answer.status == 200, answer
    return answer.json


def lora(scale):
    return [{"id": 0, "scale": scale}]


def logits(*adapter):
    done = incipit("logits", "-m", TINY, *adapter, stdin=json.dumps({"ids": IDS, "positions": [149]}))
    assert done.returncode == 0, done.stderr
    return done.stdout


def words(answer):
    return answer["tokens"], [p["logprob"] for p in answer["completion_probabilities"]]


def test_a_hit_never_crosses_scales(adapted):
    first = [complete(adapted, lora=lora(s)) for s in SCALES]
    again = [complete(adapted, lora=lora(s)) for s in SCALES]
    assert [a["timings"]["cache_n"] for a in first] == [0] * len(SCALES)
    assert [a["timings"]["cache_n"] for a in again] == [len(IDS) - 1] * len(SCALES)
    assert [words(a) for a in first] == [words(a) for a in again]
    assert len({json.dumps(words(a)) for a in first}) == len(SCALES)
    assert words(complete(adapted)) == words(first[1])  # as it was opened: scale 1
    assert words(complete(adapted, lora=[])) == words(first[0])


def test_company_changes_nothing(adapted):
    alone = {s: words(complete(adapted, lora=lora(s), cache_prompt=False)) for s in SCALES}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            together = pool.map(lambda s: words(complete(adapted, lora=lora(s), cache_prompt=False)), SCALES * 3)
            assert list(together) == [alone[s] for s in SCALES * 3]


def test_without_it_is_the_model_alone(adapted):
    with serving("-m", TINY, "--cache-ram", "64M") as plain:
        assert words(complete(plain)) == words(complete(adapted, lora=[]))
        assert plain.get("/lora-adapters").json == []
        assert plain.post("/completion", {"prompt": "a", "lora": lora(1)}).status == 400


def test_why(adapted):
    prompt = [(i * 41 + 5) % 256 for i in range(100)]
    complete(adapted, prompt=prompt, lora=lora(0.75))
    miss = adapted.post("/cache/why", {"prompt": prompt, "lora": lora(0.7)}).json["miss"]
    assert (miss["reason"], miss["other_adapters_tokens"]) == ("other adapters", 99)
    assert adapted.post("/cache/why", {"prompt": prompt, "lora": lora(0.75)}).json["cached_tokens"] == 99


def test_scales_of_the_server(adapted):
    shown = {"id": 0, "path": "llama-lora.gguf", "task_name": "", "prompt_prefix": ""}
    assert adapted.get("/lora-adapters").json == [shown | {"scale": 1}]
    half = words(complete(adapted, lora=lora(0.5)))
    try:
        assert adapted.post("/lora-adapters", lora(0.5)).json == {"success": True}
        assert adapted.get("/lora-adapters").json == [shown | {"scale": 0.5}]
        assert words(complete(adapted)) == half
    finally:
        adapted.post("/lora-adapters", lora(1))
    assert adapted.post("/lora-adapters", {"id": 0}).error["message"].startswith("The request body must be")


def test_tenants_do_not_change_each_others_scales(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("ann key-of-ann\nbob key-of-bob\n")
    with serving("-m", TINY, "--lora", ADAPTER, "--api-key-file", keys, "--cache-ram", "64M") as s:
        headers = {"Authorization": "Bearer key-of-ann"}
        assert s.request("POST", "/lora-adapters", lora(0), headers=headers).status == 403


def test_logits(adapted):
    plain = logits()
    assert logits("--lora", ADAPTER + ":0") == plain
    assert logits("--lora", ADAPTER) != plain
    assert logits("--lora", ADAPTER + ":0.5") != logits("--lora", ADAPTER)
    hit = incipit("logits", "-m", TINY, "--lora", ADAPTER, "--hit", "97", "--chunk", "7", "--isa", "scalar",
                  "-t", "3", stdin=json.dumps({"ids": IDS, "positions": [149]}))
    assert hit.stdout == logits("--lora", ADAPTER)


@pytest.mark.parametrize(
    "adapter, sentence",
    [
        ("nothing.gguf", "cannot open"),
        (TINY, "a LoRA adapter has"),
        (ADAPTER + ":5000", "must be -1000 to 1000"),
    ],
)
def test_wrong_adapters(adapter, sentence):
    for command in (["logits"], ["serve", "--port", "0"], ["run", "hello"]):
        done = incipit(*command, "-m", TINY, "--lora", adapter, stdin='{"ids":[1]}')
        assert done.returncode == 1
        assert sentence in done.stderr.decode()


def test_for_another_model():
    done = incipit("logits", "-m", str(GOLDEN / "models/qwen2.gguf"), "--lora", ADAPTER, stdin='{"ids":[1]}')
    assert done.returncode == 1
    assert b'is for architecture "llama", the model is of "qwen2"' in done.stderr
    assert done.stderr.count(b"\n") == 1
