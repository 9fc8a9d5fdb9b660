"""Grammars, schemas, regular expressions and templates made to cost much: an answer or a clear 400
within a second, and the server is well all the while. Most of these are known to hang, crash or
inflate other servers."""

import os
import pathlib

import pytest

from program import serving, tiny_copy

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "a"}]


@pytest.fixture(scope="module")
def server(tiny_model):
    with serving("-m", tiny_model, "--cache-ram", "64M") as s:
        yield s


def processor_time(server):
    """Seconds that the server's threads have run."""
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(server, path, body):
    """The answer, which must take less than a second: of the processor's time, for the machine may be
    busy otherwise."""
    began = processor_time(server)
    answer = server.post(path, body)
    spent = processor_time(server) - began
    assert spent < 1, f"{spent} s: {answer}"
    assert server.get("/health").status == 200
    assert answer.status in (200, 400), answer
    if answer.status == 400:
        assert answer.error["message"] and answer.error["param"], answer
    return answer


def chat(server, **fields):
    return ask(server, CHAT, {"messages": USER, "max_tokens": 8, "temperature": 0} | fields)


def nested(opening, inner, closing, n):
    return opening * n + inner + closing * n


REFUSED = 400
ALLOWED = 200
EITHER = None

GBNF = {
    "a minimum above its maximum": ('root ::= "a"{5,2}', REFUSED),
    "20,000 parentheses": ("root ::= " + nested("(", '"a"', ")", 20_000), REFUSED),
    "20,000 open parentheses": ("root ::= " + "(" * 20_000, REFUSED),
    "20,000 alternatives": ("root ::= " + " | ".join(f'"a{i}"' for i in range(20_000)), ALLOWED),
    "200,000 alternatives": ("root ::= " + " | ".join(f'"a{i}"' for i in range(200_000)), EITHER),
    "left recursion": ('root ::= root "a" | "b"', REFUSED),
    "hidden left recursion": ('root ::= x root "a" | "b"\nx ::= "c"?', REFUSED),
    "no end": ('root ::= "a" root', REFUSED),
    "a billion times": ("root ::= [a-z]{1,1000000000}", EITHER),
    "a million times a million": ('root ::= (("a"{1,1000}){1,1000}){1,1000}', EITHER),
    "nothing for ever": ('root ::= ((("")*)*)* "a"', EITHER),
    "doubled 40 times": ("root ::= r0 r0\n" + "".join(f"r{i} ::= r{i + 1} r{i + 1}\n" for i in range(40)) + 'r40 ::= "a"', EITHER),
    "50,000 rules": ("root ::= r0\n" + "".join(f"r{i} ::= r{i + 1}\n" for i in range(50_000)) + 'r50000 ::= "a"', EITHER),
    "ambiguous": ('root ::= ("a" | "a" | "a" "a")* "b"', ALLOWED),
    "all classes": ("root ::= (" + " | ".join(f"[\\U{i:08x}-\\U{i + 9:08x}]" for i in range(0x400, 0x10000, 13)) + ")+", EITHER),
}


@pytest.mark.parametrize("name", GBNF)
def test_gbnf(server, name):
    text, expected = GBNF[name]
    answer = chat(server, grammar=text)
    assert expected in (EITHER, answer.status), answer


def obj(n, **more):
    return {"type": "object", "properties": {f"property_{i}": {"type": "integer"} for i in range(n)}} | more


def deep(n):
    schema = {"type": "null"}
    for _ in range(n):
        schema = {"items": schema}
    return schema


def ref(name):
    return {"$ref": f"#/$defs/{name}"}


SCHEMAS = {
    "an enum of 5,000": ({"enum": [f"value {i}" for i in range(5000)]}, ALLOWED),
    "10,000 optional properties": (obj(10_000), ALLOWED),
    "10,000 required properties": (obj(10_000, required=[f"property_{i}" for i in range(10_000)]), ALLOWED),
    "10,000 properties and others": (obj(10_000, additionalProperties=True), EITHER),
    "required without properties": ({"type": "object", "required": [f"p{i}" for i in range(10_000)]}, EITHER),
    "minLength above maxLength": ({"type": "string", "minLength": 5, "maxLength": 2}, REFUSED),
    "minItems above maxItems": ({"type": "array", "minItems": 5, "maxItems": 2}, REFUSED),
    "minimum above maximum": ({"type": "integer", "minimum": 5, "maximum": 2}, REFUSED),
    "a billion characters": ({"type": "string", "minLength": 10**9, "maxLength": 10**9}, EITHER),
    "a billion items": ({"type": "array", "items": {"type": "integer"}, "minItems": 10**9}, EITHER),
    "far numbers": ({"type": "number", "minimum": -1e300, "maximum": 1e-300}, EITHER),
    "small multiples": ({"type": "number", "multipleOf": 1e-300}, EITHER),
    "a reference to itself": ({"$ref": "#"}, REFUSED),
    "a circle of references": ({"$defs": {"a": ref("b"), "b": ref("a")}, **ref("a")}, REFUSED),
    "10,000 references": ({"$defs": {f"d{i}": ref(f"d{i + 1}") for i in range(10_000)} | {"d10000": {"type": "null"}}, **ref("d0")}, EITHER),
    "doubled 30 times": ({"$defs": {f"d{i}": {"type": "array", "prefixItems": [ref(f"d{i + 1}")] * 2, "items": False, "minItems": 2} for i in range(30)}
                          | {"d30": {"type": "null"}}, **ref("d0")}, EITHER),
    "no finite value": ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, REFUSED),
    "choices multiplied": ({"allOf": [{"anyOf": [{"properties": {f"p{i}{k}": {"type": "null"}}} for k in range(4)]} for i in range(30)]}, EITHER),
    "choices in choices": ({"anyOf": [{"anyOf": [{"anyOf": [{"const": f"{i}{j}{k}"} for i in range(20)]} for j in range(20)]} for k in range(20)]}, EITHER),
    "as deep as a body may be": (deep(50), EITHER),
    "names that begin alike": ({"type": "object", "properties": {"a" * i: {"type": "null"} for i in range(1, 1000)}}, EITHER),
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas(server, name):
    schema, expected = SCHEMAS[name]
    answer = chat(server, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
    assert expected in (EITHER, answer.status), answer


REGEXES = {
    "(a*)*b": ALLOWED,
    "(a|a)*b": ALLOWED,
    "(a|aa)+$": EITHER,
    "^(a+)+$": EITHER,
    "(x+x+)+y": ALLOWED,
    "([a-zA-Z]+)*[0-9]": ALLOWED,
    "(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)z": ALLOWED,
    "a{5,2}": REFUSED,
    "a{1000000000}": EITHER,
    "((((a{99}){99}){99}){99}){99}": EITHER,
    nested("(", "a", ")", 20_000): REFUSED,
    nested("(", "a", ")*", 190): EITHER,
    "(" * 20_000: REFUSED,
    "|".join(f"a{i}" for i in range(50_000)): EITHER,
    "(?=a)b": REFUSED,
    "(a)\\1": REFUSED,
    "[" + "".join(chr(i) for i in range(0x4E00, 0x9000, 2)) + "]+": EITHER,
}


@pytest.mark.parametrize("pattern", REGEXES, ids=lambda p: p[:24])
def test_regexes(server, pattern):
    answer = chat(server, structured_outputs={"regex": pattern})
    assert REGEXES[pattern] in (EITHER, answer.status), answer
    if len(pattern) < 5000:
        schema = {"type": "string", "pattern": pattern}
        chat(server, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})


def test_choices(server):
    assert chat(server, structured_outputs={"choice": [f"choice {i}" for i in range(5000)]}).status == 200
    chat(server, structured_outputs={"choice": [f"choice {i}" for i in range(200_000)]})
    chat(server, structured_outputs={"choice": ["a" * i for i in range(1, 2000)]})


def tool(i, parameters):
    return {"type": "function", "function": {"name": f"tool_{i}", "strict": True, "parameters": parameters}}


def test_tools(server):
    for tools in ([tool(i, obj(3)) for i in range(8)], [tool(0, obj(10_000))], [tool(0, SCHEMAS["choices multiplied"][0])]):
        for choice in ("auto", "required", {"type": "function", "function": {"name": "tool_0"}}):
            chat(server, tools=tools, tool_choice=choice)


TEMPLATES = {
    "endless loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% for k in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
    "endless text": "{% for i in range(99999) %}{% for j in range(99999) %}" + "x" * 1000 + "{% endfor %}{% endfor %}",
    "doubling": "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
    "lists of lists": "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
    "endless calls": "{% macro f(n) %}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "great numbers": "{{ 9 ** 9 ** 9 ** 9 }}",
    "repeated text": "{{ 'a' * 99999999999 }}",
    "wide format": "{{ '%999999999d' % 1 }}{{ 'a'.ljust(99999999999) }}",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates(tmp_path, name):
    """Whatever a model's template does: loading ends, and so do requests."""
    with serving("-m", tiny_copy(tmp_path, tokenizer__chat_template=TEMPLATES[name]), "--cache-ram", "16M") as s:
        assert ask(s, CHAT, {"messages": USER, "max_tokens": 1}).status == 400
        assert s.complete([5])["usage"]["completion_tokens"]


def test_template_arguments(server):
    """Members of chat_template_kwargs are data: they replace nothing and cost little."""
    for name in ("messages", "tools", "bos_token", "eos_token", "add_generation_prompt"):
        for value in ([], "x", None, {"a": 1}):
            answer = ask(server, CHAT, {"messages": USER, "chat_template_kwargs": {name: value}})
            assert answer.status == 400 and answer.error["param"].startswith("chat_template_kwargs")
    plain = chat(server).json["usage"]["prompt_tokens"]
    many = {f"argument_{i}": "x" * 100 for i in range(10_000)}
    assert chat(server, chat_template_kwargs=many).json["usage"]["prompt_tokens"] == plain
