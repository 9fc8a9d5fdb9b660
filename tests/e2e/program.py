"""The program under test: its binary, its models, its servers.

INCIPIT_BIN names the binary. The default model is what every command takes without -m (INCIPIT_MODEL
or the user's cache directory); the tiny models of tests/golden answer in milliseconds."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = os.environ.get("INCIPIT_BIN") or str(ROOT / "build/src/cli/incipit")
GOLDEN = ROOT / "tests/golden"
TINY = str(GOLDEN / "models/llama.gguf")

# Only the model may be chosen from outside: a stray INCIPIT_CTX must not decide a test.
ENV = {k: v for k, v in os.environ.items() if not k.startswith("INCIPIT_") or k == "INCIPIT_MODEL"}


def incipit(*args, stdin=b"", env=None, timeout=120):
    """Runs a command to its end; its stdout and stderr are bytes."""
    if isinstance(stdin, str):
        stdin = stdin.encode()
    return subprocess.run(
        [BIN, *map(str, args)], input=stdin, capture_output=True, timeout=timeout, env=ENV | (env or {})
    )


def isas():
    """Instruction sets that this machine can run."""
    return re.search(r"this machine: (.*)", incipit("info", TINY).stdout.decode()).group(1).split()


def tiny_copy(folder, source=TINY, **metadata):
    """A copy of the tiny model, or another one, with string metadata added, in `folder`."""
    data = pathlib.Path(source).read_bytes()
    n_entries = int.from_bytes(data[16:24], "little")
    added = b""
    for key, value in metadata.items():
        key, value = key.replace("__", ".").encode(), value.encode()
        added += len(key).to_bytes(8, "little") + key + (8).to_bytes(4, "little")
        added += len(value).to_bytes(8, "little") + value
    added += padding_entry(-len(added) % 32)
    n = n_entries + len(metadata) + 1
    path = pathlib.Path(folder) / "tiny.gguf"
    path.write_bytes(data[:16] + n.to_bytes(8, "little") + added + data[24:])
    return str(path)


def padding_entry(remainder):
    """A metadata entry of `remainder` bytes modulo 32, which keeps what follows aligned."""
    key = b"test.padding"
    fixed = 8 + len(key) + 4 + 8
    text = b" " * ((remainder - fixed) % 32)
    return (
        len(key).to_bytes(8, "little") + key + (8).to_bytes(4, "little") + len(text).to_bytes(8, "little") + text
    )


def raw(path, body, headers=""):
    """A POST as bytes."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]

    def __repr__(self):
        return f"<{self.status} {self.body[:300]!r}>"


class Server:
    """`incipit serve` on a free port, with its log in a file."""

    def __init__(self, *args, env=None):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.log_file = tempfile.NamedTemporaryFile(prefix="incipit-e2e-", suffix=".log")
        command = [BIN, "serve", "--port", str(self.port), *map(str, args)]
        self.process = subprocess.Popen(command, stderr=self.log_file, env=ENV | (env or {}))
        self.url = f"http://127.0.0.1:{self.port}"
        self.wait_ready(60)

    @property
    def log(self):
        return pathlib.Path(self.log_file.name).read_text()

    def wait_ready(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.process.poll() is None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.get("/health", timeout=2).status == 200:
                    return
            time.sleep(0.05)
        self.process.kill()
        raise AssertionError(f"the server did not get ready; its log:\n{self.log}")

    def stop(self, seconds=15):
        """SIGTERM must end it in time with 0, and nothing may have gone wrong before."""
        alive = self.process.poll() is None
        if alive:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = f"nothing within {seconds} s"
        wrong = re.findall(r"^.*(?:Z error |==ERROR|Sanitizer|runtime error).*$", self.log, re.M)
        assert alive, f"the server died ({code}); its log ends:\n{self.log[-3000:]}"
        assert code == 0, f"SIGTERM gave {code}; its log ends:\n{self.log[-3000:]}"
        assert not wrong, "\n".join(wrong)

    # ---- requests ----

    def request(self, method, path, body=None, headers=(), timeout=120):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        try:
            c.request(method, path, body, dict(headers))
            r = c.getresponse()
            return Answer(r.status, r.headers, r.read())
        finally:
            c.close()

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body, **more):
        return self.request("POST", path, body, **more)

    def complete(self, prompt, *, headers=(), **fields):
        """A completion that must succeed; greedy unless told otherwise."""
        body = {"prompt": prompt, "max_tokens": 8, "temperature": 0} | fields
        a = self.post("/v1/completions", body, headers=headers)
        assert a.status == 200, a
        return a.json

    def tokenize(self, text, **fields):
        return self.post("/tokenize", {"content": text} | fields).json["tokens"]

    def socket(self, timeout=30):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def metrics(self):
        """Every sample as {name: value}, labels but model_name kept in the name."""
        samples = {}
        for line in self.get("/metrics").body.decode().splitlines():
            m = re.fullmatch(r'vllm:(\w+)\{model_name="[^"]*",?(.*)\} (\S+)', line)
            if m:
                samples[m[1] + (f"{{{m[2]}}}" if m[2] else "")] = float(m[3])
        return samples

    # ---- the process ----

    def rss(self):
        """Resident bytes of the process."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) << 10

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


@contextlib.contextmanager
def serving(*args, **more):
    server = Server(*args, **more)
    try:
        yield server
    except BaseException:
        server.process.kill()
        server.process.wait()
        raise
    server.stop()


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def eventually(condition, seconds=10):
    """Waits for what another process is about to do."""
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


def together(n, work):
    """Runs work(0..n) at the same time; their results in order. What one raises is raised."""
    results, failures, gate = [None] * n, [], threading.Barrier(n)

    def one(i):
        try:
            gate.wait()
            results[i] = work(i)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]
    return results
