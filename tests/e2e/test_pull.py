"""Pulling models, from a server that behaves and from one that does not."""

import hashlib
import http.server
import json
import pathlib
import re
import subprocess
import threading
import time

import pytest

from ggufs import split, split_names
from program import BIN, ENV, TINY, eventually, incipit, serving

MODEL = pathlib.Path(TINY).read_bytes()
COMMIT = "c0ffee" * 6 + "beef"
REPO = "user/tiny-GGUF"
FILE = "tiny-Q4_K_M.gguf"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Hub:
    """A hub with one repository. `fault` is asked before a file is answered, with how often that file
    was asked for before; it may answer itself, and returns whether it did."""

    def __init__(self, files, fault=None):
        self.files, self.fault, self.asked, self.seen = files, fault, {}, []
        self.listing_fault, self.hashes = None, {name: sha256(data) for name, data in files.items()}
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                hub.seen.append((self.path, dict(self.headers)))
                self.close_connection = True
                hub.answer(self)

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.http.shutdown()
        self.http.server_close()

    def listing(self):
        return {
            "sha": COMMIT,
            "siblings": [
                {"rfilename": name, "size": len(data), "lfs": {"sha256": self.hashes[name], "size": len(data)}}
                for name, data in self.files.items()
            ]
            + [{"rfilename": "README.md", "size": 5}],
        }

    def answer(self, h):
        if h.path == f"/api/models/{REPO}/revision/main?blobs=true":
            if not (self.listing_fault and self.listing_fault(h)):
                send(h, 200, json.dumps(self.listing()).encode())
            return
        prefix = f"/{REPO}/resolve/{COMMIT}/"
        name = h.path.removeprefix(prefix)
        if not h.path.startswith(prefix) or name not in self.files:
            return send(h, 404)
        n = self.asked[name] = self.asked.get(name, -1) + 1
        if not (self.fault and self.fault(h, self.files[name], n)):
            send_file(h, self.files[name])

    def pull(self, folder, name=REPO, *args, env=None, timeout=60):
        env = {"HF_ENDPOINT": self.url, "XDG_CACHE_HOME": str(folder), "HF_TOKEN": "", "HF_HUB_DOWNLOAD_TIMEOUT": "1"} | (env or {})
        return incipit("pull", name, *args, env=env, timeout=timeout)


def send(h, status, body=b"", **headers):
    h.send_response(status)
    for name, value in headers.items():
        h.send_header(name.replace("_", "-"), value)
    h.send_header("Content-Length", str(len(body)))
    h.end_headers()
    h.wfile.write(body)


def range_of(h):
    m = re.fullmatch(r"bytes=(\d+)-", h.headers.get("Range", ""))
    return int(m[1]) if m else None


def send_file(h, data, stop=None):
    """All that was asked for; or only up to byte `stop`, and then the connection breaks."""
    at = range_of(h)
    body = data[at or 0 :]
    h.send_response(206 if at else 200)
    if at:
        h.send_header("Content-Range", f"bytes {at}-{len(data) - 1}/{len(data)}")
    h.send_header("Content-Length", str(len(body)))
    h.end_headers()
    h.wfile.write(body if stop is None else data[at or 0 : stop])


def kept(folder):
    root = pathlib.Path(folder) / "incipit/models"
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


def assert_pulled(p, folder, name=FILE, data=MODEL):
    assert p.returncode == 0, p
    path = pathlib.Path(p.stdout.decode().rstrip("\n"))
    assert path == pathlib.Path(folder) / "incipit/models" / REPO / name
    assert path.read_bytes() == data
    assert (path.parent / (path.name + ".sha256")).read_text() == f"{sha256(data)}  {path.name}\n"
    assert not [f for f in kept(folder) if f.endswith(".part")]
    return path


def refused(p, expected, folder, *, part=False):
    """One sentence, and nothing that looks like a model."""
    assert p.returncode == 1 and not p.stdout, p
    last = p.stderr.decode().splitlines()[-1]
    assert last.startswith("incipit: ") and re.search(expected, last), p.stderr.decode()
    left = kept(folder)
    assert all(f.endswith(".part") for f in left) and (part or not left), left


# ---- what should happen ----


def test_pull_list_use_remove(tmp_path):
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    assert incipit("list", env=env).stdout == b""
    with Hub({FILE: MODEL, "tiny-Q8_0.gguf": MODEL + b"\0" * 32, "mmproj-F16.gguf": b"x"}) as hub:
        path = assert_pulled(hub.pull(tmp_path), tmp_path)
        assert subprocess.run(["sha256sum", "-c", path.name + ".sha256"], cwd=path.parent, capture_output=True).returncode == 0
        n = len(hub.seen)
        assert_pulled(hub.pull(tmp_path), tmp_path)
        assert len(hub.seen) == n + 1, "what is there is not fetched again"
        assert hub.pull(tmp_path, REPO + ":q8_0").returncode == 0
        assert_pulled(hub.pull(tmp_path, f"{REPO}:{FILE}"), tmp_path)
        refused_tag = hub.pull(tmp_path, REPO + ":Q2_K")
        assert refused_tag.returncode == 1 and b'has no "Q2_K"; it has tiny-Q4_K_M.gguf, tiny-Q8_0.gguf' in refused_tag.stderr
    # from here on there is no server
    assert_pulled(hub.pull(tmp_path, REPO, "--offline"), tmp_path)
    lines = incipit("list", env=env).stdout.decode().splitlines()
    assert [l.split()[-1] for l in lines] == [f"{REPO}:Q4_K_M", f"{REPO}:Q8_0"]
    body = '{"ids":[5,6,7]}'
    expected = incipit("logits", "-m", TINY, stdin=body).stdout
    for name in (REPO, REPO + ":Q4_K_M", REPO + ":q8_0"):
        assert incipit("logits", "-m", name, stdin=body, env=env).stdout == expected
    with serving("-m", REPO, "--cache-ram", "64M", env=env) as s:
        assert s.get("/v1/models").json["data"][0]["id"] == "tiny-Q4_K_M"
    p = incipit("run", "-m", REPO + ":Q5_0", "hi", env=env)
    assert p.returncode == 1 and b"incipit pull user/tiny-GGUF:Q5_0" in p.stderr
    assert incipit("rm", REPO + ":Q8_0", env=env).returncode == 0
    assert [l.split()[-1] for l in incipit("list", env=env).stdout.decode().splitlines()] == [f"{REPO}:Q4_K_M"]
    assert incipit("rm", REPO, env=env).returncode == 0 and kept(tmp_path) == []
    assert incipit("rm", REPO, env=env).returncode == 1
    assert incipit("pull", REPO, "--offline", env=env).returncode == 1


def test_split_models(tmp_path):
    parts = dict(zip(split_names("big/tiny-F16", 3), split(MODEL, 3)))
    with Hub(parts) as hub:
        first = next(iter(parts))
        assert_pulled(hub.pull(tmp_path), tmp_path, first, parts[first])
        assert len(kept(tmp_path)) == 6
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    assert f"{REPO}:F16, in 3 files" in incipit("list", env=env).stdout.decode()
    body = '{"ids":[5,6,7]}'
    assert incipit("logits", "-m", REPO, stdin=body, env=env).stdout == incipit("logits", "-m", TINY, stdin=body).stdout
    assert incipit("rm", REPO + ":F16", env=env).returncode == 0 and kept(tmp_path) == []
    with Hub({n: parts[n] for n in list(parts)[:2]}) as hub:
        refused(hub.pull(tmp_path), "tiny-F16-00003-of-00003.gguf is missing", tmp_path)


def test_an_interrupted_pull_goes_on(tmp_path):
    """The process is killed in the middle; the next one asks for the rest only."""
    half, waiting = len(MODEL) // 2, threading.Event()

    def stall(h, data, n):
        if n > 0:
            return False
        send_file(h, data, half)
        h.wfile.flush()
        waiting.wait(20)
        return True

    with Hub({FILE: MODEL}, stall) as hub:
        env = ENV | {"HF_ENDPOINT": hub.url, "XDG_CACHE_HOME": str(tmp_path), "HF_HUB_DOWNLOAD_TIMEOUT": "30"}
        p = subprocess.Popen([BIN, "pull", REPO], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        parts = lambda: list(pathlib.Path(tmp_path).rglob("*.part"))
        assert eventually(lambda: parts() and parts()[0].stat().st_size == half)
        second = hub.pull(tmp_path)
        assert second.returncode == 1 and b"another process is pulling it" in second.stderr
        p.kill()
        p.communicate()
        waiting.set()
        assert "begun: pull it again" in incipit("list", env={"XDG_CACHE_HOME": str(tmp_path)}).stdout.decode()
        p = hub.pull(tmp_path)
        assert_pulled(p, tmp_path)
        assert b"going on" in p.stderr
        assert hub.seen[-1][1]["Range"] == f"bytes={half}-"


# ---- what should not ----


def test_truncated_answers(tmp_path):
    """Each answer breaks off; every attempt goes on where the last one ended."""
    step = len(MODEL) // 3 + 1
    with Hub({FILE: MODEL}, lambda h, data, n: send_file(h, data, step * (n + 1)) or True) as hub:
        p = hub.pull(tmp_path)
        assert_pulled(p, tmp_path)
        assert hub.asked[FILE] == 2 and p.stderr.count(b"trying again") == 2


def test_a_server_without_ranges(tmp_path):
    def whole(h, data, n):
        del h.headers["Range"]
        send_file(h, data, None if n else len(data) // 2)
        return True

    with Hub({FILE: MODEL}, whole) as hub:
        assert_pulled(hub.pull(tmp_path), tmp_path)


def test_a_wrong_range(tmp_path):
    def shifted(h, data, n):
        if n == 0:
            return send_file(h, data, 1000) or True
        return send(h, 206, data[900:], Content_Range=f"bytes 900-{len(data) - 1}/{len(data)}") or True

    with Hub({FILE: MODEL}, shifted) as hub:
        refused(hub.pull(tmp_path), "asked for byte 1000 on, the server sent byte 900 on", tmp_path, part=True)


def test_a_part_that_is_too_long(tmp_path):
    """What another run left behind is of no use: it is thrown away."""
    part = tmp_path / "incipit/models" / REPO / f"{FILE}.{sha256(MODEL)[:16]}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(MODEL + b"x")
    with Hub({FILE: MODEL}) as hub:
        assert_pulled(hub.pull(tmp_path), tmp_path)
        part.write_bytes(MODEL)
        (part.parent / FILE).unlink()
        assert_pulled(hub.pull(tmp_path), tmp_path)
        assert hub.asked[FILE] == 0, "a whole part needs no server"


@pytest.mark.parametrize("change", [b"", b"x" * 100], ids=["short", "long"])
def test_wrong_lengths(tmp_path, change):
    """The listing says one length, the answer has another."""
    wrong = MODEL + change if change else MODEL[:-100]
    with Hub({FILE: MODEL}, lambda h, data, n: send(h, 200, wrong) or True) as hub:
        p = hub.pull(tmp_path, timeout=120)
        refused(p, "more than the|less than|sent \\d+ of", tmp_path, part=True)


def test_a_wrong_checksum(tmp_path):
    wrong = MODEL[:-1] + bytes([MODEL[-1] ^ 1])
    with Hub({FILE: MODEL}, lambda h, data, n: send_file(h, wrong) or True) as hub:
        refused(hub.pull(tmp_path), f"SHA-256 is {sha256(wrong)}, not {sha256(MODEL)}.*not kept", tmp_path)
        hub.fault = None
        path = assert_pulled(hub.pull(tmp_path), tmp_path)
        # bits that rot on the disk are found, and mended
        path.write_bytes(wrong)
        p = hub.pull(tmp_path, REPO, "--offline")
        assert p.returncode == 1 and b"do not have the checksum" in p.stderr


def test_a_checksum_in_a_header_only(tmp_path):
    with Hub({FILE: MODEL}) as hub:
        hub.hashes[FILE] = ""
        hub.fault = lambda h, data, n: send(h, 200, data, X_Linked_Etag=f'"{sha256(data)}"') or True
        p = hub.pull(tmp_path)
        assert_pulled(p, tmp_path)
        assert b"no checksum" not in p.stderr
    other = tmp_path / "other"
    with Hub({FILE: MODEL}) as hub:
        hub.hashes[FILE] = ""
        hub.fault = lambda h, data, n: send(h, 200, data, X_Linked_Etag=f'"{"0" * 64}"') or True
        refused(hub.pull(other), "not 0000", other)
        hub.fault = None
        p = hub.pull(other)
        assert_pulled(p, other)
        assert b"told no checksum" in p.stderr


def test_redirects_keep_the_token_at_home(tmp_path):
    with Hub({FILE: MODEL}) as store, Hub({FILE: MODEL}) as hub:
        hub.fault = lambda h, data, n: send(h, 302, Location=f"{store.url}{h.path}?signed=1") or True
        store.answer = lambda h: send_file(h, MODEL)
        assert_pulled(hub.pull(tmp_path, env={"HF_TOKEN": "secret"}), tmp_path)
        assert all(headers["Authorization"] == "Bearer secret" for _, headers in hub.seen) and len(hub.seen) == 2
        assert len(store.seen) == 1 and "Authorization" not in store.seen[0][1]


def test_a_circle_of_redirects(tmp_path):
    with Hub({FILE: MODEL}, lambda h, data, n: send(h, 302, Location=h.path) or True) as hub:
        refused(hub.pull(tmp_path), "redirects", tmp_path, part=True)


def test_redirects_to_other_protocols(tmp_path):
    with Hub({FILE: MODEL}, lambda h, data, n: send(h, 302, Location=f"file://{TINY}") or True) as hub:
        refused(hub.pull(tmp_path), "file.*(not supported|disabled)", tmp_path, part=True)


def test_too_many_requests(tmp_path):
    times = []

    def busy(h, data, n):
        times.append(time.monotonic())
        return n == 0 and (send(h, 429, b"later", Retry_After="2") or True)

    with Hub({FILE: MODEL}, busy) as hub:
        p = hub.pull(tmp_path)
        assert_pulled(p, tmp_path)
        assert times[1] - times[0] >= 2 and b"fewer requests (429)" in p.stderr and b"again in 2 s" in p.stderr
    other = tmp_path / "other"
    with Hub({FILE: MODEL}, lambda h, data, n: send(h, 429, Retry_After="4000") or True) as hub:
        refused(hub.pull(other), "fewer requests", other, part=True)


def test_failing_servers(tmp_path):
    with Hub({FILE: MODEL}, lambda h, data, n: n < 2 and (send(h, 503) or True)) as hub:
        assert_pulled(hub.pull(tmp_path), tmp_path)


@pytest.mark.parametrize(
    "status, token, expected",
    [(401, "", "put a token with access into HF_TOKEN"), (401, "t", "gives no access"), (403, "t", "terms"), (404, "", "no such thing"), (418, "", "418")],
)
def test_refusals(tmp_path, status, token, expected):
    with Hub({FILE: MODEL}) as hub:
        hub.listing_fault = lambda h: send(h, status) or True
        refused(hub.pull(tmp_path, env={"HF_TOKEN": token}), expected, tmp_path)
        assert len(hub.seen) == 1, "nothing is tried again"
        hub.listing_fault, hub.fault = None, lambda h, data, n: send(h, status) or True
        refused(hub.pull(tmp_path, env={"HF_TOKEN": token}), expected, tmp_path, part=True)


def test_a_silent_server(tmp_path):
    """A connection without a byte for a second is given up; the next attempt goes on."""

    def slow(h, data, n):
        if n == 0:
            send_file(h, data, 5000)
            h.wfile.flush()
            time.sleep(6)
        return n == 0

    with Hub({FILE: MODEL}, slow) as hub:
        p = hub.pull(tmp_path)
        assert_pulled(p, tmp_path)
        assert hub.seen[-1][1]["Range"] == "bytes=5000-" and b"trying again" in p.stderr


@pytest.mark.parametrize(
    "body, expected",
    [
        (b"", "no list of files"),
        (b"<html>", "no list of files"),
        (b"[]", "no list of files"),
        (b'{"siblings":7}', "no list of files"),
        (b'{"siblings":[1,null,"x",{}]}', "no GGUF files"),
        (b'{"siblings":[{"rfilename":7},{"rfilename":"../../x-Q4_K_M.gguf"},{"rfilename":"/x.gguf"}]}', "no GGUF files"),
        (b'{"siblings":[{"rfilename":"a/../../x.gguf"},{"rfilename":".x.gguf"},{"rfilename":"x\\n.gguf"}]}', "no GGUF files"),
        (b"x" * (40 << 20), "too long"),
    ],
    ids=["empty", "html", "array", "number", "items", "climbing", "hidden", "endless"],
)
def test_hostile_listings(tmp_path, body, expected):
    with Hub({FILE: MODEL}) as hub:
        hub.listing_fault = lambda h: send(h, 200, body) or True
        refused(hub.pull(tmp_path), expected, tmp_path)
        assert len(hub.seen) == 1


def test_odd_values_in_a_listing(tmp_path):
    """Sizes and checksums that are none are not known; the commit is no path."""
    with Hub({FILE: MODEL}) as hub:
        listing = {"sha": "../../evil", "siblings": [{"rfilename": FILE, "size": "big", "lfs": {"sha256": "zz"}}]}
        hub.listing_fault = lambda h: send(h, 200, json.dumps(listing).encode()) or True
        hub.answer_file, asked = hub.answer, []

        def answer(h):
            if "/resolve/" in h.path:
                asked.append(h.path)
                return send_file(h, MODEL)
            hub.answer_file(h)

        hub.answer = answer
        assert_pulled(hub.pull(tmp_path), tmp_path)
        assert asked == [f"/{REPO}/resolve/main/{FILE}"]


def test_no_server(tmp_path):
    env = {"HF_ENDPOINT": "http://127.0.0.1:9", "XDG_CACHE_HOME": str(tmp_path)}
    began = time.monotonic()
    refused(incipit("pull", REPO, env=env), "127.0.0.1", tmp_path)
    assert time.monotonic() - began < 10


def test_wrong_names_and_tokens(tmp_path):
    for name in ("model", "a/b/c", "../x", "https://huggingface.co/a/b", "a/b:", "a/b:../x"):
        assert incipit("pull", name).returncode == 2
        assert incipit("rm", name).returncode == 2
    assert incipit("pull").returncode == 2 and incipit("rm").returncode == 2
    with Hub({FILE: MODEL}) as hub:
        refused(hub.pull(tmp_path, env={"HF_TOKEN": "a\nX-Evil: 1"}), "HF_TOKEN", tmp_path)
        assert not hub.seen


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "incipit").write_text("in the way")
    with Hub({FILE: MODEL}) as hub:
        p = hub.pull(tmp_path)
        assert p.returncode == 1 and b"cannot create" in p.stderr
