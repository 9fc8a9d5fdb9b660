"""What users of llama-server rely on, as scenarios: answers that do not depend on cache, company or
batch; exact counts; its routes and fields. (Restarts, full contexts, keys, schemas and tools are
elsewhere.)"""

import json

import pytest

from program import serving, together

PROMPT = "The quick brown fox jumps over the lazy dog, and then some more text follows it. "


def complete(server, prompt, **fields):
    answer = server.post("/completion", {"prompt": prompt, "n_predict": 12, "temperature": 0} | fields)
    assert answer.status == 200, answer
    return answer.json


@pytest.mark.parametrize("options", [(), ("--parallel", 1), ("--parallel", 4), ("--batch", 16), ("--no-cache",)], ids=str)
def test_same_prompt_same_text(tiny, tiny_model, options):
    """Alone or four at once, cached or not, in whatever batches."""
    expected = complete(tiny, PROMPT)["content"]
    with serving("-m", tiny_model, "--cache-ram", "32M", *options) as s:
        assert {complete(s, PROMPT)["content"] for _ in range(4)} == {expected}
        assert set(together(4, lambda i: complete(s, PROMPT)["content"])) == {expected}


def test_seeds(tiny):
    texts = [complete(tiny, PROMPT, temperature=1, seed=i)["content"] for i in range(5)]
    assert len(set(texts)) == 5
    assert complete(tiny, PROMPT, temperature=1, seed=3, cache_prompt=False)["content"] == texts[3]


def test_counts(tiny):
    ids = tiny.tokenize(PROMPT, add_special=True)
    a = complete(tiny, ids, cache_prompt=False)
    t = a["timings"]
    assert (t["prompt_n"], t["cache_n"], t["predicted_n"]) == (len(ids), 0, 12)
    assert (a["tokens_evaluated"], a["tokens_predicted"], a["truncated"]) == (len(ids), 12, False)
    assert a["stop"] and a["stop_type"] == "limit" and a["stopping_word"] == ""
    again = complete(tiny, ids)["timings"]
    assert again["prompt_n"] + again["cache_n"] == len(ids) and again["prompt_n"] == 1
    word = a["content"].strip()[:1]
    stopped = complete(tiny, ids, stop=[word])
    assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", word) and word not in stopped["content"]


def test_stream_is_the_answer(tiny):
    whole = complete(tiny, PROMPT, return_tokens=True)
    body = {"prompt": PROMPT, "n_predict": 12, "temperature": 0, "stream": True, "return_tokens": True}
    events = [json.loads(line[6:]) for line in tiny.post("/completion", body).body.decode().split("\n") if line.startswith("data: {")]
    assert "".join(e["content"] for e in events) == whole["content"]
    assert [i for e in events for i in e["tokens"]] == whole["tokens"]
    assert [e["stop"] for e in events] == [False] * (len(events) - 1) + [True]
    assert events[-1]["tokens_predicted"] == 12


def test_only_the_tail_is_computed(tiny):
    ids = tiny.tokenize(PROMPT + "A tail of its own follows: one two three.")
    salt = {"cache_salt": "tail"}
    assert complete(tiny, ids, **salt)["timings"]["cache_n"] == 0
    for tail in ([5], [6, 7], [8, 9, 10]):
        t = complete(tiny, ids[:-3] + tail, **salt)["timings"]
        assert (t["cache_n"], t["prompt_n"]) == (len(ids) - 3, len(tail))
    assert complete(tiny, ids, **salt)["timings"]["prompt_n"] == 1  # the first one is whole


def test_what_is_unrelated_misses_and_what_was_there_stays(tiny):
    a, b = ([i % 300 + 5 for i in range(start, start + 90)] for start in (0, 150))
    salt = {"cache_salt": "unrelated"}
    first = complete(tiny, a, **salt)["content"]
    assert complete(tiny, b, **salt)["timings"]["cache_n"] == 0
    assert complete(tiny, a[:50] + b[:20], **salt)["timings"]["cache_n"] == 50
    back = complete(tiny, a, **salt)
    assert back["content"] == first and back["timings"]["prompt_n"] == 1


def test_two_branches_grow_in_turn(tiny):
    trunk = [i % 200 + 20 for i in range(70)]
    branches, salt = [trunk + [5], trunk + [6]], {"cache_salt": "branches"}
    for b in branches:
        complete(tiny, b, **salt)
    for round in range(6):
        for b in branches:
            length = len(b)
            b.extend([7 + round, 8, 9])
            assert complete(tiny, b, **salt)["timings"]["cache_n"] >= length


def test_reset_makes_a_prompt_new(tiny_model):
    with serving("-m", tiny_model, "--cache-ram", "32M") as s:
        n = len(s.tokenize(PROMPT, add_special=True))
        complete(s, PROMPT)
        assert complete(s, PROMPT)["timings"]["prompt_n"] == 1
        assert s.post("/reset_prefix_cache", {}).status == 200
        assert complete(s, PROMPT)["timings"]["prompt_n"] == n


@pytest.mark.parametrize("parallel", [1, 2, 4])
def test_more_requests_than_places(tiny_model, parallel):
    with serving("-m", tiny_model, "--cache-ram", "32M", "--parallel", parallel) as s:
        assert len(s.get("/slots").json) == parallel
        expected = [complete(s, PROMPT + str(i))["content"] for i in range(6)]
        assert together(6, lambda i: complete(s, PROMPT + str(i))["content"]) == expected


def test_prompts_of_every_form(tiny):
    ids = tiny.tokenize(PROMPT, add_special=True)
    expected = complete(tiny, PROMPT)["content"]
    assert complete(tiny, ids)["content"] == expected
    for many in ([PROMPT, PROMPT], [ids, PROMPT], [ids, ids]):
        assert [a["content"] for a in complete(tiny, many)] == [expected, expected]


def test_prefill_only(tiny):
    a = complete(tiny, [5, 6, 7, 8], n_predict=0)
    assert a["content"] == "" and a["tokens_predicted"] == 0


def test_tokens_there_and_back(tiny):
    for text in (PROMPT, "héllo €😀", "  two  spaces\n", "\t"):
        tokens = tiny.post("/tokenize", {"content": text, "with_pieces": True}).json["tokens"]
        assert tiny.post("/detokenize", {"tokens": [t["id"] for t in tokens]}).json["content"] == text
        pieces = [p.encode() if isinstance(p, str) else bytes(p) for p in (t["piece"] for t in tokens)]
        assert b"".join(pieces).decode() == text


def test_templates_and_models(tiny):
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    assert tiny.post("/apply-template", {"messages": messages}).json["prompt"] == "<s>system:S</s><s>user:U</s><s>assistant:"
    assert tiny.get("/props").json["chat_template"]
    assert tiny.get("/v1/models").json["data"][0]["id"] == tiny.get("/models").json["data"][0]["id"]


def test_anthropic_tool_results(tiny):
    calls = [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "failed", "is_error": True}
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": calls}, {"role": "user", "content": [result]}]
    answer = tiny.post("/v1/messages", {"max_tokens": 2, "messages": messages})
    assert answer.status == 200 and set(answer.json["usage"]) >= {"input_tokens", "output_tokens", "cache_read_input_tokens"}
    assert "timings" not in answer.json
    assert tiny.post("/v1/messages/count_tokens", {"messages": messages}).json["input_tokens"] > 0


def test_browsers_may_ask_first(tiny):
    headers = {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    answer = tiny.request("OPTIONS", "/v1/chat/completions", headers=headers)
    assert answer.status == 204 and answer.headers["Access-Control-Allow-Origin"] == "http://localhost:3000"
    assert "POST" in answer.headers["Access-Control-Allow-Methods"]
