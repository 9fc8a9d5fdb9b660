"""What the server says about its cache, through the binary: counts, reasons, walls between keys, wishes,
and the limit on memory."""

import json
import random
import time

import pytest

from program import cached, eventually, incipit, serving

ANN = {"Authorization": "Bearer key-of-ann"}
BOB = {"Authorization": "Bearer key-of-bob"}


def ids(seed, n, n_vocab=320):
    draw = random.Random(seed)
    return [draw.randrange(3, n_vocab) for _ in range(n)]


def complete(server, prompt, headers=(), options=None, **fields):
    """A completion with diagnostics."""
    options = {"diagnostics": True} | (options or {})
    return server.complete(prompt, headers=headers, prompt_cache_options=options, **fields)


def miss(answer):
    return answer["prompt_cache_diagnostics"]["incipit"]


def own_metrics(server):
    """Our samples as {name and further labels: value}."""
    samples = {}
    for line in server.get("/metrics").body.decode().splitlines():
        if line.startswith("incipit_"):
            name, _, rest = line.partition('{model_name="')
            labels, _, value = rest.partition('"')[2].rpartition("} ")
            samples[name.removeprefix("incipit_") + labels.removeprefix(",")] = float(value)
    return samples


# ---- counts and reasons ----


def test_computed_and_cached_are_the_prompt(tiny):
    before, own_before = tiny.metrics(), own_metrics(tiny)
    n_prompt = n_cached = 0
    for i in range(20):
        prompt = ids(f"counts {i % 7}", 40 + 11 * (i % 5)) + ids(i, i)
        a = tiny.post("/v1/completions", {"prompt": prompt, "max_tokens": 2})
        usage = a.json["usage"]
        n_prompt += usage["prompt_tokens"]
        n_cached += cached(a.json)
        assert int(a.headers["x-incipit-cached-tokens"]) == cached(a.json)
        assert int(a.headers["x-incipit-computed-tokens"]) == usage["prompt_tokens"] - cached(a.json)
    after, own = tiny.metrics(), own_metrics(tiny)
    assert after["prompt_tokens_total"] - before["prompt_tokens_total"] == n_prompt
    assert after["prefix_cache_hits_total"] - before["prefix_cache_hits_total"] == n_cached
    reasons = [k for k in own if k.startswith("computed_prompt_tokens_total")]
    assert sum(own[k] - own_before[k] for k in reasons) == n_prompt - n_cached
    memory = sum(v for k, v in own.items() if k.startswith("memory_bytes"))
    assert memory <= own["memory_limit_bytes"] == 64 << 20


def test_the_first_differing_token(tiny):
    prompt = ids("differ", 150)
    other = prompt[:100] + [3 + (prompt[100] - 2) % 317] + ids("tail", 20)
    tiny.post("/reset_prefix_cache", {})  # of 320 tokens, some other test's prompt may begin alike
    assert miss(complete(tiny, prompt))["reason"] == "never seen"
    why = miss(complete(tiny, other))
    assert (why["reason"], why["position"], why["cached_tokens"]) == ("other text", 100, 100)

    def text(tokens):
        return tiny.post("/detokenize", {"tokens": tokens}).json["content"]

    assert why["prompt_text"] == text(other[100:108])
    assert why["cached_text"] == text(prompt[100:108])


def test_all_is_found(tiny):
    prompt = ids("again", 90)
    complete(tiny, prompt)
    a = complete(tiny, prompt)
    assert a["prompt_cache_diagnostics"]["type"] == "cache_hit"
    assert "prompt_cache_diagnostics" not in tiny.complete(prompt)


def test_why_says_what_a_request_then_gets(tiny):
    prompt = ids("asked", 120)
    complete(tiny, prompt[:70])
    asked = tiny.post("/cache/why", {"prompt": prompt}).json
    got = complete(tiny, prompt)
    assert asked["cached_tokens"] == cached(got)
    for field in ("reason", "position", "prompt_text"):
        assert asked["miss"][field] == miss(got)[field]


def test_evicted(tiny_model):
    with serving("-m", tiny_model, "--cache-ram", "3M", "--parallel", "2") as s:
        prompt = ids("gone", 200)
        complete(s, prompt)
        for i in range(400):
            s.complete(ids(f"flood {i}", 200), max_tokens=1)
            why = s.post("/cache/why", {"prompt": prompt}).json
            if why["cached_tokens"] == 0:
                break
        assert why["miss"]["reason"] == "evicted"
        assert why["miss"]["lost_tokens"] >= 64 and 0 <= why["miss"]["lost_seconds_ago"] < 60
        assert 0 <= why["miss"]["pages_in_use"] <= why["miss"]["pages"]


def test_what_more_memory_would_find(tiny_model):
    """Prompts in turns, a little too many for the cache: it hardly finds one, twice of it would."""
    with serving("-m", tiny_model, "--cache-ram", "3M", "--parallel", "2") as s:
        pages = int(own_metrics(s)["pages"])
        prompts = [ids(f"turns {i}", 193) for i in range(int(pages * 1.5 / 4))]
        assert s.get("/cache").json["hit_ratio_by_memory"] == {}
        for prompt in prompts * 5:
            s.complete(prompt, max_tokens=1)
        ratios = s.get("/cache").json["hit_ratio_by_memory"]
        assert list(ratios) == ["0.5", "1", "2", "4"]
        assert ratios["0.5"] < 0.1 and abs(ratios["2"] - 0.8) < 0.1 and abs(ratios["4"] - 0.8) < 0.1
        metrics = own_metrics(s)
        for times, ratio in ratios.items():
            assert abs(metrics[f'hit_ratio_by_memorytimes="{times}"'] - ratio) < 1e-3
        assert b'times="4"' in incipit("cache", "stat", "--url", s.url).stdout


def test_a_trace_is_replayed(tiny_model, tmp_path):
    """What the simulator finds in what the server noted is what the server found, in whole blocks."""
    path = tmp_path / "trace"
    with serving("-m", tiny_model, "--cache-ram", "64M", "--trace", path) as s:
        shared = ids("noted", 256)
        for i in range(20):
            s.complete(shared + ids(i, 64), max_tokens=3)
        s.post("/v1/completions", {"prompt": shared, "max_tokens": 2, "stream": True})
        s.complete(shared + ids(0, 64), max_tokens=3, cache_salt="apart")
        n_prompt, n_cached = (s.metrics()[f"prompt_tokens{k}_total"] for k in ("", "_cached"))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == 22 and sum(line["input_length"] for line in lines) == n_prompt
    assert [line["output_length"] for line in lines] == 20 * [3] + [2, 3]
    assert len({line["hash_ids"][0] for line in lines}) == 2
    found = json.loads(incipit("sim", "--sizes", "100", "--json", path).stdout)
    assert found["block"] == 64 and found["requests"] == 22
    n_blocks = round(found["unbounded"] / 100 * found["blocks"])
    assert n_blocks == 20 * 4
    assert n_cached == n_blocks * 64 - 1  # the last token of a prompt is computed in any case
    log_full = ("-m", tiny_model, "--cache-ram", "64M", "--trace", "/dev/full")
    with serving(*log_full) as s:  # says so, and serves
        s.complete(shared, max_tokens=1)
        assert s.complete(shared, max_tokens=1)["usage"]["completion_tokens"] == 1


# ---- walls ----


def test_keys_learn_nothing_of_each_other(keyed):
    prompt = ids("secret", 150)
    complete(keyed, prompt, ANN)
    for headers, salt, reason, n in [(BOB, None, "never seen", 0), (ANN, "x", "other salt", 0)]:
        why = keyed.post("/cache/why", {"prompt": prompt} | ({"cache_salt": salt} if salt else {}), headers=headers)
        assert (why.json["miss"]["reason"], why.json["cached_tokens"]) == (reason, n)
    # Whether ann has it or nobody has, the same is computed for bob.
    known, unknown = complete(keyed, prompt, BOB), complete(keyed, ids("new to all", 150), BOB)
    assert cached(known) == cached(unknown) == 0
    assert miss(known)["reason"] == miss(unknown)["reason"] == "never seen"
    assert "secret" not in keyed.get("/cache", headers=BOB).body.decode()


def test_everybody_lists_and_drops_his_own(keyed):
    prompts = {"ann": ids("of ann", 100), "bob": ids("of bob", 100)}
    for headers, name in ((ANN, "ann"), (BOB, "bob")):
        complete(keyed, prompts[name], headers, cache_salt="list " + name)
        salts = {n["salt"] for n in keyed.get("/cache", headers=headers).json["nodes"]}
        assert "list " + name in salts
        assert not any(s.startswith("list") and s != "list " + name for s in salts)
    assert keyed.request("DELETE", "/cache", headers=ANN).json["deleted"]
    assert keyed.get("/cache", headers=ANN).json["nodes"] == []
    why = keyed.post("/cache/why", {"prompt": prompts["ann"], "cache_salt": "list ann"}, headers=ANN).json
    assert why["miss"]["reason"] == "dropped"
    assert cached(complete(keyed, prompts["bob"], BOB, cache_salt="list bob")) == 99
    assert keyed.get("/cache").status == 401


def test_a_quota_holds(tiny_model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("ann key-of-ann\nbob key-of-bob\n")
    with serving("-m", tiny_model, "--cache-ram", "16M", "--api-key-file", keys, "--tenant-quota", "1M") as s:
        kept = ids("kept", 100)
        complete(s, kept, BOB)
        for i in range(150):
            s.complete(ids(f"greedy {i}", 150), headers=ANN, max_tokens=1)
        assert cached(complete(s, kept, BOB)) == 99
        listing = s.get("/cache", headers=ANN).json
        assert listing["pages"] <= listing["quota_pages"]


def test_a_shared_prefix(tiny_model, tmp_path):
    words = "the lighthouse keeper writes down every ship that passes and the colour of its sails " * 4
    keys, shared = tmp_path / "keys", tmp_path / "system.txt"
    keys.write_text("ann key-of-ann\nbob key-of-bob\n")
    shared.write_text(words + "\n")
    with serving("-m", tiny_model, "--cache-ram", "32M", "--api-key-file", keys, "--shared-prefix", shared) as s:

        def ask(headers, system, text):
            body = {"messages": [{"role": "system", "content": system}, {"role": "user", "content": text}]}
            a = s.post("/v1/chat/completions", body | {"max_tokens": 2}, headers=headers)
            assert a.status == 200, a
            return cached(a.json), a.json["usage"]["prompt_tokens"]

        first, n = ask(ANN, words.strip(), "what about today?")
        assert first >= 64 and first % 64 == 0
        assert ask(BOB, words.strip(), "what about today?") == (first, n)  # and nothing of ann's
        assert ask(ANN, words.strip(), "what about today?") == (n - 1, n)
        assert ask(BOB, "Another one: " + words.strip(), "what about today?")[0] < 64
        s.request("DELETE", "/cache", headers=ANN)
        assert ask(ANN, words.strip(), "what about today?") == (first, n)


# ---- wishes ----


def test_wishes(tiny):
    prompt = ids("wishes", 100)
    assert cached(complete(tiny, prompt, options={"store": False})) == 0
    assert miss(complete(tiny, prompt, options={"store": False}))["reason"] == "not stored"
    complete(tiny, prompt, options={"ttl": 0.2})
    until = time.monotonic() + 20
    while tiny.post("/cache/why", {"prompt": prompt}).json["cached_tokens"]:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert miss(complete(tiny, prompt))["reason"] == "expired"
    assert cached(complete(tiny, prompt, options={"session_end": True})) == 99
    off = complete(tiny, prompt, options={"mode": "off"})
    assert cached(off) == 0 and miss(off)["reason"] == "cache off"


def test_a_pin_stays(tiny_model):
    with serving("-m", tiny_model, "--cache-ram", "3M", "--parallel", "2") as s:
        prompt = ids("pinned", 150)
        a = s.post("/cache/pin", {"prompt": prompt, "prompt_cache_options": {"ttl": "1h"}})
        assert a.json["tokens"] == 150 and a.json["ttl_seconds"] == 3600
        for i in range(150):
            s.complete(ids(f"flood {i}", 200), max_tokens=1)
        assert cached(complete(s, prompt)) == 149
        assert s.get("/cache").json["pins"] == 1
        s.request("DELETE", "/cache")
        assert s.get("/cache").json["pins"] == 0
        assert cached(complete(s, prompt)) == 0


def test_a_breakpoint_is_held_for_its_time(server):
    """Of the default model: what is before a breakpoint outlives others that are more recent, and more of its own
    prompt; after its time it is cache as any other."""

    def body(text, ttl):
        mark = {"type": "ephemeral", "ttl": ttl}
        system = [{"type": "text", "text": f"A rule for {text}. " * 30, "cache_control": mark}]
        return {"system": system, "messages": [{"role": "user", "content": f"And {text}? " * 30}], "max_tokens": 1}

    def ask(text, ttl="1h", **fields):
        a = server.post("/v1/messages", body(text, ttl) | fields)
        assert a.status == 200, a
        return a.json["usage"]

    def pins():
        return server.get("/cache").json["pins"]

    server.request("DELETE", "/cache")
    first = ask("ships")
    created = first["cache_creation"]["ephemeral_1h_input_tokens"]
    assert 150 < created == first["cache_creation_input_tokens"] < first["input_tokens"] + created
    assert pins() == 1
    assert ask("ships") | {"input_tokens": 1, "cache_creation_input_tokens": 0} == ask("ships")
    assert pins() == 1
    node = server.get("/cache").json["nodes"][0]
    assert node["pages_in_use"] == created // 64 and node["pages"] > node["pages_in_use"]
    brief = {"prompt_cache_options": {"ttl": 0.2}}
    held = ask("boats", "1h", **brief)["cache_creation_input_tokens"] // 64 * 64

    def reads():
        messages = [{"role": "system", "content": body("boats", "")["system"][0]["text"]}] + body("boats", "")["messages"]
        return server.post("/cache/why", {"messages": messages}).json["cached_tokens"]

    assert eventually(lambda: reads() == held), "the rest is forgotten by its request's own time"
    server.request("DELETE", "/cache")
    assert pins() == 0 and ask("boats")["cache_read_input_tokens"] == 0
    ask("rafts", "1s")
    assert pins() == 2
    assert eventually(lambda: pins() == 1)
    assert ask("rafts", "1s")["input_tokens"] == 1


def test_breakpoints_outlive_a_flood(tiny_model):
    with serving("-m", tiny_model, "--cache-ram", "3M", "--parallel", "2") as s:
        part = {"type": "text", "text": "held words " * 60, "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "1h"}}

        def ask(parts):
            body = {"messages": [{"role": "user", "content": parts}], "max_tokens": 1}
            return s.post("/v1/chat/completions", body).json

        n = ask([part, {"type": "text", "text": "and more"}])["usage"]["prompt_tokens"]
        for i in range(150):
            s.complete(ids(f"flood {i}", 200), max_tokens=1)
        assert own_metrics(s)["evictions_total"] > 0
        assert cached(ask([part | {"prompt_cache_breakpoint": None}])) >= (n - 30) // 64 * 64 - 64
        # what is held makes nobody wait, and goes when others need all there is
        room = s.get("/cache").json["pages"]
        assert room > 0 and s.get("/cache").json["pins"] == 1


# ---- the command ----


def test_the_command(tiny):
    tiny.complete("Once upon a time there was a lighthouse.")
    at = ("--url", tiny.url)
    assert b"position" in incipit("cache", "ls", *at).stdout
    said = incipit("cache", "why", *at, stdin="Once upon a time there was a ship.").stdout.decode()
    assert "prompt tokens are found in the cache. There the prompt goes on with" in said
    body = json.dumps({"messages": [{"role": "user", "content": "Never said before."}]})
    assert b"prompt tokens are found" in incipit("cache", "why", *at, stdin=body).stdout
    assert b"memory_limit_bytes" in incipit("cache", "stat", *at).stdout
    assert incipit("cache", "guess", *at).returncode == 2
    wrong = incipit("cache", "ls", "--url", "http://127.0.0.1:9")
    assert wrong.returncode == 1 and b"127.0.0.1" in wrong.stderr


# ---- conversations ----


def test_an_answer_is_found_by_its_bytes(tiny):
    """Random tokens hardly ever are what the tokenizer makes of their text."""
    for seed in range(8):
        messages = [{"role": "user", "content": f"say something, number {seed}"}]
        body = {"messages": messages, "max_tokens": 40, "temperature": 1.5, "seed": seed, "ignore_eos": True}
        first = tiny.post("/v1/chat/completions", body).json
        content = first["choices"][0]["message"]["content"]
        messages += [{"role": "assistant", "content": content}, {"role": "user", "content": "go on"}]
        why = tiny.post("/cache/why", {"messages": messages}).json
        n = first["usage"]["prompt_tokens"]
        if "\ufffd" in content or "<" in content:
            continue  # no text that could be cut anew, or special
        assert why["cached_tokens"] >= n - 1
        second = tiny.post("/v1/chat/completions", body | {"messages": messages}).json
        assert cached(second) == why["cached_tokens"]


# ---- memory ----


def list_by_last_use(prompts, n_pages):
    """The share of full pages of 64 tokens that the n_pages last used ones hold, partial pages being pages, too."""
    asked = found = 0
    last_used = []
    for prompt in prompts:
        full = [tuple(prompt[: i + 64]) for i in range(0, len(prompt) - 63, 64)]
        held = set(last_used[:n_pages])
        asked += len(full)
        found += next((i for i, page in enumerate(full) if page not in held), len(full))
        path = full + ([tuple(prompt)] if len(prompt) % 64 else [])
        outgrown = [page for page in last_used if len(page) % 64 and page == tuple(prompt[: len(page)])]
        last_used = path + [page for page in last_used if page not in path and page not in outgrown]
    return found / asked


def test_the_curve_is_what_a_list_by_last_use_finds(tiny_model):
    """As far as a small cache's few samples can tell."""
    draw = random.Random(5)
    with serving("-m", tiny_model, "--cache-ram", "3M", "--parallel", "1") as s:
        n_pages = int(own_metrics(s)["pages"])
        talks, prompts = [], []
        while len(prompts) < n_pages:
            if len(talks) < n_pages // 4:
                talks.append(ids(f"curve {len(prompts)}", 130))
            talk = draw.choice(talks)
            talk += ids(f"turn {len(prompts)}", 67)
            prompts.append(list(talk))
            assert s.post("/v1/completions", {"prompt": talk, "max_tokens": 1}).status == 200
            if len(talk) > 350:
                talks.remove(talk)
        own = own_metrics(s)
        assert own["evictions_total"] > n_pages
        for times in (0.5, 1, 2, 4):
            expected = list_by_last_use(prompts, int(times * n_pages))
            assert own[f'hit_ratio_by_memorytimes="{times:g}"'] == pytest.approx(expected, abs=0.05)


def test_ten_thousand_prompts_stay_under_the_limit(tiny_model):
    limit = 32 << 20
    with serving("-m", tiny_model, "--cache-ram", "32M", "--max-queued", "256") as s:
        start = s.rss()

        def run(first, last):
            for i in range(first, last, 50):
                body = {"prompt": [ids(f"unique {k}", 60) for k in range(i, i + 50)], "max_tokens": 1}
                assert s.post("/v1/completions", body | {"cache_salt": f"salt {i}"}).status == 200

        run(0, 3000)
        full = s.rss()
        run(3000, 10000)
        assert s.rss() <= full + (2 << 20), "memory grows with the number of prompts"
        assert s.rss() <= start + limit + (4 << 20), "connections and threads are not in the limit"
        own = own_metrics(s)
        assert own["evictions_total"] > 1000
        memory = sum(v for k, v in own.items() if k.startswith("memory_bytes"))
        assert memory <= own["memory_limit_bytes"] == limit


def test_what_can_never_fit_is_refused_at_once(tiny_model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("ann key-of-ann\n")
    with serving("-m", tiny_model, "--cache-ram", "16M", "--api-key-file", keys, "--tenant-quota", "100K") as s:
        listing = s.get("/cache", headers=ANN).json
        room = listing["quota_pages"] * listing["page_tokens"]
        a = s.post("/v1/completions", {"prompt": ids("long", room), "max_tokens": 8}, headers=ANN)
        assert a.status == 400 and a.error["code"] == "context_length_exceeded" and f" {room} tokens" in a.error["message"]
        # what fits is answered as far as there is room
        a = s.post("/v1/completions", {"prompt": ids("long", room - 4), "max_tokens": 8}, headers=ANN)
        assert a.json["usage"]["total_tokens"] == room
        s.complete(ids("long", room - 8), headers=ANN)
