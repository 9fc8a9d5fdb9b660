"""A model of which every layer sees a window only: contexts that are longer than the cache, and hits that
need no more than the window.

No golden model is one; with the number in its file, phi3 is."""

import pytest

from program import GOLDEN, cached, serving, together
from test_cache import ids
from test_cache_truth import own_metrics
from test_hybrid import with_context

WINDOW = 100
KEY = b"phi3.attention.sliding_window"


@pytest.fixture(scope="module")
def windowed(tmp_path_factory):
    path = with_context(tmp_path_factory.mktemp("windows"), "phi3-longrope", 1 << 15)
    data = path.read_bytes()
    at = data.index(KEY) + len(KEY)
    assert int.from_bytes(data[at : at + 4], "little") == 4  # a uint32
    path.write_bytes(data[: at + 4] + WINDOW.to_bytes(4, "little") + data[at + 8 :])
    return path


@pytest.fixture(scope="module")
def small(windowed):
    with serving("-m", windowed, "--cache-ram", "1400K") as s:
        yield s


@pytest.fixture(scope="module")
def large(windowed):
    with serving("-m", windowed, "--cache-ram", "64M") as s:
        yield s


def test_longer_than_the_cache(small, large):
    prompt = ids("long", 4500)
    assert own_metrics(small)["pages"] * 64 < 4500 < own_metrics(large)["pages"] * 64
    answers = [s.complete(prompt, max_tokens=100, logprobs=5, ignore_eos=True) for s in (small, large)]
    assert answers[0]["choices"] == answers[1]["choices"]
    again = small.complete(prompt, max_tokens=100, logprobs=5, ignore_eos=True)
    assert again["choices"] == answers[1]["choices"]
    assert cached(again) == 4499
    assert own_metrics(small)["hollow_pages"] > 0
    assert small.metrics()["num_preemptions_total"] == 0


def test_the_reason_is_named(small):
    prompt = ids("long", 4500)
    small.complete(prompt, max_tokens=1)
    a = small.post("/v1/completions", {"prompt": prompt[:400], "max_tokens": 1})
    assert a.headers["x-incipit-cached-tokens"] == "0"
    assert a.headers["x-incipit-miss"] == "evicted behind the window"
    nodes = small.get("/cache").json["nodes"]
    assert any(n["hollow_pages"] > 0 for n in nodes)
    assert all(n["pages"] + n["hollow_pages"] == -(-n["tokens"] // 64) for n in nodes)


def test_a_crowd(small, large):
    """More than fits, in each other's way: nobody's answer changes."""
    prompts = [ids(f"crowd {i % 3}", 300 + 250 * i) + ids(f"tail {i}", 50) for i in range(8)]
    for _ in range(2):
        found = together(8, lambda i: small.complete(prompts[i], max_tokens=30, logprobs=1))
        wanted = together(8, lambda i: large.complete(prompts[i], max_tokens=30, logprobs=1))
        for a, b in zip(found, wanted):
            assert a["choices"] == b["choices"]


def test_what_can_never_fit(small):
    a = small.post("/v1/completions", {"prompt": ids("too long", int(own_metrics(small)["pages"]) * 4 * 64), "max_tokens": 1})
    assert a.status == 400 and own_metrics(small)["pages"] * 64 < a.error["n_ctx"] < a.error["n_prompt_tokens"]
