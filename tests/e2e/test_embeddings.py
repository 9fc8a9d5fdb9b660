"""Embedding models: the command and /v1/embeddings give the vectors that transformers gave, in
every form that the API knows; a model that embeds does not generate, and the other way round."""

import base64
import concurrent.futures
import json
import math
import struct

import openai
import pytest
from openai import OpenAI

from program import GOLDEN, TINY, incipit, serving

NAMES = ["bert", "xlm-roberta", "nomic-bert", "gemma-embedding", "qwen3-embed"]
CAUSAL = {"qwen3-embed"}


def golden(name):
    """Token ids and vectors as they were pooled; the deviation of the vectors' numbers."""
    about = json.loads((GOLDEN / f"models/{name}.json").read_text())
    data = (GOLDEN / f"models/{name}.logits").read_bytes()
    rows = list(struct.iter_unpack(f"<{about['layout']['cols']}f", data))
    return [p["ids"] for p in about["prompts"]], rows, about["logits_std"]


def unit(vector):
    length = math.hypot(*vector)
    return [x / length for x in vector]


def worst(a, b):
    assert len(a) == len(b)
    return max(abs(x - y) for x, y in zip(a, b))


@pytest.fixture(scope="module", params=NAMES)
def embedder(request):
    """(name, client) of a server whose cache holds float32."""
    path = GOLDEN / f"models/{request.param}.gguf"
    with serving("-m", path, "--kv", "f32", "--cache-ram", "128M") as s:
        yield request.param, OpenAI(base_url=s.url + "/v1", api_key="none", max_retries=0, timeout=60)


# ---- the command ----


@pytest.mark.parametrize("name", NAMES)
def test_command(name):
    ids, rows, std = golden(name)
    path = GOLDEN / f"models/{name}.gguf"
    for prompt, want in zip(ids, rows):
        done = incipit("embed", "--raw", "--kv", "f32", "-m", path, stdin=json.dumps({"ids": prompt}))
        assert done.returncode == 0, done.stderr
        assert worst(struct.unpack(f"<{len(want)}f", done.stdout), want) <= 1e-4 * std
    done = incipit("embed", "--kv", "f32", "-m", path, stdin=json.dumps({"ids": ids[1]}))
    answer = json.loads(done.stdout)
    assert answer["tokens"] == len(ids[1]) and worst(answer["embedding"], rows[1]) <= 1e-4 * std


def test_command_text():
    path = GOLDEN / "models/bert.gguf"
    text = incipit("embed", "-m", path, stdin="Hello there").stdout
    assert text == incipit("embed", "-m", path, stdin='{"text": "hello THERE"}').stdout
    ids = json.loads(incipit("tokenize", "-m", path, stdin="Hello there").stdout)
    assert text == incipit("embed", "-m", path, stdin=json.dumps({"ids": ids})).stdout


@pytest.mark.parametrize(
    "model, stdin, sentence",
    [
        (TINY, "x", b"this model generates text; it embeds none"),
        (GOLDEN / "models/bert.gguf", '{"ids": []}', b"the prompt is empty"),
        (GOLDEN / "models/bert.gguf", '{"ids": [1, 999999]}', b"ids[1] must be"),
        (GOLDEN / "models/bert.gguf", "{x", b"not JSON"),
        (GOLDEN / "models/bert.gguf", json.dumps({"ids": [5] * 513}), b"the context 512"),
    ],
)
def test_command_refuses(model, stdin, sentence):
    done = incipit("embed", "-m", model, stdin=stdin)
    assert done.returncode == 1 and done.stdout == b"" and sentence in done.stderr
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("command", ["logits", "bench", "verify"])
def test_other_commands_refuse(command):
    done = incipit(command, "-m", GOLDEN / "models/bert.gguf", stdin='{"ids": [1]}')
    assert done.returncode == 1 and b"this model embeds texts; it generates none" in done.stderr


# ---- the API ----


def test_vectors(embedder):
    name, client = embedder
    ids, rows, std = golden(name)
    for round in range(2):
        got = client.embeddings.create(model=name, input=ids, encoding_format="float")
        assert [d.index for d in got.data] == list(range(len(ids))) and got.model == name
        for d, want in zip(got.data, rows):
            length = math.hypot(*want)
            assert worst(d.embedding, unit(want)) <= 1e-4 * std / length + 1e-7
        assert got.usage.prompt_tokens == got.usage.total_tokens == sum(map(len, ids))
        cached = got.usage.model_dump()["prompt_tokens_details"]["cached_tokens"]
        # A causal model's prompt is found again but for its last token; what it says stays the same.
        assert cached == (sum(len(p) - 1 for p in ids) if round and name in CAUSAL else 0)


def test_forms(embedder):
    name, client = embedder
    text = "the quick brown fox"
    floats = client.embeddings.create(model=name, input=text, encoding_format="float").data[0].embedding
    coded = client.embeddings.create(model=name, input=text, encoding_format="base64").data[0].embedding
    assert worst(struct.unpack(f"<{len(floats)}f", base64.b64decode(coded, validate=True)), floats) < 1e-9
    default = client.embeddings.create(model=name, input=[text]).data[0].embedding  # asks for base64
    assert worst(default, floats) < 1e-9
    assert abs(math.hypot(*floats) - 1) < 1e-6
    for n in (1, 2, 3, 17):
        short = client.embeddings.create(model=name, input=text, dimensions=n).data[0].embedding
        assert worst(short, unit(floats[:n])) < 1e-6


def test_company_changes_nothing(embedder):
    name, client = embedder
    texts = [f"{'a word ' * (i % 9)}and number {i}" for i in range(24)]
    alone = [client.embeddings.create(model=name, input=t).data[0].embedding for t in texts]
    together = client.embeddings.create(model=name, input=texts).data
    assert [d.embedding for d in together] == alone
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        calls = pool.map(lambda t: client.embeddings.create(model=name, input=t).data[0].embedding, texts)
        assert list(calls) == alone


@pytest.mark.parametrize(
    "field, body",
    [
        ("input", {}),
        ("input", {"input": None}),
        ("input", {"input": ""}),
        ("input", {"input": ["a", ""]}),
        ("input", {"input": []}),
        ("input", {"input": [[]]}),
        ("input", {"input": 5}),
        ("input", {"input": {"text": "a"}}),
        ("input", {"input": ["a", 1]}),
        ("input", {"input": [["a"]]}),
        ("input", {"input": [[-1]]}),
        ("input", {"input": [1 << 40]}),
        ("input", {"input": ["a"] * 2049}),
        ("dimensions", {"input": "a", "dimensions": 0}),
        ("dimensions", {"input": "a", "dimensions": 65}),
        ("dimensions", {"input": "a", "dimensions": "8"}),
        ("encoding_format", {"input": "a", "encoding_format": "hex"}),
        ("encoding_format", {"input": "a", "encoding_format": 1}),
    ],
)
def test_wrong_fields(embedder, field, body):
    _, client = embedder
    with pytest.raises(openai.BadRequestError) as e:
        client.post("/embeddings", body=body, cast_to=object)
    assert e.value.body["param"] == field and e.value.body["type"] == "invalid_request_error"


def test_too_long(embedder):
    name, client = embedder
    n_ctx = client.models.retrieve(name).model_dump()["context_length"]
    client.embeddings.create(model=name, input=[[5] * n_ctx])
    with pytest.raises(openai.BadRequestError) as e:
        client.embeddings.create(model=name, input=[[5], [5] * (n_ctx + 1)])
    assert e.value.code == "context_length_exceeded" and e.value.param == "input[1]"
    assert f"'input[1]' has {n_ctx + 1} tokens" in e.value.message
    with pytest.raises(openai.BadRequestError) as e:
        client.embeddings.create(model=name, input=[5] * (n_ctx + 1))
    assert e.value.param == "input"


def test_generates_none(embedder):
    name, client = embedder
    messages = [{"role": "user", "content": "hi"}]
    for ask in (
        lambda: client.chat.completions.create(model=name, messages=messages),
        lambda: client.completions.create(model=name, prompt="hi"),
        lambda: client.responses.create(model=name, input="hi"),
    ):
        with pytest.raises(openai.BadRequestError, match="embeds texts; it generates none"):
            ask()


def test_embeds_none(tiny):
    client = OpenAI(base_url=tiny.url + "/v1", api_key="none", max_retries=0)
    with pytest.raises(openai.BadRequestError, match="generates text; it does not embed"):
        client.embeddings.create(model="m", input="hi")
