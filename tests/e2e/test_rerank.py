"""Models that rank: the command and /v1/rerank give the scores that transformers gave, whatever else
is computed at the same time; in the forms of Jina, Cohere and text-embeddings-inference."""

import concurrent.futures
import json
import struct

import pytest

from program import GOLDEN, TINY, incipit, isas, serving

NAMES = ["bert-rank", "xlm-roberta-rank", "qwen3-rank"]
EMBEDDER = GOLDEN / "models/bert.gguf"


def golden(name):
    """[(prompt, its score)] and the scores' deviation."""
    about = json.loads((GOLDEN / f"models/{name}.json").read_text())
    data = (GOLDEN / f"models/{name}.logits").read_bytes()
    rows = struct.iter_unpack(f"<{about['layout']['cols']}f", data)
    return [(p, row[0]) for p, row in zip(about["prompts"], rows)], about["logits_std"]


def pairs(name):
    """[(query, [(document, score)])] of the texts."""
    found = {}
    for prompt, score in golden(name)[0]:
        if "query" in prompt:
            found.setdefault(prompt["query"], []).append((prompt["document"], score))
    return list(found.items())


def path_of(name):
    return GOLDEN / f"models/{name}.gguf"


def serve(name, *more):
    return serving("-m", path_of(name), "--kv", "f32", "--cache-ram", "128M", *more)


@pytest.fixture(scope="module", params=NAMES)
def ranker(request):
    with serve(request.param) as s:
        yield request.param, s


def scores(s, query, documents, **more):
    a = s.post("/v1/rerank", {"query": query, "documents": documents} | more)
    assert a.status == 200, a
    by_index = {r["index"]: r["relevance_score"] for r in a.json["results"]}
    return [by_index[i] for i in range(len(documents))]


# ---- the command ----


@pytest.mark.parametrize("name", NAMES)
def test_command(name):
    prompts, std = golden(name)
    for prompt, want in prompts:
        asked = json.dumps({"ids": prompt["ids"], "second": prompt["second"]})
        done = incipit("embed", "--raw", "--kv", "f32", "-m", path_of(name), stdin=asked)
        assert done.returncode == 0, done.stderr
        assert abs(struct.unpack_from("<f", done.stdout)[0] - want) <= 1e-4 * std
    asked = json.dumps({k: prompt[k] for k in ("query", "document")} if "query" in prompt else {"text": "a"})
    answer = json.loads(incipit("embed", "-m", path_of(name), stdin=asked).stdout)
    assert len(answer["scores"]) == (2 if name == "qwen3-rank" else 1)


def test_second_text_matters():
    """BERT tells the texts of a pair apart."""
    prompt = golden("bert-rank")[0][1][0]
    found = {
        incipit("embed", "-m", path_of("bert-rank"), stdin=json.dumps({"ids": prompt["ids"]} | more)).stdout
        for more in ({}, {"second": prompt["second"]}, {"second": 3})
    }
    assert len(found) == 3


def test_command_refuses():
    for asked, sentence in (({"ids": [5, 6], "second": 2}, b"second text begins at token 2 of 2"), ({"ids": []}, b"empty")):
        done = incipit("embed", "-m", path_of("bert-rank"), stdin=json.dumps(asked))
        assert done.returncode == 1 and sentence in done.stderr, done.stderr
    done = incipit("embed", "-m", TINY, stdin='{"query": "a", "document": "b"}')
    assert done.returncode == 1 and b"this model generates text" in done.stderr


# ---- the API ----


@pytest.mark.parametrize("name", ["bert-rank", "qwen3-rank"])
def test_texts(name):
    """Framed, or put into the file's template, as transformers had them."""
    std = golden(name)[1]
    with serve(name) as s:
        for round in range(2):
            for query, documents in pairs(name):
                got = scores(s, query, [d for d, _ in documents])
                for score, (document, want) in zip(got, documents):
                    assert abs(score - want) <= 1e-4 * std, document


def test_frame_of_roberta():
    """<s> query </s></s> document </s>."""
    query, document = "the wind", "a dog and a tin"
    with serve("xlm-roberta-rank") as s:
        ids = [s.post("/tokenize", {"content": t, "add_special": False}).json["tokens"] for t in (query, document)]
        asked = json.dumps({"ids": [0, *ids[0], 2, 2, *ids[1], 2]})
        done = incipit("embed", "--kv", "f32", "-m", path_of("xlm-roberta-rank"), stdin=asked)
        assert scores(s, query, [document]) == json.loads(done.stdout)["scores"]


def test_texts_are_texts(ranker):
    """Neither a special token nor a place of the template comes from a request."""
    name, s = ranker
    plain = {"bert-rank": "[SEP]", "xlm-roberta-rank": "</s>", "qwen3-rank": "</s>"}[name]
    document = {"query": "a", "documents": [plain]}
    n = s.post("/v1/rerank", document).json["usage"]["prompt_tokens"]
    assert n > s.post("/v1/rerank", document | {"documents": ["a"]}).json["usage"]["prompt_tokens"]
    if name == "qwen3-rank":
        odd = s.post("/v1/rerank", {"query": "{document}{query}", "documents": ["{query}"]})
        assert odd.status == 200 and odd.json["usage"]["prompt_tokens"] > n


def test_sorted(ranker):
    _, s = ranker
    documents = [f"{'word ' * (i % 7)}and number {i}" for i in range(20)] + ["same", "same"]
    a = s.post("/v1/rerank", {"query": "number", "documents": documents, "return_documents": True}).json
    order = [(-r["relevance_score"], r["index"]) for r in a["results"]]
    assert order == sorted(order) and len(order) == len(documents)
    assert all(r["document"]["text"] == documents[r["index"]] for r in a["results"])
    assert a["usage"]["total_tokens"] == a["usage"]["prompt_tokens"] > 0 and a["object"] == "list"
    few = s.post("/v1/rerank", {"query": "number", "documents": documents, "top_n": 3}).json["results"]
    assert [(-r["relevance_score"], r["index"]) for r in few] == order[:3] and "document" not in few[0]
    objects = [{"text": d, "id": i} for i, d in enumerate(documents)]
    for route in ("/rerank", "/reranking", "/v1/reranking", "/v2/rerank"):
        again = s.post(route, {"query": "number", "documents": objects, "top_n": 99}).json["results"]
        assert [(-r["relevance_score"], r["index"]) for r in again] == order, route
    texts = s.post("/rerank", {"query": "number", "texts": documents, "return_text": True}).json
    assert [(-r["score"], r["index"]) for r in texts] == order
    assert texts[0]["text"] == documents[texts[0]["index"]]


def test_company_changes_nothing(ranker):
    """Nor do hits, threads, or the instruction set."""
    name, s = ranker
    documents = [f"{'a word ' * (i % 9)}and number {i}" for i in range(24)]
    alone = [scores(s, "number", [d])[0] for d in documents]
    assert scores(s, "number", documents) == alone
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert [x for x, in pool.map(lambda d: scores(s, "number", [d]), documents)] == alone
    for isa in isas():
        with serve(name, "--isa", isa, "-t", 1, "--batch", 19) as other:
            assert scores(other, "number", documents) == alone, isa


def test_hits():
    """What stands before the documents is computed once."""
    documents = [f"document {i}" for i in range(10)]
    with serve("qwen3-rank") as s:
        first = s.post("/v1/rerank", {"query": "a query", "documents": documents}).json
        again = s.post("/v1/rerank", {"query": "a query", "documents": documents}).json
        assert first["results"] == again["results"]
        n, cached = (again["usage"]["prompt_tokens"], again["usage"]["prompt_tokens_details"]["cached_tokens"])
        assert n - cached == len(documents)
        assert first["usage"]["prompt_tokens_details"]["cached_tokens"] > n // 2
    with serve("qwen3-rank", "--no-cache") as s:
        assert s.post("/v1/rerank", {"query": "a query", "documents": documents}).json["results"] == first["results"]


@pytest.mark.parametrize(
    "field, body",
    [
        ("query", {"documents": ["a"]}),
        ("query", {"query": "", "documents": ["a"]}),
        ("query", {"query": ["a"], "documents": ["a"]}),
        ("documents", {"query": "a"}),
        ("documents", {"query": "a", "documents": []}),
        ("documents", {"query": "a", "documents": "a"}),
        ("documents", {"query": "a", "documents": ["a"] * 2049}),
        ("documents[1]", {"query": "a", "documents": ["a", 5]}),
        ("documents[0]", {"query": "a", "documents": [{"title": "a"}]}),
        ("documents[0]", {"query": "a", "documents": [{"text": 5}]}),
        ("documents[0]", {"query": "a", "documents": [["a"]]}),
        ("texts", {"query": "a", "texts": []}),
        ("texts[0]", {"query": "a", "texts": [None]}),
        ("top_n", {"query": "a", "documents": ["a"], "top_n": 0}),
        ("top_n", {"query": "a", "documents": ["a"], "top_n": "1"}),
        ("return_documents", {"query": "a", "documents": ["a"], "return_documents": 1}),
    ],
)
def test_wrong_fields(ranker, field, body):
    a = ranker[1].post("/v1/rerank", body)
    assert a.status == 400 and a.error["param"] == field and a.error["type"] == "invalid_request_error", a


def test_too_long(ranker):
    _, s = ranker
    a = s.post("/v1/rerank", {"query": "a", "documents": ["b", "c " * 600]})
    assert a.status == 400 and a.error["code"] == "context_length_exceeded" and a.error["param"] == "documents[1]", a


# ---- other purposes ----


def test_ranks_only(ranker):
    _, s = ranker
    for route, body in (("/v1/completions", {"prompt": "a"}), ("/v1/embeddings", {"input": "a"})):
        a = s.post(route, {"model": "m"} | body)
        assert a.status == 400 and "ranks documents" in a.error["message"] and a.error["param"] == "model", a


def test_ranks_none(tiny):
    body = {"query": "a", "documents": ["b"]}
    a = tiny.post("/v1/rerank", body)
    assert a.status == 400 and "ranks no documents" in a.error["message"], a
    with serving("-m", EMBEDDER, "--cache-ram", "64M") as s:
        a = s.post("/v1/rerank", body)
        assert a.status == 400 and "/v1/embeddings" in a.error["message"], a


def test_pinning():
    """A beginning of texts can be pinned where there is one."""
    with serve("qwen3-rank") as s:
        a = s.post("/cache/pin", {"prompt": "<s>Judge.\n<Query>: "})
        assert a.status == 200 and a.json["object"] == "cache.pin" and a.json["tokens"] > 5, a
        assert s.get("/cache").json["pins"] == 1
    with serve("bert-rank") as s:
        a = s.post("/cache/pin", {"prompt": "a"})
        assert a.status == 400 and "whole texts" in a.error["message"], a
