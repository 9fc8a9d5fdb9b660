"""What users of OpenAI's Python SDK rely on, through that SDK."""

import asyncio
import json
import math

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from program import GOLDEN, eventually

QUESTION = [{"role": "user", "content": "Name three rivers of France."}]


def chat(client, messages=QUESTION, **fields):
    fields = {"model": "default", "max_tokens": 24, "temperature": 0} | fields
    return client.chat.completions.create(messages=messages, **fields)


def complete(client, prompt, **fields):
    fields = {"model": "default", "max_tokens": 8, "temperature": 0} | fields
    return client.completions.create(prompt=prompt, **fields)


# ---- chat ----


def test_chat(client):
    a = chat(client)
    assert a.object == "chat.completion" and a.id.startswith("chatcmpl-") and a.model
    assert a.choices[0].message.role == "assistant" and a.choices[0].message.content
    assert a.choices[0].finish_reason in ("stop", "length")
    u = a.usage
    assert u.total_tokens == u.prompt_tokens + u.completion_tokens and 0 < u.completion_tokens <= 24


def test_stream_says_the_same(client):
    whole = chat(client)
    chunks = list(chat(client, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks)
    assert text == whole.choices[0].message.content
    finishes = [c.choices[0].finish_reason for c in chunks]
    assert finishes[-1] == whole.choices[0].finish_reason and not any(finishes[:-1])
    assert len({(c.id, c.created, c.model, c.object) for c in chunks}) == 1
    assert len(chunks) > 10, "the answer came in one piece"


def test_stream_usage(client):
    whole = chat(client)
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    assert not any(c.usage for c in chunks[:-1]) and chunks[-1].choices == []
    usage = chunks[-1].usage
    assert usage.prompt_tokens == whole.usage.prompt_tokens
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens - 1


def test_stream_helper(client):
    ask = [{"role": "user", "content": "Say only: yes"}]
    with client.chat.completions.stream(model="default", messages=ask, temperature=0) as s:
        deltas = [e.delta for e in s if e.type == "content.delta"]
        final = s.get_final_completion()
    assert final.choices[0].message.content == "".join(deltas)
    assert "".join(deltas) == chat(client, ask, max_tokens=None).choices[0].message.content


def test_roles_and_parts(client):
    parts = [{"type": "text", "text": "Say"}, {"type": "text", "text": "hello."}]
    joined = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say\nhello."}]
    a = chat(client, [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": parts}])
    b = chat(client, joined)
    assert a.usage.prompt_tokens == b.usage.prompt_tokens
    assert a.choices[0].message.content == b.choices[0].message.content


# ---- options ----


def test_n(client):
    a = chat(client, n=3, temperature=1.0, seed=7)
    texts = [c.message.content for c in a.choices]
    assert [c.index for c in a.choices] == [0, 1, 2] and len(set(texts)) == 3
    again = chat(client, n=3, temperature=1.0, seed=7, stream=True)
    streamed = ["", "", ""]
    for chunk in again:
        for c in chunk.choices:
            streamed[c.index] += c.delta.content or ""
    assert streamed == texts
    assert a.usage.completion_tokens > 3 and a.usage.prompt_tokens == chat(client).usage.prompt_tokens


def test_seed(client):
    def text(seed):
        return chat(client, temperature=1.0, seed=seed).choices[0].message.content

    assert text(11) == text(11)
    assert len({text(seed) for seed in range(6)}) > 1
    assert len({text(None) for _ in range(6)}) > 1, "without a seed it should vary"


@pytest.mark.parametrize("stream", [False, True])
def test_stop(client, stream):
    whole = chat(client).choices[0].message.content
    word = whole.split()[4]  # may begin and end in the middle of tokens
    expected = whole[: whole.index(word[1:])]
    a = chat(client, stop=["never said", word[1:]], stream=stream)
    if stream:
        chunks = list(a)
        text = "".join(c.choices[0].delta.content or "" for c in chunks)
        finish = chunks[-1].choices[0].finish_reason
    else:
        text, finish = a.choices[0].message.content, a.choices[0].finish_reason
    assert (text, finish) == (expected, "stop")


def test_max_tokens(client):
    for field in ("max_tokens", "max_completion_tokens"):
        a = chat(client, **{"max_tokens": None, field: 5})
        assert a.choices[0].finish_reason == "length" and a.usage.completion_tokens == 5


def test_ignore_eos(client):
    short = chat(client, [{"role": "user", "content": "Say only: yes"}], max_tokens=200)
    assert short.choices[0].finish_reason == "stop"
    n = short.usage.completion_tokens
    a = chat(
        client, [{"role": "user", "content": "Say only: yes"}], max_tokens=n + 7, extra_body={"ignore_eos": True}
    )
    assert a.choices[0].finish_reason == "length" and a.usage.completion_tokens == n + 7


def test_logit_bias(client, server):
    token = server.tokenize(" Rhine")[0]
    plain = complete(client, "The longest river is the", max_tokens=3)
    forced = complete(client, "The longest river is the", max_tokens=3, logit_bias={str(token): 100})
    assert forced.choices[0].text != plain.choices[0].text
    piece = server.post("/detokenize", {"tokens": [token]}).json["content"]
    assert forced.choices[0].text == piece * 3


def test_bad_words(client, server):
    """A word of several tokens goes, its beginning alone may stay."""
    plain = chat(client, max_tokens=60).choices[0].message.content
    word = next(w for w in plain.split() if len(server.tokenize(" " + w)) > 1 and w.isalpha())
    a = chat(client, max_tokens=60, extra_body={"bad_words": [word]})
    assert word not in a.choices[0].message.content and word in plain


def test_top_k_one_is_greedy(client):
    a = chat(client, temperature=2.0, extra_body={"top_k": 1})
    assert a.choices[0].message.content == chat(client).choices[0].message.content


def test_penalties_make_for_variety(client):
    def variety(**fields):
        text = complete(client, "la la la la la la la la", max_tokens=48, **fields).choices[0].text
        return len(set(text.split()))

    plain = variety()
    assert variety(frequency_penalty=2.0) > plain and variety(extra_body={"repetition_penalty": 2}) > plain


# ---- log-probabilities ----


def test_chat_logprobs(client):
    a = chat(client, logprobs=True, top_logprobs=5)
    items = a.choices[0].logprobs.content
    assert len(items) in (a.usage.completion_tokens, a.usage.completion_tokens - 1)  # without EOS
    said = b"".join(bytes(i.bytes) for i in items)
    assert said.decode().startswith(a.choices[0].message.content)
    for i in items:
        assert len(i.top_logprobs) == 5 and i.top_logprobs[0].token == i.token
        assert i.logprob == i.top_logprobs[0].logprob
        best = [t.logprob for t in i.top_logprobs]
        assert best == sorted(best, reverse=True) and sum(map(math.exp, best)) <= 1.0001


def test_chat_logprobs_streamed(client):
    whole = chat(client, logprobs=True, top_logprobs=2)
    streamed = []
    for chunk in chat(client, logprobs=True, top_logprobs=2, stream=True):
        if chunk.choices[0].logprobs:
            streamed += chunk.choices[0].logprobs.content
    assert streamed == whole.choices[0].logprobs.content


def test_echoed_logprobs_match_the_reference(client):
    """float64 by transformers: where it gives the next token of its own text, so must we, nearly."""
    compared = 0
    for p in json.loads((GOLDEN / "smollm2/reference.json").read_text())["prompts"]:
        if len(p["ids"]) > 100:
            continue
        a = complete(client, p["ids"], echo=True, logprobs=0, max_tokens=0)
        ours = a.choices[0].logprobs.token_logprobs
        assert ours[0] is None and len(ours) == len(p["ids"]) == a.usage.prompt_tokens
        assert a.usage.completion_tokens == 0
        for row in p["rows"]:
            at = row["position"] + 1
            if at < len(p["ids"]) and p["ids"][at] in row["ids"][:8]:
                logit = row["logits"][row["ids"].index(p["ids"][at])]
                assert ours[at] == pytest.approx(logit - row["logsumexp"], abs=0.35)
                compared += 1
    assert compared >= 4


def test_greedy_tokens_match_the_reference(client):
    """As far as the reference's choice is beyond what 8-bit activations may move."""
    for p in json.loads((GOLDEN / "smollm2/reference.json").read_text())["prompts"]:
        sure = next((i for i, gap in enumerate(p["gaps"]) if gap < 1), len(p["gaps"]))
        if sure == 0:
            continue
        a = complete(client, p["ids"], max_tokens=sure, extra_body={"ignore_eos": True})
        text = complete(client, p["greedy"][:sure], echo=True, max_tokens=0).choices[0].text
        assert a.choices[0].text == text, p["label"]


def test_echo(client, server):
    prompt = "The cat sat on the"
    n = len(server.tokenize(prompt))
    a = complete(client, prompt, echo=True, logprobs=2, max_tokens=4)
    l = a.choices[0].logprobs
    assert a.choices[0].text.startswith(prompt) and "".join(l.tokens) == a.choices[0].text
    assert len(l.tokens) == len(l.token_logprobs) == len(l.top_logprobs) == len(l.text_offset) == n + 4
    assert l.token_logprobs[0] is None and l.top_logprobs[0] is None
    for token, logprob, top, offset in list(zip(l.tokens, l.token_logprobs, l.top_logprobs, l.text_offset))[1:]:
        assert top[token] == logprob and a.choices[0].text[offset:].startswith(token)


def test_echo_is_not_spoiled_by_the_cache(client):
    """The second time all is in the cache; the log-probabilities of the prompt must still be there."""
    prompt = "An echo of what was said long ago, and said again."
    first = complete(client, prompt, echo=True, logprobs=3, max_tokens=4)
    second = complete(client, prompt, echo=True, logprobs=3, max_tokens=4)
    assert first.choices[0] == second.choices[0]


def test_prompt_logprobs(client):
    """What vLLM calls so says the same as echo, and how likely each token was among all."""
    prompt = "The cat sat on the mat, and the dog lay in the house."
    echoed = complete(client, prompt, echo=True, logprobs=3, max_tokens=0).choices[0].logprobs
    a = complete(client, prompt, extra_body={"prompt_logprobs": 3, "return_token_ids": True}).choices[0]
    assert a.prompt_logprobs[0] is None and a.logprobs is None and len(a.text) > 3
    for token, said, wanted, top in zip(
        a.prompt_token_ids[1:], a.prompt_logprobs[1:], echoed.token_logprobs[1:], echoed.top_logprobs[1:]
    ):
        own = said[str(token)]
        assert own["logprob"] == wanted and {v["decoded_token"]: v["logprob"] for v in said.values()} == top
        above = sum(v["logprob"] > wanted for v in said.values())
        assert own["rank"] == above + 1 if own["rank"] <= 3 else above == 3
    chat_answer = chat(client, extra_body={"prompt_logprobs": 0})
    assert len(chat_answer.prompt_logprobs) == chat_answer.usage.prompt_tokens


# ---- prompts ----


def test_prompt_forms(client, server):
    texts = ["The sun is", "Water is a"]
    ids = [server.tokenize(t) for t in texts]
    alone = [complete(client, t).choices[0].text for t in texts]
    assert [complete(client, i).choices[0].text for i in ids] == alone
    for prompt in (texts, ids):
        a = complete(client, prompt)
        assert [c.text for c in a.choices] == alone and [c.index for c in a.choices] == [0, 1]
        assert a.usage.prompt_tokens == sum(map(len, ids)) and a.usage.completion_tokens == 16
    a = complete(client, texts, n=2, temperature=1.0, seed=3)
    assert [c.index for c in a.choices] == [0, 1, 2, 3]


def test_completion_stream(client):
    whole = complete(client, ["The sun is", "Water is a"])
    streamed = ["", ""]
    for chunk in complete(client, ["The sun is", "Water is a"], stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].text
    assert streamed == [c.text for c in whole.choices]


# ---- models and errors ----


def test_models(client):
    [model] = client.models.list().data
    assert client.models.retrieve(model.id).id == model.id
    assert model.max_model_len == model.context_length >= 2048
    assert chat(client, model=model.id).model == chat(client, model="gpt-4o").model == model.id
    with pytest.raises(openai.NotFoundError) as e:
        client.models.retrieve("no-such-model")
    assert e.value.code == "model_not_found"


def test_context_overflow(client):
    with pytest.raises(openai.BadRequestError) as e:
        chat(client, [{"role": "user", "content": "word " * 10000}])
    assert e.value.code == "context_length_exceeded" and e.value.type == "invalid_request_error"
    assert "maximum context length is" in e.value.message
    assert e.value.body["n_prompt_tokens"] > e.value.body["n_ctx"]


def test_bad_request(client):
    with pytest.raises(openai.BadRequestError) as e:
        chat(client, temperature=-1)
    assert e.value.param == "temperature" and e.value.code == "invalid_value"
    with pytest.raises(openai.BadRequestError) as e:
        chat(client, [])
    assert e.value.param == "messages"


def test_unknown_route(client):
    with pytest.raises(openai.NotFoundError):
        client.moderations.create(input="x")
    with pytest.raises(openai.BadRequestError, match="does not embed"):
        client.embeddings.create(model="default", input="x")


def test_keys(keyed):
    def use(key):
        return OpenAI(base_url=keyed.url + "/v1", api_key=key, max_retries=0)

    for key in ("key-of-ann", "key-of-bob", "key-of-nobody"):
        assert complete(use(key), "the").usage.completion_tokens
    for key in ("key-of-an", "key-of-ann2", "ann", "none"):
        with pytest.raises(openai.AuthenticationError):
            complete(use(key), "the")
        with pytest.raises(openai.AuthenticationError):
            use(key).models.list()
    assert keyed.get("/v1/models", headers={"x-api-key": "key-of-bob"}).status == 200
    assert keyed.get("/metrics").status == 401 and keyed.get("/health").status == 200
    assert "key-of" not in keyed.log


# ---- the cache, as the SDK sees it ----


def test_cached_tokens_and_salt(client):
    ask = [{"role": "user", "content": "A question about salt and caches."}]

    def cached(**extra):
        return chat(client, ask, max_tokens=1, extra_body=extra).usage.prompt_tokens_details.cached_tokens

    n = chat(client, ask, max_tokens=1).usage.prompt_tokens
    assert cached() == n - 1
    assert cached(cache_salt="pepper") == 0 and cached(cache_salt="pepper") == n - 1
    assert cached(cache_salt="sugar") == 0


def test_breakpoints(client):
    """They are taken; nothing is rounded to them, and nothing else is kept from the cache."""
    mark = {"mode": "explicit", "ttl": "12h"}
    part = {"type": "text", "text": "All about breakpoints. " * 9, "prompt_cache_breakpoint": mark}
    ask = [{"role": "system", "content": [part]}, {"role": "user", "content": "Well?"}]
    options = {"prompt_cache_options": {"mode": "explicit"}}
    chat(client, ask, max_tokens=1, extra_body=options)
    usage = chat(client, ask, max_tokens=1, extra_body=options).usage
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens - 1


# ---- many, and gone ----


def test_parallel_streams(server, client):
    prompts = [f"Item {i}: the" for i in range(48)]
    alone = [complete(client, p, max_tokens=12).choices[0].text for p in prompts[:6]]

    async def one(client, prompt):
        text = ""
        async for chunk in await client.completions.create(
            model="default", prompt=prompt, max_tokens=12, temperature=0, stream=True
        ):
            text += chunk.choices[0].text
        return text

    async def all_of_them():
        async with AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=300) as c:
            return await asyncio.gather(*(one(c, p) for p in prompts))

    texts = asyncio.run(all_of_them())
    assert texts[:6] == alone and all(texts)


def test_leaving_in_the_middle(client, server):
    before = server.metrics()
    stream = chat(client, max_tokens=4000, stream=True, extra_body={"ignore_eos": True})
    for _, chunk in zip(range(4), stream):
        pass
    stream.close()
    assert eventually(lambda: server.metrics()["num_requests_running"] == 0)
    after = server.metrics()
    key = 'request_success_total{finished_reason="abort"}'
    assert after[key] == before[key] + 1
    assert after["generation_tokens_total"] - before["generation_tokens_total"] < 2000
