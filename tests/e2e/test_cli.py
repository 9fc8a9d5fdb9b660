"""Every command of incipit(1), as a user meets it."""

import array
import json
import math
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pexpect
import pytest

from ggufs import save_split
from program import BIN, ENV, GOLDEN, ROOT, TINY, Server, incipit, isas, raw, serving

COMMANDS = re.findall(r"^  ([a-z]+) ", incipit("--help").stdout.decode(), re.M)
CHAT = '{"messages":[{"role":"user","content":"Hi"}],"add_generation_prompt":true}'
REFERENCE = json.loads((GOLDEN / "smollm2/reference.json").read_text())["prompts"]


def said(process, code=0):
    """What a command wrote to stdout, or, if it was to fail, its one line on stderr."""
    assert process.returncode == code, process
    if code == 0:
        return process.stdout
    message = process.stderr.decode()
    assert message.startswith("incipit") and len(message) < 1000, message
    return message


def floats(data):
    row = array.array("f")
    row.frombytes(data)
    return row


# ---- help and usage ----


def test_help():
    assert set(COMMANDS) >= {"serve", "run", "info", "tokenize", "detokenize", "template", "logits", "bench", "verify"}
    assert said(incipit("--help")) == incipit("-h").stdout == incipit("help").stdout
    for command in COMMANDS:
        text = said(incipit(command, "--help")).decode()
        assert text.startswith(f"usage: incipit {command}") and max(map(len, text.splitlines())) <= 110
    assert re.fullmatch(rb"incipit \d+\.\d+\.\d+\n", said(incipit("--version")))


MANUAL = ROOT / "man/incipit.1"


def options_of(command):
    """[(letter or "", name)] of its help."""
    return re.findall(r"^  (?:-([a-z]),|   ) --([a-z-]+)", incipit(command, "--help").stdout.decode(), re.M)


def manual_options(text):
    lines = "\n".join(re.findall(r"^.*\bFl\b.*$", text, re.M))
    return set(re.findall(r"(?:Fl|,) (-?[a-z][a-z-]*)", lines))


def test_manual_names_every_option():
    """Long ones, or for a few of the tools just their letter."""
    manual = MANUAL.read_text()
    in_manual = manual_options(manual)
    for command in COMMANDS:
        assert re.search(rf"^\.Ss .*\b{command}\b", manual, re.M), command
        for letter, name in options_of(command):
            assert {letter, "-" + name} & in_manual, (command, name)


def test_manual_names_no_other_option():
    known = {command: {"-" + name for _, name in options_of(command)} for command in COMMANDS}
    for command in COMMANDS:
        known[command] |= {letter for letter, _ in options_of(command)}
    everywhere = set().union(*known.values())
    _, *sections = re.split(r"^\.S[sh] (.*)\n", MANUAL.read_text(), flags=re.M)
    for title, text in zip(sections[::2], sections[1::2]):
        allowed = set().union(*(known.get(word, set()) for word in title.split())) or everywhere
        text = re.sub(r"^Options of llama-server .*?ignored\.$", "", text, flags=re.M | re.S)
        assert manual_options(text) <= allowed | {"-some-name"}, title


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
def test_manual_renders():
    done = subprocess.run(["groff", "-ww", "-mandoc", "-Tutf8", "-z", MANUAL], capture_output=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr.decode()


@pytest.mark.parametrize(
    "args",
    [
        (), ("fly",), ("serve", "--fly"), ("serve", "--port"), ("serve", "--port", "x"), ("serve", "--port", "70000"),
        ("serve", "--cache-ram", "lots"), ("serve", "--cache-ram", "-1G"), ("serve", "extra"), ("bench", "-n", "0"),
        ("logits", "--chunk", "0"), ("logits", "--chunk", "9999999999"), ("tokenize", "-t", "2"), ("run", "--top-p", "2"),
        ("run", "--temperature", "nan"), ("verify", "-n", "1e9"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_wrong_usage(args):
    p = incipit(*args)
    assert p.returncode == 2 and p.stderr and not p.stdout, p


def test_environment_twins():
    body = '{"ids":[5,6]}'
    assert said(incipit("logits", stdin=body, env={"INCIPIT_MODEL": TINY})) == said(incipit("logits", "-m", TINY, stdin=body))
    p = incipit("logits", "-m", TINY, stdin=body, env={"INCIPIT_CHUNK": "many"})
    assert p.returncode == 2 and b"INCIPIT_CHUNK" in p.stderr
    wrong = {"INCIPIT_ISA": "fpu"}
    assert "fpu" in said(incipit("logits", "-m", TINY, stdin=body, env=wrong), 1)
    assert said(incipit("logits", "-m", TINY, "--isa", "scalar", stdin=body, env=wrong))


# ---- files ----


def patched(folder, name, change):
    path = pathlib.Path(folder) / name
    path.write_bytes(change(bytearray(pathlib.Path(TINY).read_bytes())))
    return str(path)


def other_type(data):
    at = data.index(b"output.weight") + len(b"output.weight")
    at += 4 + 8 * int.from_bytes(data[at : at + 4], "little")
    data[at : at + 4] = (16).to_bytes(4, "little")  # IQ2_XXS, which nobody here computes
    return data


def test_bad_files(tmp_path):
    (tmp_path / "text").write_text("Once upon a time")
    (tmp_path / "empty").write_bytes(b"")
    noise = bytes((i * i * 31 + i) % 256 for i in range(100_000))
    cases = {
        tmp_path / "missing": "No such file",
        tmp_path: "directory",
        tmp_path / "text": "not a GGUF file",
        tmp_path / "empty": "empty",
        "/dev/null": "device",
        patched(tmp_path, "cut", lambda d: d[: len(d) // 2]): "beyond the end",
        patched(tmp_path, "head", lambda d: d[:100]): "cannot fit",
        patched(tmp_path, "noise", lambda d: d[:24] + noise): "",
        patched(tmp_path, "v9", lambda d: d[:4] + b"\x09" + d[5:]): "version 9",
        patched(tmp_path, "arch", lambda d: d.replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0zebra", 1)): "zebra.*llama",
        patched(tmp_path, "type", other_type): "IQ2_XXS|type 16",
    }
    for path, expected in cases.items():
        for command in ("logits", "serve", "verify", "run"):
            args = ("--port", 0) if command == "serve" else ("hello",) if command == "run" else ()
            p = incipit(command, "-m", path, *args, stdin='{"ids":[5]}', timeout=20)
            assert p.returncode == 1, (path, p)
            message = [l for l in p.stderr.decode().splitlines() if l.startswith("incipit: ")]
            assert len(message) == 1 and re.search(expected, message[0]), (path, p.stderr)
            assert not re.search(r"\bUBSan|Sanitizer", p.stderr.decode())


def test_split_model(tmp_path):
    """A model in several files is the same model; what is wrong with one of them is one sentence."""
    first, second, third = save_split(tmp_path, TINY, 3)
    body = '{"ids":[5,6,7,8]}'
    assert said(incipit("logits", "-m", first, stdin=body)) == said(incipit("logits", "-m", TINY, stdin=body))
    assert "in 3 files" in said(incipit("info", first)).decode()
    with serving("-m", first, "--cache-ram", "64M") as s:
        assert s.complete([5])["usage"]["completion_tokens"] > 0
    assert f"open the first, {first}" in said(incipit("logits", "-m", second, stdin=body), 1)
    whole = third.read_bytes()
    third.write_bytes(whole[:-100])
    assert f"{third}: byte " in said(incipit("logits", "-m", first, stdin=body), 1)
    third.write_bytes(second.read_bytes())
    assert f"{third}: holds file 2" in said(incipit("logits", "-m", first, stdin=body), 1)
    third.unlink()
    assert f"{third}: is missing" in said(incipit("logits", "-m", first, stdin=body), 1)


def test_no_default_model(tmp_path):
    env = {"INCIPIT_MODEL": "", "XDG_CACHE_HOME": str(tmp_path)}
    message = said(incipit("tokenize", env=env), 1)
    assert "./dev fetch" in message and str(tmp_path) in message


def test_info():
    text = said(incipit("info", TINY)).decode()
    for expected in ("GGUF version 3", "general.architecture", '"llama"', "token_embd.weight", "64 x 320", "F32", "this machine: scalar"):
        assert expected in text
    assert said(incipit("info", "-m", TINY)).decode() == text and b"Q4_1" in said(incipit("info"))


def test_full_disk():
    """What could not be written is no success."""
    with open("/dev/full", "w") as full:
        for args, stdin in ((("info", TINY), ""), (("tokenize",), "a"), (("detokenize",), "[5]"), (("logits",), '{"ids":[5]}'), (("--help",), "")):
            more = ("-m", TINY) if len(args) == 1 and args[0] != "--help" else ()
            p = subprocess.run([BIN, *args, *more], input=stdin.encode(), stdout=full, stderr=subprocess.PIPE, env=ENV)
            assert p.returncode == 1 and b"write" in p.stderr, p


# ---- text ----

TEXTS = (
    "", " ", "Hello world", "  two  spaces \n\n\ttab\r\n", "naïve café — “quotes” … 漢字 🙂👩‍👩‍👧 \u200b", "don't WE'LL 12345 1,234.5",
    "<|im_start|>user", "a" * 5000, "\0\x01\x7f", "e\u0301 \u00e9",
)  # fmt: skip


@pytest.mark.parametrize("text", TEXTS, ids=lambda t: ascii(t)[:20])
def test_round_trip(text):
    ids = said(incipit("tokenize", "--no-bos", stdin=text))
    assert said(incipit("detokenize", stdin=ids)).decode() == text


def test_tokenize_like_the_reference():
    for p in REFERENCE:
        assert json.loads(said(incipit("tokenize", stdin=p["text"]))) == p["ids"], p["label"]


def test_special_tokens():
    assert json.loads(said(incipit("tokenize", stdin="<|im_start|>"))) == [1]
    as_text = json.loads(said(incipit("tokenize", "--no-special", stdin="<|im_start|>")))
    assert len(as_text) > 3 and 1 not in as_text


def test_detokenize_refuses():
    for stdin in ("", "hello", "[1,", "[49152]", "[-1]", "[4294967301]", "[18446744073709551621]", "[1.5]", '["a"]', "{}", "[1] [2]", 200 * "["):
        assert said(incipit("detokenize", stdin=stdin), 1)


def test_template(tmp_path):
    system = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    assert said(incipit("template", stdin=CHAT)).decode() == system + "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    mine = tmp_path / "mine.jinja"
    mine.write_text("{{ bos_token }}{% for m in messages %}[{{ m.role | upper }}] {{ m.content }}{% endfor %}{{ word }}{{ tools[0].n }}")
    chat = '{"messages":[{"role":"user","content":"<é>"}],"bos_token":"B","tools":[{"n":7}],"extra":{"word":"!"}}'
    assert said(incipit("template", "--template", mine, stdin=chat)).decode() == "B[USER] <é>!7"


def test_template_date(tmp_path):
    (tmp_path / "t.jinja").write_text('{{ strftime_now("%d %b %Y") }}')
    on = lambda *day: incipit("template", "--template", tmp_path / "t.jinja", *day, stdin=CHAT)
    assert said(on("--template-date", "2024-02-29")) == b"29 Feb 2024"
    for day in ("2023-02-29", "2024-2-29x", "today", ""):
        assert "--template-date" in said(on("--template-date", day), 1)


@pytest.mark.parametrize(
    "template, expected",
    [
        ("{{ raise_exception('Only ' + messages[0].role + 's may speak') }}", "Only users may speak"),
        ("{% for m in %}", "line 1"),
        ("\n\n{{ messages[0].content.nope() }}", "line 3"),
        ("{% for i in range(100000000) %}{% for j in range(1000) %}x{% endfor %}{% endfor %}", ""),
        ("{{ 'x' * 10000000000 }}", ""),
        (200_000 * "(", ""),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", ""),
    ],
)
def test_template_that_fails(tmp_path, template, expected):
    (tmp_path / "t.jinja").write_text(template if len(template) < 1000 else "{{" + template)
    assert expected in said(incipit("template", "--template", tmp_path / "t.jinja", stdin=CHAT, timeout=60), 1)


# ---- logits ----


@pytest.mark.parametrize("name", ["llama", "llama-tied-mqa", "llama31-rope"])
def test_logits_like_transformers(name):
    golden = json.loads((GOLDEN / f"models/{name}.json").read_text())
    expected = floats((GOLDEN / f"models/{name}.logits").read_bytes())
    at = 0
    for p in golden["prompts"]:
        body = json.dumps({"ids": p["ids"], "positions": p["positions"]})
        got = floats(said(incipit("logits", "-m", GOLDEN / f"models/{name}.gguf", "--kv", "f32", stdin=body)))
        assert len(got) == len(p["positions"]) * golden["vocab"]
        worst = max(abs(a - b) for a, b in zip(got, expected[at : at + len(got)]))
        assert worst <= 1e-4 * golden["logits_std"]
        at += len(got)
    assert at == len(expected)


def test_logits_like_float64():
    """The default model against transformers in float64: mean KL of 8-bit activations at most."""
    total, n = 0.0, 0
    for p in REFERENCE:
        body = json.dumps({"ids": p["ids"], "positions": [r["position"] for r in p["rows"]]})
        rows = floats(said(incipit("logits", stdin=body)))
        n_vocab = len(rows) // len(p["rows"])
        for i, r in enumerate(p["rows"]):
            row = rows[i * n_vocab : (i + 1) * n_vocab]
            top = max(row)
            logsumexp = top + math.log(sum(math.exp(x - top) for x in row))
            for token, logit in zip(r["ids"], r["logits"]):
                log_p = logit - r["logsumexp"]
                total += math.exp(log_p) * (log_p - (row[token] - logsumexp))
            n += 1
            if r["logits"][0] - r["logits"][1] > 0.5:
                assert row.index(top) == r["ids"][0], (p["label"], r["position"])
    assert total / n <= 0.0035


def test_logits_refuse():
    for stdin in ("", "[]", "{}", '{"ids":[]}', '{"ids":[320]}', '{"ids":[-1]}', '{"ids":[4294967301]}', '{"ids":"5"}', '{"ids":[5],"positions":[1]}', '{"ids":[5],"positions":5}'):
        assert said(incipit("logits", "-m", TINY, stdin=stdin), 1)
    assert "leaves nothing" in said(incipit("logits", "-m", TINY, "--hit", 2, stdin='{"ids":[5,6]}'), 1)
    too_long = json.dumps({"ids": [5] * 600})
    assert said(incipit("logits", "-m", TINY, stdin=too_long), 1)


# ---- the oracle ----


def exact(*args):
    """Runs verify; returns the number of ways that gave the same bits."""
    text = said(incipit("verify", *args, timeout=300)).decode()
    assert len(re.findall(r"^sha256 [0-9a-f]{64}$", text, re.M)) == 1
    done, of = re.search(r"^exact: (\d+) of (\d+) ways", text, re.M).groups()
    assert done == of
    return int(of)


def test_oracle_of_a_tiny_model():
    """Every chunk, hit, neighbourhood, number of threads and instruction set."""
    assert exact("-m", TINY, "-n", 70, "--full") == len(isas()) * 5 * 3 * 2 * 3
    assert exact("-m", TINY, "-n", 70, "--kv", "f32", "--isa", isas()[-1]) == 5 * 3 * 2 * 3


def test_oracle_wants_an_instruction_set_that_is_there():
    missing = "avx2" if "neon" in isas() else "neon"
    for isa, how in ("avx3", "is unknown"), (missing, "is not available here"):
        p = incipit("verify", "-m", TINY, "-n", 16, "--isa", isa)
        assert f'instruction set "{isa}" {how}' in said(p, 1)


def test_oracle_of_the_default_model():
    assert exact("-n", 16, "--isa", isas()[-1]) == 5 * 2 * 2 * 3


def test_logits_of_the_default_model_are_one_set_of_bytes():
    """Pages, instruction sets and threads at full size; each value of each, not each combination."""
    ids = next(p["ids"] for p in REFERENCE if p["label"] == "long")[:131]
    body = json.dumps({"ids": ids, "positions": list(range(97, 131))})

    def logits(*args):
        return said(incipit("logits", *args, stdin=body))

    first = logits()
    assert len(first) == 34 * 49152 * 4
    chunks, hits, threads = (1, 64, 512), (0, 64, 97), (1, 2, 3)
    for isa in isas()[1:]:
        for i in range(9) if isa == isas()[-1] else (0, 4, 8):
            how = ("--isa", isa, "--chunk", chunks[i % 3], "--hit", hits[i // 3], "--threads", threads[(i + i // 3) % 3])
            assert logits(*how) == first, how
    assert logits("--isa", "scalar", "--chunk", 7, "--hit", 33) == first


# ---- bench ----


def test_bench():
    p = incipit("bench", "-m", TINY, "-p", 32, "-n", 4, "-b", "1,3", "-d", 40, "-r", 1, "--json")
    report = json.loads(said(p))
    assert [r["batch"] for r in report["results"]] == [1, 3] and report["depth"] == 40
    assert all(r["prefill"] > 0 and r["decode"] > 0 for r in report["results"])
    assert all(r[share] > 0 for r in report["results"] for share in ("prefill_multiplied", "decode_read"))
    assert b"prefill tokens/s" in said(incipit("bench", "-m", TINY, "-p", 8, "-n", 2, "-r", 1))
    assert said(incipit("bench", "-m", TINY, "-b", "0"), 1) and said(incipit("bench", "-m", TINY, "-b", "1,x"), 1)


def test_roofline():
    mixtral = str(pathlib.Path(TINY).with_name("mixtral.gguf"))
    machine = json.loads(said(incipit("bench", "--roofline", "-m", mixtral, "--json")))
    # 115,520 numbers; 320 embeddings of 64 are looked up; in each of two layers, two of four experts of three
    # matrices of 64 x 32 are not taken
    assert machine["active"] == 115_520 - 320 * 64 - 2 * 2 * 3 * 64 * 32
    assert machine["decode"] == pytest.approx(machine["machine"]["read"] / machine["active_size"], rel=1e-3)
    assert b"GB/s" in said(incipit("bench", "--roofline", "-m", TINY))


# ---- serve ----


def test_serve_says_why_it_cannot(tiny):
    for args, expected in (
        (("--port", tiny.port), "cannot listen"),
        (("--host", "host.invalid"), "host.invalid"),
        (("--cache-ram", "1K", "--port", 0), "1024 bytes"),
        (("--api-key-file", "/nowhere/keys"), "/nowhere/keys"),
    ):
        p = incipit("serve", "-m", TINY, *args, timeout=20)
        assert p.returncode == 1 and expected in p.stderr.decode(), p


def test_serve_options(tiny_model):
    with serving("-m", tiny_model, "--alias", "my model", "-c", 100, "--cors", "https://a.example", env={"INCIPIT_API_KEY": "k"}) as s:
        assert s.get("/v1/models").status == 401
        key = {"x-api-key": "k"}
        [model] = s.get("/v1/models", headers=key).json["data"]
        assert model["id"] == "my model" and model["context_length"] == 100
        a = s.get("/health", headers={"Origin": "https://a.example"})
        assert a.headers["Access-Control-Allow-Origin"] == "https://a.example"
        assert "Access-Control-Allow-Origin" not in s.get("/health", headers={"Origin": "https://b.example"}).headers
        a = s.post("/v1/completions", {"prompt": [5] * 100}, headers=key)
        assert a.status == 400 and a.error["code"] == "context_length_exceeded"
        a = s.post("/v1/completions", {"prompt": [5] * 90, "max_tokens": 50, "ignore_eos": True}, headers=key)
        assert a.json["usage"]["completion_tokens"] == 10 and a.json["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    "fields, end", [({"max_tokens": 300}, b'"finish_reason":"length"'), ({"n": 128}, b'"code":"shutting_down"')]
)
def test_serve_drains(tiny_model, fields, end):
    """On SIGTERM what runs is finished; what would take too long is told so."""
    s = Server("-m", tiny_model, "--drain", 0.3)
    with s.socket() as c:
        c.sendall(raw("/v1/completions", {"prompt": [5], "stream": True, "ignore_eos": True, "max_tokens": 500} | fields))
        data = c.recv(65536)
        s.process.send_signal(signal.SIGTERM)
        while piece := c.recv(65536):
            data += piece
    assert end in data and b"[DONE]" in data
    assert s.process.wait(10) == 0 and " error " not in s.log


# ---- run ----


def test_run_once():
    p = incipit("run", "--temperature", 0, "-n", 12, "Say", "only:", "yes")
    assert said(p).strip() and b"incipit" not in p.stderr
    assert said(incipit("run", "--temperature", 0, "-n", 12, stdin="Say only: yes")) == p.stdout
    seeded = [said(incipit("run", "--seed", seed, "-n", 12, "Tell me a story")) for seed in (1, 1, 2)]
    assert seeded[0] == seeded[1] != seeded[2]
    assert said(incipit("run", stdin=""), 1)


def test_run_without_a_template():
    """A base model goes on with the text."""
    p = incipit("run", "-m", TINY, "--temperature", 0, "-n", 5, "once upon")
    assert said(p).strip() and not p.stderr
    assert "empty" in said(incipit("run", "-m", TINY, stdin=""), 1)


def test_run_once_interrupted():
    p = subprocess.Popen([BIN, "run", "Count to ten thousand."], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV)
    assert p.stdout.read(1)
    p.send_signal(signal.SIGINT)
    assert p.wait(10) == 130
    p.communicate()


class Terminal:
    """`incipit run` in a terminal."""

    def __init__(self):
        self.child = pexpect.spawn(BIN, ["run", "--temperature", "0"], env=ENV | {"TERM": "dumb"}, timeout=60, encoding="utf-8")
        self.child.expect("Ctrl-D ends.*> ")

    def report(self):
        """(cached, prompt) of the line that ends a reply, and the next prompt."""
        self.child.expect(r"\[(\d+) of (\d+) prompt tokens from the cache.*\]")
        numbers = int(self.child.match[1]), int(self.child.match[2])
        self.child.expect("> ")
        return numbers

    def ask(self, line):
        self.child.send(line + "\r")
        return self.report()


def test_run_in_a_terminal():
    t = Terminal()
    c = t.child
    first = t.ask("Say only: yes")
    second = t.ask("Say only: no")
    assert first[0] == 0 < first[1] < second[1] and second[0] > first[1], "a turn finds the turn before"

    # Ctrl-C stops a reply, keeps what there is, and not the program.
    c.send("Count from one to ten thousand, in words.\r")
    c.expect(r"words\.\s+\w")
    c.sendintr()
    stopped = t.report()
    assert stopped[0] > second[1]
    # At the prompt it clears the line.
    c.send("nonsense")
    c.expect("nonsense")
    c.sendintr()
    c.expect("> ")

    # History: the line before comes back with the up arrow.
    c.send("/clear\r")
    c.expect("> ")
    cleared = t.ask("Say only: yes")
    assert cleared == (first[1] - 1, first[1]), "the conversation is forgotten, the cache is not"
    c.send("\x10")  # Ctrl-P: the line before
    c.expect("Say only: yes")
    c.send("\r")
    again = t.report()
    assert again[1] > cleared[1] and again[0] > cleared[0]

    c.send("/help\r")
    c.expect("/clear forgets")
    c.expect("> ")
    c.sendeof()
    c.expect(pexpect.EOF)
    c.close()
    assert c.exitstatus == 0
