"""HTTP to the letter: what is not certain is refused, what is refused leaves the connection in order,
and errors come in the form of the caller's kind."""

import gzip
import http.client
import json

import pytest

from program import raw

CHAT, COMPLETIONS, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"
BODY = json.dumps({"prompt": [5], "max_tokens": 1}).encode()
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def exchange(server, data, then=HEALTH):
    """(status, error or body) of each answer on one connection, to whose end `then` is sent, too."""
    answers = []
    with server.socket(timeout=10) as s:
        s.sendall(data + then)
        stream = s.makefile("rb")
        while line := stream.readline():
            headers = http.client.parse_headers(stream)
            body = stream.read(int(headers.get("Content-Length", 0)))
            answers.append((int(line.split()[1]), headers, json.loads(body)))
            if then and answers[-1][2] == {"status": "ok"}:
                break
    return answers


def head(*lines, method="POST", path=COMPLETIONS):
    return "".join(f"{line}\r\n" for line in [f"{method} {path} HTTP/1.1", *lines, ""]).encode()


LENGTH = f"Content-Length: {len(BODY)}"
CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
UNCERTAIN = {
    "no host": (400, head(LENGTH) + BODY),
    "two hosts": (400, head("Host: localhost", "Host: evil.example", LENGTH) + BODY),
    "two keys": (400, head("Host: localhost", "Authorization: Bearer a", "Authorization: Bearer b", LENGTH) + BODY),
    "two lengths": (400, head("Host: localhost", LENGTH, "Content-Length: 3") + BODY),
    "a length and chunks": (400, head("Host: localhost", "Content-Length: 4", "Transfer-Encoding: chunked") + CHUNKS),
    "two codings": (501, head("Host: localhost", "Transfer-Encoding: gzip", "Transfer-Encoding: chunked") + CHUNKS),
    "another coding": (501, head("Host: localhost", "Transfer-Encoding: gzip, chunked") + CHUNKS),
    "another coding of nothing": (501, head("Host: localhost", "Transfer-Encoding: gzip", method="GET", path="/health")),
}


@pytest.mark.parametrize("status, request_", UNCERTAIN.values(), ids=UNCERTAIN.keys())
def test_where_a_body_ends_is_certain(tiny, status, request_):
    """Otherwise the connection ends with the answer: what follows might be taken for a request."""
    [(got, headers, body)] = exchange(tiny, request_)
    assert got == status and headers["Connection"] == "close" and body["error"]["message"]


def test_chunks(tiny):
    request = head("Host: localhost", "Transfer-Encoding: chunked") + CHUNKS
    assert [status for status, *_ in exchange(tiny, request)] == [200, 200]


def test_encoded_bodies(tiny):
    packed = gzip.compress(BODY)
    for coding, data, status in (("gzip", packed, 415), ("br", packed, 415), ("identity", BODY, 200)):
        (got, headers, body), _ = exchange(tiny, raw(COMPLETIONS, data, f"Content-Encoding: {coding}\r\n"))
        assert got == status
        if status == 415:
            assert headers["Accept-Encoding"] == "identity" and coding in body["error"]["message"]


@pytest.mark.parametrize("argument", [b"a=b&", b"a&", b"&"])
@pytest.mark.parametrize("path", [b"/health", b"/nothing", b"/" + b"a" * 5000])
@pytest.mark.parametrize("n", [100, 400, 1000, 4000])
def test_long_queries(tiny, path, argument, n):
    """The library would forget to answer."""
    answers = exchange(tiny, b"GET " + path + b"?" + argument * n + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert [status for status, *_ in answers] == [414, 200]
    assert "arguments" in answers[0][2]["error"]["message"]


def test_some_arguments(tiny):
    assert tiny.get("/health?" + "a=b&" * 60).status == 200


def test_many_headers_are_answered(tiny):
    """However little memory they leave for the answer."""
    for line in (b"X-A: b\r\n", b"Cookie: " + b"a=b; " * 40 + b"\r\n"):
        for n in range(0, 700, 25):
            with tiny.socket(timeout=10) as s:
                s.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + line * n + b"\r\n")
                answer = s.recv(64)
                assert not answer or int(answer.split()[1]) in (200, 431)


def test_the_connection_outlives_errors(tiny):
    wrong = [raw(COMPLETIONS, b"{"), raw(MESSAGES, b"{}"), raw("/nothing", BODY), raw(COMPLETIONS, {"prompt": 5})]
    wrong += [head("Host: localhost", "Content-Length: 5", method="PUT", path="/v1/models") + b"hello"]
    wrong += [head("Host: localhost", method="HEAD", path=CHAT)]
    with tiny.socket(timeout=10) as s:
        for data, status in zip(wrong, (400, 400, 404, 400, 405, 405)):
            s.sendall(data)
            stream = s.makefile("rb")
            assert int(stream.readline().split()[1]) == status
            length = int(http.client.parse_headers(stream)["Content-Length"])
            assert data.startswith(b"HEAD") or json.loads(stream.read(length))["error"]["message"]
        s.sendall(raw(COMPLETIONS, BODY))
        assert s.recv(64).startswith(b"HTTP/1.1 200")


def test_a_stream_leaves_the_connection_open(tiny):
    """With chunks and their end; who speaks HTTP/1.0 is told that it closes."""
    body = {"prompt": [5], "max_tokens": 2, "stream": True}
    connection = http.client.HTTPConnection("127.0.0.1", tiny.port)
    for _ in range(2):
        connection.request("POST", COMPLETIONS, json.dumps(body))
        answer = connection.getresponse()
        assert answer.getheader("Transfer-Encoding") == "chunked" and b"[DONE]" in answer.read()
    connection.close()
    with tiny.socket(timeout=10) as s:
        s.sendall(raw(COMPLETIONS, body).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        answer = b"".join(iter(lambda: s.recv(65536), b""))
    assert b"Connection: close\r\n" in answer and answer.endswith(b"data: [DONE]\n\n")


def test_no_continue_for_what_is_refused(tiny):
    request = head("Host: localhost", "Expect: 100-continue", LENGTH, path="/nothing")
    [(status, headers, _)] = exchange(tiny, request, then=b"")
    assert status == 404 and headers["Connection"] == "close"


def test_errors_in_the_callers_form(tiny):
    cases = [("GET", MESSAGES, 405), ("GET", MESSAGES + "/batches", 404), ("PUT", MESSAGES + "/count_tokens", 405)]
    for method, path, status in cases:
        answer = tiny.request(method, path)
        assert answer.status == status and answer.json["type"] == "error" and answer.json["request_id"], answer
    theirs = {"anthropic-version": "2023-06-01"}
    for path in ("/v1/models/nothing", "/v1/nothing"):
        answer = tiny.get(path, headers=theirs)
        assert answer.status == 404 and answer.error["type"] == "not_found_error"
        assert tiny.get(path).error["type"] == "invalid_request_error"
    assert tiny.get(MESSAGES + "x").json.keys() == {"error"}  # another path


def test_keys_are_refused_in_the_callers_form(keyed):
    answer = keyed.post(MESSAGES, {})
    assert answer.status == 401 and answer.error["type"] == "authentication_error" and answer.json["type"] == "error"
    answer = keyed.post(CHAT, {})
    assert answer.status == 401 and answer.error["code"] == "invalid_api_key"
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
