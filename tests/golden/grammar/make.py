"""Makes cases.json: JSON Schemas and regular expressions with texts that do and do not satisfy them.

Whether they do is said by the packages `jsonschema` (4.26, with rfc3339-validator) and Python's `re`;
texts are spelled compactly, with the members of objects in the order given here.

    python3 tests/golden/grammar/make.py > tests/golden/grammar/cases.json
"""
import json
import re
import sys

from jsonschema import Draft202012Validator, FormatChecker

TREE = {"$ref": "#/$defs/tree", "$defs": {"tree": {
    "type": "object", "required": ["v"], "additionalProperties": False,
    "properties": {"v": {"type": "integer"},
                   "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}}}
LIST = {"anyOf": [{"type": "null"}, {
    "type": "object", "required": ["head", "tail"], "additionalProperties": False,
    "properties": {"head": {"type": "number"}, "tail": {"$ref": "#"}}}]}
PERSON = {"type": "object", "required": ["name"], "additionalProperties": False,
          "properties": {"id": {"type": "integer"}, "name": {"type": "string"},
                         "tags": {"type": "array", "items": {"enum": ["a", "b"]}}}}
OPEN = {"type": "object", "properties": {"ab": {"type": "integer"}, "abc": {"type": "null"}},
        "additionalProperties": {"type": "boolean"}}

NUMBERS = [0, 1, -1, 5, 9, 10, 11, 42, 99, 100, 101, 119, 120, 121, 999, 1000, 1001, -5, -9, -10,
           -11, -100, -101, 0.1, 0.05, 0.5, 1.5, 2.5, 2.25, 2.24, 2.26, 9.99, -0.5, -1.5, -2.25,
           3.14159, 7.25, 7.249, 7.2501, 12345, 1234567]
BOUNDS = [{"minimum": 0}, {"minimum": 1, "maximum": 10}, {"exclusiveMinimum": 0},
          {"exclusiveMinimum": 0, "exclusiveMaximum": 10}, {"maximum": -1}, {"maximum": 0},
          {"minimum": -10, "maximum": 120}, {"minimum": 99, "maximum": 1000},
          {"exclusiveMaximum": -9}, {"minimum": 42, "maximum": 42}, {"minimum": 1000},
          {"minimum": -100, "maximum": -10}, {"minimum": 2.25}, {"exclusiveMinimum": 2.25},
          {"minimum": 0.1, "maximum": 2.25}, {"exclusiveMaximum": 7.25, "minimum": -2.25},
          {"minimum": 0.05, "exclusiveMaximum": 1.5}, {"minimum": 1e2, "maximum": 1.2e2}]

STRINGS = ["", "a", "b", "ab", "aab", "abc", "é", "éé", "😀", "a😀b", "\n", "\"", "\\", "x y", "123",
           "12.x", "0", "2024-02-28", "2024-13-01", "2024-04-31", "23:59:59Z", "hello world",
           "2024-01-01T00:00:00Z", "2024-01-01T25:00:00Z", "2024-01-01 00:00:00Z", "1.2.3.4",
           "1.2.3.256", "01.2.3.4", "::1", "1:2:3:4:5:6:7:8", "1:2", "::", "a@b.cd", "a.b", "@b.cd",
           "00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-00000000000g"]

SCHEMAS = [
    (True, [None, 1, "x", [], {}, [[1, {"a": []}]], {"a": {"b": None}}]),
    ({"type": "null"}, [None, False, "null", 0]),
    ({"type": "boolean"}, [True, False, None, "true", 1]),
    ({"type": ["string", "null"]}, [None, "x", 1, []]),
    ({"type": "string"}, STRINGS + [1, None]),
    ({"type": "string", "minLength": 2}, STRINGS),
    ({"type": "string", "maxLength": 1}, STRINGS),
    ({"type": "string", "minLength": 2, "maxLength": 3}, STRINGS),
    ({"type": "string", "pattern": "^a+b?$"}, STRINGS),
    ({"type": "string", "pattern": "b"}, STRINGS),
    ({"type": "string", "pattern": "^[^a-z]*$"}, STRINGS),
    ({"type": "string", "pattern": "^a|b$"}, STRINGS),
    ({"type": "string", "pattern": "\\d\\.\\w"}, STRINGS),
    ({"type": "string", "pattern": "^.$"}, [s for s in STRINGS if s != "\n"]),
    ({"type": "string", "pattern": "^[\"\\\\]$"}, STRINGS),
    ({"type": "string", "pattern": "^[a-z]+$", "maxLength": 2}, STRINGS),
    ({"type": "string", "format": "date"}, STRINGS),
    ({"type": "string", "format": "date-time"}, STRINGS),
    ({"type": "string", "format": "ipv4"}, STRINGS),
    ({"type": "string", "format": "uuid"}, STRINGS),
    ({"type": "string", "format": "ipv6"}, STRINGS),
    ({"type": "integer"}, [n for n in NUMBERS] + ["1", None]),
    ({"type": "number"}, NUMBERS + ["1", None]),
    ({"enum": ["a", "b\n", 1, None, [1, 2], {"k": "v"}]},
     ["a", "b", "b\n", 1, 2, None, [1, 2], [1], {"k": "v"}, {}]),
    ({"enum": ["a", 1, None], "type": "string"}, ["a", 1, None]),
    ({"const": {"z": []}}, [{"z": []}, {"z": [1]}, {}, None]),
    ({"type": "array"}, [[], [1], ["a", None, []], {}, None]),
    ({"type": "array", "items": {"type": "integer"}}, [[], [1], [1, 2, 3], ["a"], [1, "a"]]),
    ({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
     [[], [1], [1, 2], [1, 2, 3]]),
    ({"type": "array", "minItems": 2, "maxItems": 2}, [[], [1], [1, "x"], [1, 2, 3]]),
    ({"type": "array", "maxItems": 0}, [[], [1]]),
    ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
     [[], [1], [1, "a"], ["a"], [1, 2], [1, "a", None]]),
    ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 1,
      "items": {"type": "null"}}, [[], [1], [1, "a"], [1, "a", None], [1, "a", None, None], [1, 2]]),
    ({"type": "array", "prefixItems": [{"type": "integer"}], "minItems": 2, "maxItems": 3},
     [[], [1], [1, "a"], [1, "a", None], [1, "a", None, None], ["a", 1]]),
    (PERSON, [{}, {"name": "x"}, {"id": 1, "name": "x"}, {"name": "x", "tags": []}, {"id": 1},
              {"name": 1}, {"name": "x", "tags": ["a", "b"]}, {"name": "x", "tags": ["c"]},
              {"name": "x", "other": 1}, {"id": 1, "name": "x", "tags": ["b"]}, [], None]),
    (OPEN, [{}, {"ab": 1}, {"ab": 1, "abc": None}, {"ab": 1, "x": True}, {"x": True}, {"ab": True},
            {"abc": None, "a": False, "abcd": True}, {"x": 1}, {"abc": True}, {"": True},
            {"é": False, "\"": True}, {"b": True, "c": False, "d": True}]),
    ({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1,
      "maxProperties": 2}, [{}, {"a": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}, {"a": "x"}]),
    ({"type": "object", "additionalProperties": False}, [{}, {"a": 1}]),
    ({"type": "object", "propertyNames": {"enum": ["x", "y"]}}, [{}, {"x": 1}, {"y": []}, {"z": 1}]),
    ({"type": "object", "properties": {"a": True, "b": False}, "additionalProperties": False},
     [{}, {"a": 1}, {"b": 1}, {"a": [], "b": 1}]),
    (TREE, [{"v": 1}, {"v": 1, "kids": []}, {"v": 1, "kids": [{"v": 2, "kids": [{"v": 3}]}]}, {},
            {"v": 1, "kids": [{}]}, {"v": 1, "kids": [1]}, {"v": "x"}]),
    (LIST, [None, {"head": 1, "tail": None}, {"head": 1, "tail": {"head": 2.5, "tail": None}}, {},
            {"head": 1}, {"head": "x", "tail": None}, {"head": 1, "tail": {}}]),
    ({"anyOf": [{"type": "string", "maxLength": 1}, {"type": "integer", "minimum": 5}]},
     ["a", "ab", 5, 4, None]),
    ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, [1, "x", None]),
    ({"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}]}, [2, 3, 5, 6, "x"]),
    ({"allOf": [{"type": ["string", "number"]}, {"type": ["integer", "null"]}]}, [1, "x", None, 1.5]),
    ({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"type": "object", "properties": {"b": {"type": "string"}, "a": {"minimum": 5}}}]},
     [{"a": 5}, {"a": 4}, {"b": "x"}, {"a": 5, "b": "x"}, {"a": 5, "b": 1}]),
    ({"type": "object", "properties": {"kind": {"const": "x"}}, "required": ["kind"],
      "anyOf": [{"properties": {"n": {"type": "integer"}}, "required": ["n"]},
                {"properties": {"s": {"type": "string"}}, "required": ["s"]}]},
     [{"kind": "x", "n": 1}, {"kind": "x", "s": "t"}, {"kind": "x"}, {"n": 1}, {"kind": "y", "n": 1}]),
    ({"$ref": "#/$defs/a%20b~1c", "$defs": {"a b/c": {"type": "integer"}}}, [1, "x"]),
    ({"$defs": {"s": {"type": "string"}}, "$ref": "#/$defs/s", "maxLength": 1}, ["a", "ab", 1]),
    ({"type": "object", "properties": {"a": {"type": ["integer", "null"]},
                                       "b": {"anyOf": [{"type": "null"}, {"type": "string"}]}},
      "required": ["a", "b"], "additionalProperties": False},
     [{"a": 1, "b": "x"}, {"a": None, "b": None}, {"a": 1}, {"a": "x", "b": None}]),
] + [({"type": kind, **bound}, NUMBERS) for bound in BOUNDS for kind in ("integer", "number")]

TEXTS = ["", "a", "b", "ab", "aab", "abab", "abc", "aaa", "aaaa", "é", "日本", "a b", "A1_", "x-y",
         "123", "12", "1.5", "a\nb", "\n", "{", "{2}", "a{2}", "]", "a]", "foo.bar", "foo@bar.com",
         "0x1F", "-", "a-", "^", "$", "😀", "aé", "\t", "ac", "abcabc"]
REGEXES = ["", "a", "ab", "a|b", "a*", "a+", "a?", "(ab)*", "(a|b)+", "a{2}", "a{2,}", "a{1,3}",
           "a{,2}", "[ab]+", "[^ab]+", "[a-c]+", ".", ".*", "..", "\\d+", "\\d+(\\.\\d+)?", "\\w+",
           "\\W", "\\s", "\\S+", "a\\nb", "(?:ab)+c?", "(?P<x>a)b", "[\\d.]+", "[\\w.]+@[\\w.]+\\.com",
           "0x[0-9A-F]+", "\\{", "{", "\\{2\\}", "a\\{2\\}", "[]a]+", "[a-]+", "[-a]+", "é", "[é日本]+",
           "\\u00e9", "\\x61+", "[\\u4e00-\\u9fff]+", "^abc$", "^ab|abc$", "a(bc)?", "(abc){2}",
           "(a*)*", "(a?){3}", "(a|ab)(c|bc)?", "a*?b", "[^\\d\\n]+", "[\\]x]", "\\^|\\$", "((a)|(b))*c?"]


def schema_case(schema, docs):
    validator = Draft202012Validator(schema, format_checker=FormatChecker())
    texts = [json.dumps(d, ensure_ascii=False, separators=(",", ":")) for d in docs]
    return {"schema": json.dumps(schema, ensure_ascii=False),
            "valid": [t for t, d in zip(texts, docs) if validator.is_valid(d)],
            "invalid": [t for t, d in zip(texts, docs) if not validator.is_valid(d)]}


def regex_case(regex):
    return {"regex": regex,
            "match": [t for t in TEXTS if re.fullmatch(regex, t, re.ASCII)],
            "other": [t for t in TEXTS if not re.fullmatch(regex, t, re.ASCII)]}


json.dump({"schemas": [schema_case(*case) for case in SCHEMAS],
           "regexes": [regex_case(r) for r in REGEXES]},
          sys.stdout, ensure_ascii=False, indent=0)
