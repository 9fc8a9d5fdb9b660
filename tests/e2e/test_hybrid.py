"""Recurrent and hybrid models behind the server: a hit needs the model's state at a page edge, and gives
the same bits as a miss.

The golden models are tiny; a copy with a larger context holds an agent's prompt."""

import pytest

from conftest import TEMPLATE
from program import GOLDEN, cached, serving, tiny_copy, together
from test_cache import ids

EDGE = 64
MODELS = ["mamba2", "granitehybrid", "lfm2", "falcon-h1", "qwen3next", "qwen35"]


def with_context(folder, name, n_ctx):
    """A copy of a golden model that was trained for a context of n_ctx."""
    data = (GOLDEN / "models" / f"{name}.gguf").read_bytes()
    at = data.index(b".context_length") + len(b".context_length")
    assert int.from_bytes(data[at : at + 4], "little") == 4  # a uint32
    path = folder / f"{name}.gguf"
    path.write_bytes(data[: at + 4] + n_ctx.to_bytes(4, "little") + data[at + 8 :])
    return path


@pytest.fixture(scope="module", params=MODELS)
def hybrid(request, tmp_path_factory):
    path = with_context(tmp_path_factory.mktemp("hybrid"), request.param, 8192)
    path = tiny_copy(path.parent, path, tokenizer__chat_template=TEMPLATE)
    with serving("-m", path, "--cache-ram", "256M") as s:
        yield s


def test_an_agents_next_turn(hybrid):
    """6,000 tokens, an answer, and 200 more: 200 and the rest of a page are computed."""
    first = ids("agent", 6000)
    answer = hybrid.complete(first, max_tokens=20, ignore_eos=True, return_token_ids=True, logprobs=1)
    assert cached(answer) == 0
    sampled = answer["choices"][0]["token_ids"]
    second = first + sampled + ids("tool", 200)
    hit = hybrid.complete(second, logprobs=5)
    assert cached(hit) == (6000 + len(sampled) - 1) // EDGE * EDGE
    assert len(second) - cached(hit) <= len(sampled) + 200 + EDGE
    miss = hybrid.complete(second, logprobs=5, cache_salt="another")
    assert cached(miss) == 0
    assert hit["choices"] == miss["choices"]


def test_the_reason_is_named(hybrid):
    prompt = ids("again", 200)
    hybrid.complete(prompt)
    a = hybrid.post("/v1/completions", {"prompt": prompt, "max_tokens": 1})
    assert a.headers["x-incipit-cached-tokens"] == "192"
    assert a.headers["x-incipit-miss"] == "no state checkpoint"
    assert a.headers["x-incipit-miss-position"] == "192"


def test_a_common_beginning_is_found_by_the_third(hybrid):
    system = ids("system", 300)
    found = [cached(hybrid.complete(system + ids(f"user {i}", 40))) for i in range(3)]
    assert found == [0, 0, 256]


def say(role, words, seed):
    return {"role": role, "content": " ".join(f"{seed}{i}" for i in range(words))}


def ask(server, messages, **fields):
    body = {"messages": messages, "max_tokens": 1, "temperature": 0, "logprobs": True, "top_logprobs": 5}
    a = server.post("/v1/chat/completions", body | fields)
    assert a.status == 200, a
    return a.json


def test_a_message_is_written_anew(hybrid):
    """A conversation that comes as a whole; then its last words, and older ones, are others: all before the
    message is found, but for the rest of a page."""
    chat = [say("system", 60, "s")]
    for turn in range(4):
        chat += [say("user", 40, f"u{turn}x"), say("assistant", 70, f"a{turn}x")]
    chat.append(say("user", 50, "last"))
    assert cached(ask(hybrid, chat)) == 0
    for keep in (len(chat) - 1, len(chat) - 2, len(chat) - 3):
        edited = chat[:keep] + [say(chat[keep]["role"], 30, "other")]
        # what both begin with, up to the words of the message that is another
        before = len(hybrid.post("/tokenize", {"messages": chat[:keep], "add_generation_prompt": False}).json["tokens"])
        hit = ask(hybrid, edited)
        assert before - 2 * EDGE < cached(hit) <= before + EDGE
        miss = ask(hybrid, edited, cache_salt=f"another {keep}")
        assert cached(miss) == 0
        assert hit["choices"] == miss["choices"]


def test_a_breakpoint_has_a_state(hybrid):
    def turn(words):
        mark = {"mode": "explicit", "ttl": "30m"}
        system = {"type": "text", "text": say("", 90, "break")["content"], "prompt_cache_breakpoint": mark}
        return [{"role": "system", "content": [system]}, say("user", 40, words)]

    n = len(hybrid.post("/tokenize", {"messages": turn("x")[:1], "add_generation_prompt": False}).json["tokens"])
    assert cached(ask(hybrid, turn("first"))) == 0
    # by the second that has it, not the third
    assert n - 2 * EDGE < cached(ask(hybrid, turn("second"))) <= n
    assert hybrid.get("/cache").json["pins"] >= 1


def test_a_herd_computes_once(hybrid):
    """What arrives together shares up to the last page edge; each has a page's rest of its own."""
    prompt = ids("herd", 2000)
    answers = together(6, lambda i: hybrid.complete(prompt, n=2, temperature=1, seed=i, logprobs=1))
    assert sum(2000 - cached(a) for a in answers) <= 2000 + 5 * EDGE
    alone = hybrid.complete(prompt, n=2, temperature=1, seed=3, logprobs=1, cache_salt="alone")
    assert answers[3]["choices"] == alone["choices"]
