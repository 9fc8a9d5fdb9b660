"""Strict tools with tool_choice auto, in every dialect: a model that opens a call in the form of its
dialect and then says anything at all (its script ends there; what comes is drawn from all tokens
that a grammar lets through) is read back as calls whose arguments are valid under the schema, as
the jsonschema package sees it. Text before a call is as the model says it."""

import json

import jsonschema
import pytest

from program import serving
from scripted import chatml, scripted_model
from test_agents import BAR, DIALECTS, LOW, mark

# All bounded, so that what a model without a mind says comes to its end.
SCHEMAS = {
    "plain": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "unit": {"enum": ["C", "F", "it's \"K\""]},
        "exact": {"type": "boolean"},
    },
    "mixed": {
        "note": {"anyOf": [{"type": "string", "maxLength": 5}, {"type": "null"}]},
        "n": {"type": ["integer", "null"], "minimum": 0, "maximum": 99},
        "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
        "born": {"type": "string", "format": "date"},
        "any": {"enum": ["x", 1, None, True]},
    },
    "nested": {
        "points": {
            "type": "array",
            "minItems": 1,
            "maxItems": 2,
            "items": {"$ref": "#/$defs/point"},
        },
        "tag": {"const": "a<b"},
    },
}
DEFS = {
    "point": {
        "type": "object",
        "properties": {"x": {"type": "number", "minimum": 0, "maximum": 1}, "s": {"type": "string", "maxLength": 3}},
        "required": ["x", "s"],
        "additionalProperties": False,
    }
}
# What opens a call; text is free before it.
OPENS = {
    "hermes": "SAY\n<tool_call>",
    "qwen3-coder": "SAY\n<tool_call>",
    "glm": "SAY\n<tool_call>",
    "minimax-m2": "SAY\n<minimax:tool_call>",
    "llama3": "<|python_tag|>",
    "pythonic": "[",
    "lfm2": "SAY<|tool_call_start|>",
    "gemma4": "SAY<|tool_call>",
    "mistral": "SAY[TOOL_CALLS]",
    "mistral-nemo": "[TOOL_CALLS]",
    "deepseek-v3.1": "SAY" + mark(f"calls{LOW}begin"),
    "kimi-k2": "SAY<|tool_calls_section_begin|>",
    "granite": "<|tool_call|>",
    "command-r7b": "<|START_ACTION|>",
    "harmony": "<|channel|>analysis<|message|>WHY<|end|><|start|>assistant<|channel|>commentary to=",
    "generic": "SAY <tool_call>",
}


def strict_tool(name, properties):
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        "$defs": DEFS,
    }
    return {"type": "function", "function": {"name": name, "strict": True, "parameters": parameters}}


TOOLS = [strict_tool(*item) for item in SCHEMAS.items()]


@pytest.fixture(scope="module", params=OPENS)
def opened(request, tmp_path_factory):
    call, specials, _, _ = DIALECTS[request.param]
    path = tmp_path_factory.mktemp("scripted") / "scripted.gguf"
    model = scripted_model(path, [OPENS[request.param]], template=chatml(call), specials=specials)
    with serving("-m", model, "--cache-ram", "64M") as server:
        yield server, request.param


def validate(call):
    schema = next(t for t in TOOLS if t["function"]["name"] == call["function"]["name"])["function"]["parameters"]
    checker = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    checker.validate(json.loads(call["function"]["arguments"]))


def test_calls_are_valid(opened):
    server, dialect = opened
    n_calls = 0
    for seed in range(8):
        ask = {
            "messages": [{"role": "user", "content": "Go."}],
            "tools": TOOLS,
            "seed": seed,
            "temperature": 1,
            "max_tokens": 1500,
        }
        answer = server.post("/v1/chat/completions", ask)
        assert answer.status == 200, answer.json
        choice = answer.json["choices"][0]
        message, finish = choice["message"], choice["finish_reason"]
        calls = message.get("tool_calls") or []
        whole = calls if finish != "length" else calls[:-1]
        for call in whole:
            validate(call)
        n_calls += len(whole)
        if "SAY" in OPENS[dialect]:
            assert message["content"].strip().startswith("SAY")
    assert n_calls


def test_text_stays_free(opened):
    """Without a call a strict request says what one without tools says."""
    server, _ = opened
    ask = {"messages": [{"role": "user", "content": "Go."}], "max_tokens": 20}
    plain = server.post("/v1/chat/completions", ask).json["choices"][0]
    assert plain["message"]["content"] == "Fine."


@pytest.mark.parametrize("properties", [{"a=b": {"type": "string"}}, {"a": {"not": {}}}])
def test_what_cannot_be_held_to_is_said(opened, properties):
    server, dialect = opened
    keyed = dialect in ("qwen3-coder", "glm", "minimax-m2", "pythonic", "lfm2", "gemma4")
    ask = {"messages": [{"role": "user", "content": "Go."}], "tools": [strict_tool("f", properties)], "max_tokens": 5}
    answer = server.post("/v1/chat/completions", ask)
    wrong = keyed or "not" in properties.get("a", {})
    assert answer.status == (400 if wrong else 200)
    if wrong:
        assert answer.json["error"]["param"] == "tools"
