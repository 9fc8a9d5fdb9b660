"""What users of llama-server rely on, as scenarios: answers that do not depend on cache, company or
batch; exact counts; its routes and fields. (docs/compat.md lists them all, and where the others are.)"""

import itertools
import json

import pytest

from program import eventually, raw, serving, together
from scripted import scripted_model

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


@pytest.mark.parametrize("kv", ["f32", "bf16", "q8_0"])
def test_same_seed_same_text_in_every_format_of_keys(tiny_model, kv):
    draws = [{"temperature": 1, "seed": seed} for seed in range(4)]
    with serving("-m", tiny_model, "--cache-ram", "32M", "--kv", kv, "--no-cache") as s:
        expected = [complete(s, PROMPT, **draw)["content"] for draw in draws]
    assert len(set(expected)) == 4
    with serving("-m", tiny_model, "--cache-ram", "32M", "--kv", kv) as s:
        for _ in range(2):
            assert [complete(s, PROMPT, **draw)["content"] for draw in draws] == expected
        assert together(4, lambda i: complete(s, PROMPT, **draws[i])["content"]) == expected


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


def test_one_place_for_two_conversations(tiny_model):
    """Who comes back finds what another request had the place for since."""
    a, b = ([i % 300 + 5 for i in range(start, start + 90)] for start in (0, 150))
    for option, found in (("--cache-ram", 89), ("--no-cache", 0)):
        with serving("-m", tiny_model, "--parallel", 1, *((option, "32M") if found else (option,))) as s:
            for prompt in (a, b):
                assert complete(s, prompt)["timings"]["cache_n"] == 0
            assert complete(s, a)["timings"]["cache_n"] == found


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


def test_who_is_busy_and_who_waits(tiny_model):
    with serving("-m", tiny_model, "--cache-ram", "32M", "--parallel", 2) as s:
        body = {"prompt": [5, 6], "n_predict": 480, "ignore_eos": True, "stream": True}
        streams = [s.socket(timeout=60) for _ in range(5)]
        for i, stream in enumerate(streams):
            stream.sendall(raw("/completion", body | {"cache_salt": str(i)}))
        seen = set()

        def busy():
            slots = [slot["is_processing"] for slot in s.get("/slots").json]
            seen.add((sum(slots), s.metrics()["num_requests_waiting"] > 0))
            return (2, True) in seen

        assert eventually(busy), seen
        assert max(n for n, _ in seen) <= 2
        for stream in streams:
            data = b""
            while not data.endswith(b"0\r\n\r\n"):
                data += stream.recv(1 << 16)
            assert b'"stop":true' in data
            stream.close()
        assert eventually(lambda: not any(slot["is_processing"] for slot in s.get("/slots").json))
        assert s.get("/slots?fail_on_no_slot=1").status == 200


def test_at_the_end_of_the_context(tiny):
    """A prompt that fills it is refused, in a stream as well; an answer ends with it."""
    n_ctx = tiny.get("/props").json["default_generation_settings"]["n_ctx"]
    for path, stream in itertools.product(("/completion", "/v1/completions"), (False, True)):
        for n in (n_ctx, n_ctx + 100):
            answer = tiny.post(path, {"prompt": [5] * n, "stream": stream})
            assert answer.status == 400 and answer.error["code"] == "context_length_exceeded"
            assert (answer.error["n_prompt_tokens"], answer.error["n_ctx"]) == (n, n_ctx)
    for left in (1, 4):
        a = complete(tiny, [5] * (n_ctx - left), n_predict=-1, ignore_eos=True)
        assert (a["tokens_predicted"], a["stop_type"], a["truncated"]) == (left, "limit", False)
    a = tiny.complete([5] * (n_ctx - 4), max_tokens=100, ignore_eos=True)
    assert (a["choices"][0]["finish_reason"], a["usage"]["completion_tokens"]) == ("length", 4)


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


MARKS = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<file_sep>")


def test_filling_in_the_middle(tmp_path):
    """Which prompt that is tells the cache, which knows the same one spelled out."""
    model = scripted_model(tmp_path / "fim.gguf", [], specials=MARKS)
    extra = [{"filename": "a.c", "text": "int a;\n"}, {"filename": "b.c", "text": "int b;\n"}]
    cases = [
        ({}, "<fim_prefix>before <fim_suffix> after<fim_middle>"),
        ({"prompt": "x = "}, "<fim_prefix>before x = <fim_suffix> after<fim_middle>"),
        (
            {"input_extra": extra},
            "<file_sep>a.c\nint a;\n<file_sep>b.c\nint b;\n<fim_prefix>before <fim_suffix> after<fim_middle>",
        ),
    ]
    with serving("-m", model, "--cache-ram", "64M") as s:
        for fields, spelled in cases:
            ids = s.tokenize(spelled, add_special=True)
            complete(s, ids, cache_salt="fim")
            body = {"input_prefix": "before ", "input_suffix": " after", "n_predict": 1, "cache_salt": "fim"}
            answer = s.post("/infill", body | fields)
            assert answer.status == 200
            t = answer.json["timings"]
            assert (t["cache_n"], t["prompt_n"]) == (len(ids) - 1, 1), spelled
        legacy = s.post("/v1/completions", {"prompt": "before ", "suffix": " after", "max_tokens": 1, "cache_salt": "fim"})
        assert legacy.json["usage"]["prompt_tokens_details"]["cached_tokens"] == len(s.tokenize(cases[0][1])) - 1
        for wrong in ({"input_extra": "x"}, {"input_extra": [{"filename": "a"}]}, {"input_prefix": 5}, {"prompt": [5]}):
            answer = s.post("/infill", {"input_prefix": "a", "input_suffix": "b"} | wrong)
            assert answer.status == 400 and answer.error["param"] == next(iter(wrong)), answer


OPEN = ["/health", "/v1/health", "/version", "/"]
KEYED = ["/v1/models", "/models/tiny", "/props", "/slots", "/metrics", "/lora-adapters", "/cache", "/tokenizer_info", "/v1/responses/x"]


def test_what_is_open_and_what_asks_for_a_key(keyed):
    for path in OPEN:
        assert keyed.get(path).status == keyed.request("HEAD", path).status == 200, path
    posts = ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/completion", "/infill", "/tokenize", "/apply-template"]
    for path in KEYED + posts:
        send = keyed.post if path in posts else lambda path, _, **more: keyed.get(path, **more)
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"x-api-key": "wrong"}, {"Authorization": "Basic a2V5LW9mLWFubg=="}):
            assert send(path, {}, headers=headers).status == 401, (path, headers)
        for headers in ({"Authorization": "Bearer key-of-ann"}, {"Authorization": "bearer  key-of-ann"}, {"X-Api-Key": "key-of-ann"}):
            assert send(path, {}, headers=headers).status in (200, 400, 404), (path, headers)


@pytest.mark.parametrize("url", ["file:///etc/hostname", "../../etc/hostname", "http://127.0.0.1:1/x.png", "data:image/png;base64,AAAA"])
def test_media_are_refused_not_fetched(tiny, url):
    part = {"type": "image_url", "image_url": {"url": url}}
    answer = tiny.post("/v1/chat/completions", {"messages": [{"role": "user", "content": [part]}]})
    assert answer.status == 400 and answer.error["param"].startswith("messages[0].content")


def test_a_log_line_is_one_line(tiny):
    lines = len(tiny.log.splitlines())
    forged = "2026-01-01T00:00:00.000Z warn  forged"
    for path in (f"/x%0a{forged.replace(' ', '%20')}", "/x%1b%5b2J"):
        assert tiny.get(path).status == 404
    tiny.get("/y", headers={"x-request-id": forged, "User-Agent": forged})
    new = tiny.log.splitlines()[lines:]
    assert not any(line.startswith(forged) or "\x1b" in line for line in new), new


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


def chunks(server, path, body):
    """What a stream carries, as JSON."""
    answer = server.post(path, body | {"stream": True})
    assert answer.status == 200, answer
    lines = [line.removeprefix("data: ") for line in answer.body.decode().splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.mark.parametrize(
    "path,body",
    [
        ("/completion", {"prompt": PROMPT * 4, "n_predict": 2}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPT * 4}], "max_tokens": 2}),
    ],
)
def test_progress_of_a_prompt(tiny_model, path, body):
    """What is cached first, then each step of 32 tokens, then all; before any text."""
    with serving("-m", tiny_model, "--cache-ram", "32M", "--batch", 32) as s:
        for cached in (False, True):
            told = chunks(s, path, body | {"return_progress": True})
            steps = [c["prompt_progress"] for c in told if "prompt_progress" in c]
            assert ["prompt_progress" in c for c in told] == [True] * len(steps) + [False] * (len(told) - len(steps))
            processed = [p["processed"] for p in steps]
            total, cache = steps[-1]["total"], steps[0]["cache"]
            assert (cache > 0) == cached and {p["total"] for p in steps} == {total}
            assert processed == sorted(set(processed)) and processed[0] == cache and processed[-1] == total
            assert len(steps) == 1 + -(-(total - cache) // 32)
            times = [p["time_ms"] for p in steps]
            assert times == sorted(times) and times[0] == 0
        assert not any("prompt_progress" in c for c in chunks(s, path, body))
        whole = s.post(path, body | {"return_progress": True})
        assert whole.status == 200 and "prompt_progress" not in whole.json


def test_slots_share_one_cache(tiny_model):
    """Erasing one drops what the caller has; files of slots are refused with what to do instead."""
    with serving("-m", tiny_model, "--cache-ram", "32M", "--parallel", 2) as s:
        for body in (b"", {}):
            complete(s, PROMPT)
            assert complete(s, PROMPT)["timings"]["cache_n"] > 0
            erased = s.post("/slots/1?action=erase", body)
            assert erased.status == 200 and erased.json["id_slot"] == 1
            assert complete(s, PROMPT)["timings"]["cache_n"] == 0
        for action in ("save", "restore"):
            refused = s.post(f"/slots/0?action={action}", {"filename": "a"})
            assert refused.status == 501 and "/cache/pin" in refused.json["error"]["message"]
        for path, field in (("/slots/2?action=erase", "id_slot"), ("/slots/a?action=erase", "id_slot"), ("/slots/0", "action")):
            refused = s.post(path, {})
            assert refused.status == 400 and refused.json["error"]["param"] == field
