"""The prefix cache as callers see it: what is found, for whom, and that it never changes an answer.

Log-probabilities come as nine digits, which tell every float32 from every other: equal numbers are
equal bits."""

import json
import random

import pytest

from program import GOLDEN, Server, cached, raw, serving, together

TEXT = (
    "The lighthouse stood at the end of the pier, and each evening its keeper climbed the stairs with a lamp "
    "in one hand and a book in the other. He wrote down the names of the ships that passed, the colour of "
    "their sails and the direction of the wind. When the fog came he rang the bell every two minutes, and "
    "between the strokes he listened for answers. Once, in the winter of the great frost, "
)


def ids(seed, n, n_vocab=320):
    """Random token ids, none of them special in the tiny model."""
    draw = random.Random(seed)
    return [draw.randrange(3, n_vocab) for _ in range(n)]


# ---- what is found ----


def test_the_second_time_all_is_found(server):
    first, second = server.complete("Once: " + TEXT), server.complete("Once: " + TEXT)
    assert cached(first) == 0 and cached(second) == second["usage"]["prompt_tokens"] - 1
    assert first["choices"] == second["choices"]


def test_eight_cold_prompts_one_after_the_other(server):
    answers = [server.complete("Eight: " + TEXT, max_tokens=2) for _ in range(8)]
    n = answers[0]["usage"]["prompt_tokens"]
    assert [cached(a) for a in answers] == [0] + 7 * [n - 1]
    assert all(a["choices"] == answers[0]["choices"] for a in answers)


@pytest.mark.parametrize("shared", [1, 2, 31, 63, 64, 65, 100, 127, 128, 129, 199])
def test_a_prefix_is_found_to_the_token(tiny, shared):
    prompt = ids(f"granular {shared}", 200)
    other = prompt[:shared] + [3 + (prompt[shared] - 2) % 317] + ids("other", 20)
    assert other[shared] != prompt[shared]
    tiny.complete(prompt)
    assert cached(tiny.complete(other)) == shared
    assert cached(tiny.complete(prompt[: shared + 1])) == shared  # its last token is always computed
    assert cached(tiny.complete(prompt)) == 199


def test_a_conversation_finds_its_prompt_and_its_answer(server):
    def ask(messages, **fields):
        a = server.post("/v1/chat/completions", {"messages": messages, "temperature": 0} | fields)
        assert a.status == 200, a
        return a.json

    messages = [{"role": "user", "content": "Tell me about the sea and its ships."}]
    known = 0
    for turn in range(4):
        a = ask(messages, max_tokens=24)
        assert cached(a) >= known
        known = a["usage"]["prompt_tokens"] + a["usage"]["completion_tokens"] - 1
        messages.append(a["choices"][0]["message"] | {"refusal": None})
        messages.append({"role": "user", "content": f"Go on, part {turn}."})


def test_generated_tokens_are_found(tiny):
    """What the model appends to this prompt is known from transformers."""
    golden = json.loads((GOLDEN / "models/llama.json").read_text())["prompts"][1]
    prompt, said = golden["ids"], golden["greedy"]
    tiny.complete(prompt, max_tokens=len(said))
    answer = tiny.complete(prompt + said)
    assert cached(answer) == len(prompt) + len(said) - 1


def test_a_request_that_was_left_is_still_cached(server):
    prompt = "Left: " + TEXT
    n = len(server.tokenize(prompt))
    with server.socket() as s:
        s.sendall(raw("/v1/completions", {"prompt": prompt, "max_tokens": 4000, "ignore_eos": True, "stream": True}))
        while b"data: " not in s.recv(65536):
            pass
    assert cached(server.complete(prompt)) == n - 1


# ---- counted once, and truly ----


def counters(server):
    m = server.metrics()
    names = ("prompt_tokens_total", 'prompt_tokens_by_source_total{source="local_compute"}', "prompt_tokens_cached_total")
    return [m[name] for name in names]


def test_a_herd_computes_once(server):
    prompt = "Herd: " + 4 * TEXT
    n, before = len(server.tokenize(prompt)), counters(server)
    answers = together(8, lambda i: server.complete(prompt, max_tokens=4))
    total, computed, found = (b - a for a, b in zip(before, counters(server)))
    assert total == 8 * n and computed + found == total
    assert computed == n + 7, "each of the others computes its last token only"
    assert sorted(map(cached, answers)) == [0] + 7 * [n - 1]
    assert all(a["choices"] == answers[0]["choices"] for a in answers)


def test_choices_share_their_prompt(server):
    prompt, before = "Choices: " + TEXT, counters(server)
    a = server.complete(prompt, n=4, temperature=1, seed=5)
    n = a["usage"]["prompt_tokens"]
    assert [b - a for a, b in zip(before, counters(server))] == [n, n, 0]


# ---- for whom ----


def test_tenants_share_nothing(keyed):
    def as_(key, prompt, **fields):
        return cached(keyed.complete(prompt, headers={"Authorization": f"Bearer {key}"}, **fields))

    prompt = ids("tenants", 150)
    assert as_("key-of-ann", prompt) == 0 and as_("key-of-ann", prompt) == 149
    for other in ("key-of-bob", "key-of-nobody"):
        assert as_(other, prompt) == 0 and as_(other, prompt) == 149
    assert as_("key-of-bob", prompt, cache_salt="ann") == 0, "a salt is no way into another's cache"


def test_salts_share_nothing(tiny):
    prompt = ids("salts", 150)
    for salt in ({}, {"cache_salt": "a"}, {"cache_salt": "b"}, {"cache_salt": "a b"}):
        assert cached(tiny.complete(prompt, **salt)) == 0
        assert cached(tiny.complete(prompt, **salt)) == 149


def test_no_cache_finds_nothing(uncached):
    for _ in range(2):
        assert cached(uncached.complete(TEXT)) == 0


# ---- the same bits ----


@pytest.mark.parametrize("fields", [{}, {"temperature": 0.9, "seed": 12, "top_p": 0.95, "n": 2}], ids=["greedy", "seeded"])
def test_nothing_changes_the_bits(server, uncached, fields):
    prompt = server.tokenize("Bits: " + 2 * TEXT)
    fields = {"max_tokens": 12, "logprobs": 5} | fields
    reference = uncached.complete(prompt, **fields)["choices"]

    def check(how, **more):
        answer = server.complete(prompt, **fields, **more)
        assert answer["choices"] == reference, how
        return cached(answer)

    assert check("cold") in (0, len(prompt) - 1)
    assert check("hit") == len(prompt) - 1
    for hit in (1, 64, 97, len(prompt) - 1):
        salt = {"cache_salt": f"{fields} {hit}"}
        server.complete(prompt[:hit], max_tokens=1, **salt)
        # An exact prefix is found whole; its own last token was computed as well.
        assert check(f"hit of {hit}", **salt) == hit

    def crowd(i):
        if i == 0:
            return check("cold, in a crowd", cache_salt=f"{fields} crowd")
        return server.complete(prompt[i * 7 :], max_tokens=12 + i, temperature=1, seed=i, ignore_eos=True)

    together(9, crowd)


def test_echoed_logprobs_have_the_same_bits(server, uncached):
    fields = {"echo": True, "logprobs": 3, "max_tokens": 3}
    reference = uncached.complete("Echo: " + TEXT, **fields)["choices"]
    for _ in range(3):
        assert server.complete("Echo: " + TEXT, **fields)["choices"] == reference


# ---- within limits ----


def test_a_small_cache_stays_small_and_right(tiny, tiny_model):
    limit = 4 << 20
    with serving("-m", tiny_model, "--cache-ram", limit) as small:
        def use(rounds):
            for i in rounds:
                prompt = ids(f"small {i}", 80 + i % 300)
                answers = together(4, lambda k: small.complete(prompt[: len(prompt) - k], logprobs=1))
                if i % 40 == 0:
                    assert answers[0]["choices"] == tiny.complete(prompt, logprobs=1)["choices"]

        start = small.rss()
        use(range(100))
        warm = small.rss()
        use(range(100, 300))
        assert warm - start < limit + (24 << 20) and small.rss() - warm < 4 << 20
        newest = ids("small 299", 379)
        assert cached(small.complete(newest)) == 378, "the least recently used goes first"
        assert cached(small.complete(ids("small 0", 80))) < 79


def test_a_crowd_in_a_cache_for_few(tiny, tiny_model):
    """Sixteen long requests where pages are enough for a few: they wait or are taken back, and nobody
    notices."""
    with serving("-m", tiny_model, "--cache-ram", "700K", "--parallel", 16) as small:
        prompts = [ids(f"crowd {i}", 100 + 10 * i) for i in range(16)]
        answers = together(16, lambda i: small.complete(prompts[i], max_tokens=150, logprobs=1, ignore_eos=True))
        for prompt, answer in list(zip(prompts, answers))[::3]:
            expected = tiny.complete(prompt, max_tokens=150, logprobs=1, ignore_eos=True)
            assert answer["choices"] == expected["choices"]


def test_a_restart_begins_anew(tiny_model):
    prompt, answers = ids("restart", 100), []
    for _ in range(2):
        s = Server("-m", tiny_model, "--cache-ram", "64M")
        answers.append(s.complete(prompt, logprobs=2))
        s.stop()
    assert [cached(a) for a in answers] == [0, 0] and answers[0]["choices"] == answers[1]["choices"]
