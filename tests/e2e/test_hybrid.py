"""Recurrent and hybrid models behind the server: a hit needs the model's state at a page edge, and gives
the same bits as a miss.

The golden models are tiny; a copy with a larger context holds an agent's prompt."""

import pytest

from program import GOLDEN, cached, serving, together
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


def test_a_herd_computes_once(hybrid):
    """What arrives together shares up to the last page edge; each has a page's rest of its own."""
    prompt = ids("herd", 2000)
    answers = together(6, lambda i: hybrid.complete(prompt, n=2, temperature=1, seed=i, logprobs=1))
    assert sum(2000 - cached(a) for a in answers) <= 2000 + 5 * EDGE
    alone = hybrid.complete(prompt, n=2, temperature=1, seed=3, logprobs=1, cache_salt="alone")
    assert answers[3]["choices"] == alone["choices"]
