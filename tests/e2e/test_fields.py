"""Every field that a route knows, with every wrong type and values out of range: a 400 that names the
field. Null is like absent everywhere."""

import contextlib

import pytest

from program import GOLDEN, serving

EMBEDDER = GOLDEN / "models/qwen3-embed.gguf"
RANKER = GOLDEN / "models/qwen3-rank.gguf"

BOOL, INT, NUMBER, STRING, ARRAY, OBJECT = "boolean", "integer", "number", "string", "array", "object"
VALUES = {BOOL: True, INT: 1, NUMBER: 0.5, STRING: "x", ARRAY: [{}], OBJECT: {"x": 1}}


class Field:
    """Which of VALUES' types pass, and values of these types that do not. more: what must be in the
    body for the field to be looked at."""

    def __init__(self, *types, wrong=(), more=None):
        self.types, self.wrong, self.more = types, wrong, more or {}
        if NUMBER in types:
            self.types += (INT,)

    def bad_values(self):
        return [v for t, v in VALUES.items() if t not in self.types] + list(self.wrong)


HUGE = (2**31, 2**32 + 1, 2**63, 2**64 + 1, 10**400)
UNSIGNED = Field(INT, wrong=(-1, -(2**31), -(2**63), *HUGE))
FLAG = Field(BOOL)
TEXT = Field(STRING)
CACHE = {  # members of prompt_cache_options
    "mode": Field(wrong=("on",)),
    "ttl": Field(INT, NUMBER, wrong=(0, -1, "", "x", "-5m", "5 weeks", "inf", "nan", 1e999)),
    "store": FLAG,
    "pin": FLAG,
    "session_end": FLAG,
    "diagnostics": FLAG,
    "comparison_response_id": TEXT,
}
SAMPLING = {
    "temperature": Field(NUMBER, wrong=(-0.1, 1e9, 1e308)),
    "top_p": Field(NUMBER, wrong=(-0.5, 1.5, 2)),
    "min_p": Field(NUMBER, wrong=(-0.1, 2)),
    "top_k": Field(INT, wrong=(-7, *HUGE)),
    "seed": Field(INT),
    "priority": Field(INT, wrong=HUGE),
    "lora": Field(wrong=([1], [None], [{}], [{"id": "a"}], [{"id": -1}], [{"id": 0}], [{"id": 2**40, "scale": 1}])),
    "cache_salt": Field(STRING, wrong=("", "x" * 5000, "a\0b")),
    "stream": FLAG,
}
PENALTIES = {
    "presence_penalty": Field(NUMBER, wrong=(3, -3)),
    "frequency_penalty": Field(NUMBER, wrong=(3, -3)),
}
STOP = Field(STRING, wrong=("", [""], ["a"] * 1000, ["a" * 5000], ["\0"], ["a", 1], [None]))
IDS = Field(wrong=([320], [-1], [2**32 + 1], [2**64 + 5], ["1"], [1.0], [None], [[1]]))
BIAS = Field(wrong=({"320": 1}, {"-1": 1}, {"a": 1}, {"": 1}, {"5": "a"}, {"5": 1e9}, {"5": None}, {"4294967301": 1}, {"5 ": 1}))
GBNF = Field(wrong=("x", 'root ::= "a"{5,2}', "root ::= root"))
REGEX = Field(STRING, wrong=("(", "[", "a{5,2}", "(?=a)", "\\1"))
CHOICE = Field(wrong=([], [1], [None], [""], ["a", {}]))
SCHEMA = Field(BOOL, OBJECT, wrong=({"type": "poem"}, {"type": 5}, {"$ref": "#/x"}, {"minLength": 3, "maxLength": 2, "type": "string"}))
SCHEMA_MEMBERS = {"json": SCHEMA, "regex": REGEX, "choice": CHOICE, "grammar": GBNF}
OPENAI = SAMPLING | PENALTIES | {
    "n": Field(INT, wrong=(0, -1, 100_000, *HUGE)),
    "max_tokens": UNSIGNED,
    "max_completion_tokens": UNSIGNED,
    "min_tokens": Field(INT, wrong=(9, -1, *HUGE)),
    "repetition_penalty": Field(NUMBER, wrong=(0, -1, 1e9)),
    "ignore_eos": FLAG,
    "include_stop_str_in_output": FLAG,
    "skip_special_tokens": FLAG,
    "return_token_ids": FLAG,
    "prompt_logprobs": Field(INT, wrong=(-1, 21, *HUGE)),
    "stream_options": Field(wrong=({"include_usage": True},)),
    "stream_options.include_usage": Field(BOOL, more={"stream": True}),
    "stream_options.continuous_usage_stats": Field(BOOL, more={"stream": True}),
    "stop": STOP,
    "stop_token_ids": IDS,
    "allowed_token_ids": IDS,
    "bad_words": Field(wrong=([1], [None])),
    "logit_bias": BIAS,
    "model": TEXT,
    "user": TEXT,
    "session_id": TEXT,
    "prompt_cache_key": TEXT,
    "prompt_cache_options": Field(OBJECT),
    "response_format": Field(wrong=({"type": "poem"}, {}, {"type": 1}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": 1})),
    "structured_outputs": Field(OBJECT),
    "guided_json": SCHEMA,
    "guided_regex": REGEX,
    "guided_choice": CHOICE,
    "guided_grammar": GBNF,
    "json_schema": SCHEMA,
    "grammar": GBNF,
} | {f"prompt_cache_options.{k}": f for k, f in CACHE.items()} | {f"structured_outputs.{k}": f for k, f in SCHEMA_MEMBERS.items()}  # fmt: skip

F = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
TOOLS = Field(wrong=([1], [None], [{"type": "function"}], [{"type": "function", "function": 1}], [{"type": "function", "function": {}}]))
TOOL_CHOICE = Field(wrong=("must", {}, {"type": "function"}, {"type": "function", "function": {"name": "g"}}), more={"tools": [F]})
CHAT = OPENAI | {
    "messages": Field(wrong=([], [1], ["a"], [None], [{}], [{"role": "wizard", "content": "a"}], [{"role": 1, "content": "a"}], [{"role": "user"}],
                             [{"role": "user", "content": 1}], [{"role": "user", "content": [{"type": "image_url"}]}], [{"role": "user", "content": [1]}])),
    "logprobs": FLAG,
    "top_logprobs": Field(INT, wrong=(-1, 21, *HUGE), more={"logprobs": True}),
    "tools": TOOLS,
    "tool_choice": TOOL_CHOICE,
    "parallel_tool_calls": FLAG,
    "add_generation_prompt": FLAG,
    "continue_final_message": FLAG,
    "reasoning_effort": TEXT,
    "chat_template_kwargs": Field(OBJECT, wrong=({"messages": []}, {"tools": []}, {"bos_token": "x"}, {"add_generation_prompt": True})),
}  # fmt: skip
COMPLETIONS = OPENAI | {
    "prompt": Field(STRING, wrong=([], "", [[]], [320], [-1], [2**32 + 5], [2**64 + 5], [5, 5.5], [5, "a"], ["a", 5], [[5], "a", {}], [5, None], [None])),
    "suffix": TEXT,
    "logprobs": Field(INT, wrong=(-2, 1000, *HUGE)),
    "echo": FLAG,
    "add_special_tokens": FLAG,
    "best_of": Field(INT, wrong=(3, 0, *HUGE)),
}  # fmt: skip
RESPONSES = SAMPLING | PENALTIES | {
    "input": Field(STRING, wrong=([], [1], [None], [{"role": "wizard", "content": "a"}], [{"role": "user", "content": 1}], [{"type": "poem"}],
                                  [{"type": "function_call"}], [{"type": "function_call_output", "output": "x"}])),
    "instructions": TEXT,
    "max_output_tokens": UNSIGNED,
    "metadata": Field(OBJECT),
    "parallel_tool_calls": FLAG,
    "previous_response_id": Field(wrong=("resp_none",)),
    "reasoning": Field(OBJECT),
    "reasoning.effort": TEXT,
    "repetition_penalty": Field(NUMBER, wrong=(0, -1, 1e9)),
    "stop": STOP,
    "store": FLAG,
    "text": Field(OBJECT),
    "text.format": Field(wrong=({"type": "poem"}, {"type": "json_schema"}, {"type": "json_schema", "schema": 1})),
    "tools": Field(wrong=([1], [None], [{"type": "function"}], [{}])),
    "tool_choice": Field(wrong=("must", {}, {"type": "function"}, {"type": "function", "name": "g"}), more={"tools": [{"type": "function", "name": "f"}]}),
    "top_logprobs": Field(INT, wrong=(-1, 21, *HUGE)),
    "include": Field(ARRAY),
    "logit_bias": BIAS,
    "model": TEXT,
    "user": TEXT,
    "prompt_cache_key": TEXT,
    "prompt_cache_options": Field(OBJECT),
    "chat_template_kwargs": Field(OBJECT, wrong=({"messages": []}, {"tools": []})),
} | {f"prompt_cache_options.{k}": f for k, f in CACHE.items()}  # fmt: skip
MESSAGES = SAMPLING | {
    "messages": Field(wrong=([], [1], [None], [{}], [{"role": "wizard", "content": "a"}], [{"role": "user", "content": 1}], [{"role": "user", "content": []}],
                             [{"role": "user", "content": [{"type": "poem"}]}], [{"role": "user", "content": [{"type": "tool_result"}]}],
                             [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": 1}]}])),
    "system": Field(STRING, wrong=([1], [{"type": "poem"}], [{"type": "text", "text": 1}])),
    "max_tokens": UNSIGNED,
    "stop_sequences": Field(wrong=([""], ["a"] * 1000, ["a" * 5000], ["\0"], [1], [None])),
    "tools": Field(wrong=([1], [None], [{"name": "f"}], [{"name": 1, "input_schema": {}}], [{"name": "f", "input_schema": 1}])),
    "tool_choice": Field(wrong=({"type": "must"}, {"type": "tool"}, {"type": "tool", "name": "g"}, {"type": "auto", "disable_parallel_tool_use": 1}),
                         more={"tools": [{"name": "f", "input_schema": {"type": "object"}}]}),
    "thinking": Field(wrong=({"type": "hard"}, {"type": 1})),
    "output_config": Field(OBJECT),
    "output_config.effort": TEXT,
    "output_config.format": Field(wrong=({"type": "poem"}, {"type": "json_schema"}, {"type": "json_schema", "schema": {"type": "poem"}})),
    "model": TEXT,
    "prompt_cache_key": TEXT,
    "cache_control": Field(wrong=({}, {"type": "eternal"}, {"type": 1}, {"type": "ephemeral", "ttl": "soon"})),
    "diagnostics": Field(OBJECT),
    "diagnostics.previous_message_id": TEXT,
    "prompt_cache_options": Field(OBJECT),
    "chat_template_kwargs": Field(OBJECT, wrong=({"messages": []}, {"tools": []})),
} | {f"prompt_cache_options.{k}": f for k, f in CACHE.items()}  # fmt: skip
LLAMA = SAMPLING | PENALTIES | {
    "n": Field(INT, wrong=(0, -1, 100_000, *HUGE)),
    "n_predict": Field(INT, wrong=(-3, *HUGE)),
    "max_tokens": UNSIGNED,
    "n_probs": Field(INT, wrong=(-1, 21, *HUGE)),
    "repeat_penalty": Field(NUMBER, wrong=(0, -1, 1e9)),
    "logit_bias": Field(wrong=(*BIAS.wrong, [[320, 1]], [[5, "a"]], [[5]], [5], [None], [[None, 1]], [[5, None]], [[{}, 1]])),
    "stop": STOP,
    "ignore_eos": FLAG,
    "cache_prompt": FLAG,
    "return_tokens": FLAG,
    "json_schema": SCHEMA,
    "grammar": GBNF,
}  # fmt: skip
COMPLETION = LLAMA | {"prompt": COMPLETIONS["prompt"]}
INFILL = LLAMA | {
    "input_prefix": TEXT,
    "input_suffix": TEXT,
    "input_extra": Field(wrong=([1], [None], [{}], [{"text": 1}], [{"text": "a", "filename": 1}])),
    "prompt": TEXT,
}
TOKENIZE = {
    "content": TEXT,
    "prompt": TEXT,
    "messages": CHAT["messages"],
    "tools": TOOLS,
    "chat_template_kwargs": CHAT["chat_template_kwargs"],
    "add_generation_prompt": FLAG,
    "add_special": FLAG,
    "add_special_tokens": FLAG,
    "parse_special": FLAG,
    "with_pieces": FLAG,
}
DETOKENIZE = {"tokens": IDS}
EMBEDDINGS = {
    "input": Field(STRING, wrong=([], "", [""], [[]], [320], [-1], [2**32 + 5], [5, 5.5], [5, "a"], ["a", 5], ["a", None], [None])),
    "encoding_format": Field(wrong=("hex",)),
    "dimensions": Field(INT, wrong=(0, -1, 100_000, *HUGE)),
    "model": TEXT,
    "user": TEXT,
}
RERANK = {
    "query": Field(STRING, wrong=("",)),
    "documents": Field(ARRAY, wrong=([], [5], [None], [["a"]], [{}], [{"text": 5}], ["a", 5], ["a"] * 2049)),
    "top_n": Field(INT, wrong=(0, -1, *HUGE)),
    "return_documents": FLAG,
    "model": TEXT,
}

USER = [{"role": "user", "content": "a"}]
ROUTES = {
    "/v1/chat/completions": (CHAT, {"messages": USER, "max_tokens": 1}),
    "/v1/completions": (COMPLETIONS, {"prompt": [5], "max_tokens": 1}),
    "/v1/responses": (RESPONSES, {"input": "a", "max_output_tokens": 1}),
    "/v1/messages": (MESSAGES, {"messages": USER, "max_tokens": 1}),
    "/completion": (COMPLETION, {"prompt": [5], "n_predict": 1}),
    "/infill": (INFILL, {"input_prefix": "a", "input_suffix": "b", "n_predict": 1}),
    "/tokenize": (TOKENIZE, {}),
    "/detokenize": (DETOKENIZE, {"tokens": [5]}),
    "/v1/embeddings": (EMBEDDINGS, {"input": "a"}),
    "/v1/rerank": (RERANK, {"query": "a", "documents": ["a"]}),
}
# Fields of tokenize exclude one another: what makes this one be looked at.
ONLY_WITH_MESSAGES = ("messages", "tools", "chat_template_kwargs", "add_generation_prompt")


@pytest.fixture(scope="module")
def servers(tiny_model):
    """One that generates, one that embeds, one that ranks."""
    with contextlib.ExitStack() as stack:
        of = {m: stack.enter_context(serving("-m", m, "--cache-ram", "64M")) for m in (tiny_model, EMBEDDER, RANKER)}
        models = {"/v1/embeddings": EMBEDDER, "/v1/rerank": RANKER}
        yield lambda path: of[models.get(path, tiny_model)]


def body_with(path, name, value, field):
    body = ROUTES[path][1] | field.more
    if path == "/tokenize":
        body = {"messages": USER} if name in ONLY_WITH_MESSAGES else {"content": "a"} if name != "prompt" else {}
    outer, _, inner = name.partition(".")
    return body | {outer: {inner: value} if inner else value}


def names(answer, name):
    """The error tells the field: OpenAI's form as param, Anthropic's in its sentence."""
    error = answer.json["error"]
    param = error.get("param") or ""
    inside = param == name or param.startswith((name + ".", name + "["))
    return inside if "param" in error else name in error["message"]


@pytest.mark.parametrize("path", ROUTES)
def test_wrong_values(servers, path):
    server, wrong = servers(path), []
    for name, field in ROUTES[path][0].items():
        for value in field.bad_values():
            answer = server.post(path, body_with(path, name, value, field))
            if answer.status != 400 or not names(answer, name):
                wrong.append(f"{name} = {str(value)[:60]!r}: {answer}")
    assert not wrong, "\n".join(wrong)
    assert server.get("/health").status == 200


@pytest.mark.parametrize("path", ROUTES)
def test_null_is_like_absent(servers, path):
    server = servers(path)
    fields, body = ROUTES[path]
    if path == "/tokenize":
        body = {"content": "a"}
    nothing = {name: None for name in fields if "." not in name}
    answer = server.post(path, nothing | body)
    plain = server.post(path, body)
    assert answer.status == plain.status, answer  # /infill: this model cannot
