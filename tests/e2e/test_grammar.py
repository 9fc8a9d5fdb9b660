"""Answers of the default model that must look like something, at temperature 1."""

import json
import re

import jsonschema
import openai
import pytest

ASK = [{"role": "user", "content": "Describe a person from a novel, as JSON."}]
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 30},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "height": {"type": "number", "exclusiveMinimum": 0.4, "maximum": 2.5},
        "mood": {"enum": ["glad", "sad", None]},
        "born": {"type": "string", "format": "date"},
        "friends": {"type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/friend"}},
    },
    "required": ["name", "age", "mood"],
    "additionalProperties": False,
    "$defs": {
        "friend": {
            "type": "object",
            "properties": {"name": {"type": "string", "pattern": "^[A-Z][a-z]{1,9}$"}},
            "required": ["name"],
            "additionalProperties": False,
        }
    },
}


def ask(client, seed, **fields):
    fields = {"max_tokens": 400, "temperature": 1, "model": "default"} | fields
    a = client.chat.completions.create(messages=ASK, seed=seed, **fields)
    return a.choices[0].message.content, a.choices[0].finish_reason


def schema_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}


def test_schema_holds_for_every_seed(client):
    check = jsonschema.Draft202012Validator(PERSON, format_checker=jsonschema.FormatChecker())
    for seed in range(20):
        text, finish = ask(client, seed, response_format=schema_format(PERSON))
        assert finish == "stop", text
        check.validate(json.loads(text))


def test_streams_add_up_to_the_same(client):
    whole, _ = ask(client, 3, response_format=schema_format(PERSON))
    chunks = client.chat.completions.create(
        messages=ASK, seed=3, max_tokens=400, temperature=1, model="default", stream=True,
        response_format=schema_format(PERSON))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole


def test_json_object(client):
    for seed in range(5):
        text, finish = ask(client, seed, response_format={"type": "json_object"})
        if finish == "stop":
            assert isinstance(json.loads(text), dict)


@pytest.mark.parametrize("fields,pattern", [
    ({"structured_outputs": {"regex": r"[A-Z][a-z]+ \d{2,4}"}}, r"[A-Z][a-z]+ \d{2,4}"),
    ({"structured_outputs": {"choice": ["yes", "no", "never"]}}, "yes|no|never"),
    ({"guided_choice": ["left", "right"]}, "left|right"),
    ({"grammar": 'root ::= "- " word ("\\n- " word){2}\nword ::= [a-z]{1,8}'}, "- [a-z]{1,8}(\n- [a-z]{1,8}){2}"),
    ({"json_schema": {"type": "integer", "minimum": 5, "maximum": 25}}, "[5-9]|1[0-9]|2[0-5]"),
])
def test_other_notations(client, fields, pattern):
    for seed in range(4):
        text, finish = ask(client, seed, extra_body=fields, max_tokens=120)
        if finish == "stop":
            assert re.fullmatch(pattern, text), text


@pytest.mark.parametrize("fields,param", [
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
     "response_format.json_schema.schema"),
    ({"response_format": schema_format({"type": "strnig"})}, "response_format"),
    ({"response_format": schema_format({"minLength": 5, "maxLength": 2})}, "response_format"),
    ({"response_format": schema_format({"not": {}})}, "response_format"),
    ({"extra_body": {"guided_regex": "("}}, "guided_regex"),
    ({"extra_body": {"grammar": 'root ::= "a"{5,2}'}}, "grammar"),
    ({"extra_body": {"grammar": "root ::= " + "(" * 20000 + '"a"' + ")" * 20000}}, "grammar"),
])
def test_says_what_is_wrong(client, fields, param):
    with pytest.raises(openai.BadRequestError) as e:
        ask(client, 1, **fields)
    assert e.value.body["param"] == param
