"""Agents' loops from end to end: a model calls tools in the dialect of its template, is told their
results, and answers. What the models say is what published ones do (scripted.py), cut into tokens at
any byte; all else is real. What must come out does not depend on the dialect."""

import json

import anthropic
import openai
import pytest

from program import cached, serving
from scripted import chatml, scripted_model

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
TOOL = {"name": "get_weather", "description": "Tells the weather.", "parameters": SCHEMA}
TOOLS = [{"type": "function", "function": TOOL}]
QUESTION = {"role": "user", "content": "What will the weather be?"}
FIRST, SECOND = {"city": 'Par"is é €', "days": 3}, {"city": "R<o>me 🐸", "days": 4}
A, B = (json.dumps(c, ensure_ascii=False) for c in (FIRST, SECOND))
ANSWER = "Sun: 21 °C 🌞."
BAR, LOW = "\uff5c", "\u2581"


def mark(text):
    """A special token of DeepSeek's."""
    return f"<{BAR}tool{LOW}{text}{BAR}>"


def tagged(tag, *calls):
    return "".join(f"<{tag}>\n{c}\n</{tag}>\n" for c in calls)


def named(arguments, key="arguments"):
    return f'{{"name": "get_weather", "{key}": {arguments}}}'


def keyed(call, end, key, value, value_end):
    """Two calls whose arguments are tags."""
    return "".join(
        f"{call}{''.join(f'{key % k}{value}{v}{value_end}' for k, v in c.items())}{end}" for c in (FIRST, SECOND)
    )


# What a template has that it is recognised by; special tokens; what the model says; whether it
# reasons, talks, and how many calls it makes.
DIALECTS = {
    "hermes": ("<tool_call>{{ f | tojson }}</tool_call>", [], "SAY\n" + tagged("tool_call", named(A), named(B)), "C2"),
    "hermes, reasoning": (
        "<think></think><tool_call>{{ f | tojson }}</tool_call>",
        ["<think>", "</think>", "<tool_call>", "</tool_call>"],
        "<think>\nWHY\n</think>\n\nSAY\n" + tagged("tool_call", named(A)),
        "RC1",
    ),
    "qwen3-coder": (
        "<tool_call><function={{ f.name }}><parameter=x></tool_call>",
        ["<tool_call>", "</tool_call>"],
        "SAY\n\n"
        + keyed(
            "<tool_call>\n<function=get_weather>\n",
            "</function>\n</tool_call>\n",
            "<parameter=%s>\n",
            "",
            "\n</parameter>\n",
        ),
        "C2",
    ),
    "glm": (
        "<tool_call>{{ f.name }}<arg_key><arg_value></tool_call>",
        ["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"],
        keyed(
            "<tool_call>get_weather\n", "</tool_call>\n", "<arg_key>%s</arg_key>\n<arg_value>", "", "</arg_value>\n"
        ),
        "2",
    ),
    "minimax-m2": (
        '<minimax:tool_call><invoke name="{{ f.name }}"></minimax:tool_call>',
        ["<minimax:tool_call>", "</minimax:tool_call>"],
        "SAY\n<minimax:tool_call>\n"
        + keyed('<invoke name="get_weather">\n', "</invoke>\n", '<parameter name="%s">', "", "</parameter>\n")
        + "</minimax:tool_call>",
        "C2",
    ),
    "llama3": (
        '<|start_header_id|>ipython{"name": "{{ f.name }}", "parameters": {}}',
        ["<|start_header_id|>", "<|python_tag|>"],
        named(A, "parameters"),
        "1",
    ),
    "pythonic": (
        "[func_name1(params)]{{ f.name }}",
        [],
        "[get_weather(city='Par\"is é €', days=3), get_weather(city=\"R<o>me 🐸\", days=4)]",
        "2",
    ),
    "lfm2": (
        "<|tool_call_start|>{{ f.name }}<|tool_call_end|>",
        ["<|tool_call_start|>", "<|tool_call_end|>"],
        "SAY<|tool_call_start|>[get_weather(city='Par\"is é €', days=3)]<|tool_call_end|>",
        "C1",
    ),
    "gemma4": (
        "<|tool_call>{{ f.name }}<tool_call|>",
        ["<|tool_call>", "<tool_call|>", '<|"|>'],
        '<|tool_call>call:get_weather{city:<|"|>Par"is é €<|"|>,days:3}<tool_call|>',
        "1",
    ),
    "mistral": (
        "[TOOL_CALLS]{{ f.name }}[ARGS]",
        ["[TOOL_CALLS]", "[ARGS]"],
        f"SAY[TOOL_CALLS]get_weather[ARGS]{A}[TOOL_CALLS]get_weather[ARGS]{B}",
        "C2",
    ),
    "mistral-nemo": (
        "[TOOL_CALLS]{{ f | tojson }}",
        ["[TOOL_CALLS]"],
        f"[TOOL_CALLS][{named(A)}, {named(B)}]",
        "2",
    ),
    "deepseek-v3.1": (
        mark("sep") + "{{ f.name }}",
        [mark(f"calls{LOW}begin"), mark(f"calls{LOW}end"), mark(f"call{LOW}begin"), mark(f"call{LOW}end"), mark("sep")],
        "SAY"
        + mark(f"calls{LOW}begin")
        + "".join(f"{mark(f'call{LOW}begin')}get_weather{mark('sep')}{c}{mark(f'call{LOW}end')}" for c in (A, B))
        + mark(f"calls{LOW}end"),
        "C2",
    ),
    "kimi-k2": (
        "<|tool_call_argument_begin|>{{ f.name }}",
        [
            "<|tool_calls_section_begin|>",
            "<|tool_calls_section_end|>",
            "<|tool_call_begin|>",
            "<|tool_call_argument_begin|>",
            "<|tool_call_end|>",
        ],
        "SAY<|tool_calls_section_begin|>"
        + "".join(
            f"<|tool_call_begin|>functions.get_weather:{i}<|tool_call_argument_begin|>{c}<|tool_call_end|>"
            for i, c in enumerate((A, B))
        )
        + "<|tool_calls_section_end|>",
        "C2",
    ),
    "granite": ("<|tool_call|>{{ f | tojson }}", ["<|tool_call|>"], f"<|tool_call|>[{named(A)}]", "1"),
    "command-r7b": (
        "<|START_ACTION|>{{ f.name }}<|END_ACTION|>",
        ["<|START_ACTION|>", "<|END_ACTION|>"],
        f'<|START_ACTION|>[\n {{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {A}}},\n'
        f' {{"tool_call_id": "1", "tool_name": "get_weather", "parameters": {B}}}\n]<|END_ACTION|>',
        "2",
    ),
    "harmony": (
        "<|start|>assistant<|channel|>analysis to=functions.{{ f.name }}<|message|>",
        ["<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"],
        "<|channel|>analysis<|message|>WHY<|end|><|start|>assistant<|channel|>commentary "
        f"to=functions.get_weather <|constrain|>json<|message|>{A}<|call|>",
        "R1",
    ),
    "generic": ("{{ f.name }}", [], tagged("tool_call", named(A)), "1"),
}


@pytest.fixture(scope="module", params=DIALECTS)
def dialect(request, tmp_path_factory):
    """A server, and what its model's first turn is."""
    call, specials, said, makes = DIALECTS[request.param]
    answer = f"<|channel|>final<|message|>{ANSWER}<|return|>" if request.param == "harmony" else ANSWER
    path = tmp_path_factory.mktemp("scripted") / "scripted.gguf"
    model = scripted_model(path, [said, answer], template=chatml(call), specials=specials)
    with serving("-m", model, "--cache-ram", "128M") as server:
        yield server, makes


def expected(makes):
    """(reasoning, content, arguments of its calls)"""
    return ("WHY" if "R" in makes else None, "SAY" if "C" in makes else None, [FIRST, SECOND][: int(makes[-1])])


def told(message):
    """The same of an answer."""
    calls = message.get("tool_calls") or []
    assert len({c["id"] for c in calls}) == len(calls)
    assert all(c["type"] == "function" and c["function"]["name"] == "get_weather" for c in calls)
    content = (message["content"] or "").strip()
    reasoning = (message.get("reasoning_content") or "").strip()
    return reasoning or None, content or None, [json.loads(c["function"]["arguments"]) for c in calls]


def results(message):
    return [{"role": "tool", "tool_call_id": c["id"], "content": "21 °C"} for c in message["tool_calls"]]


def test_chat(dialect):
    server, makes = dialect
    ask = {"messages": [QUESTION], "tools": TOOLS}
    first = server.post("/v1/chat/completions", ask).json
    message, choice = first["choices"][0]["message"], first["choices"][0]
    assert told(message) == expected(makes) and choice["finish_reason"] == "tool_calls"
    history = [QUESTION, message, *results(message)]
    second = server.post("/v1/chat/completions", {"messages": history, "tools": TOOLS}).json
    assert told(second["choices"][0]["message"])[1:] == (ANSWER, [])
    assert second["choices"][0]["finish_reason"] == "stop"
    assert cached(second) >= first["usage"]["prompt_tokens"] - 1


def test_chat_strict(dialect):
    """What a model says in its dialect's own form is what the grammar of strict tools expects."""
    server, makes = dialect
    ask = {"messages": [QUESTION], "tools": [{"type": "function", "function": TOOL | {"strict": True}}]}
    answer = server.post("/v1/chat/completions", ask).json
    assert told(answer["choices"][0]["message"]) == expected(makes)


def test_chat_streamed(dialect):
    server, makes = dialect
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    with client.chat.completions.stream(model="local", messages=[QUESTION], tools=TOOLS) as stream:
        final = stream.get_final_completion().choices[0]
    assert told(final.message.to_dict()) == expected(makes) and final.finish_reason == "tool_calls"


def test_responses(dialect):
    server, makes = dialect
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    ask = {"model": "local", "tools": [{"type": "function"} | TOOL]}
    with client.responses.stream(input=[QUESTION], **ask) as stream:
        first = stream.get_final_response()
    calls = [i for i in first.output if i.type == "function_call"]
    assert [json.loads(c.arguments) for c in calls] == expected(makes)[2]
    assert first.output_text.strip() == (expected(makes)[1] or "")
    outputs = [{"type": "function_call_output", "call_id": c.call_id, "output": "21 °C"} for c in calls]
    second = client.responses.create(input=outputs, previous_response_id=first.id, **ask)
    assert second.output_text == ANSWER
    assert second.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens - 1


def test_messages(dialect):
    server, makes = dialect
    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    tool = {"name": "get_weather", "input_schema": SCHEMA}
    ask = {"model": "local", "max_tokens": 1000, "tools": [tool]}
    with client.messages.stream(messages=[QUESTION], **ask) as stream:
        first = stream.get_final_message()
    uses = [b for b in first.content if b.type == "tool_use"]
    assert first.stop_reason == "tool_use" and [u.input for u in uses] == expected(makes)[2]
    history = [QUESTION, {"role": "assistant", "content": [b.to_dict() for b in first.content]}]
    blocks = [{"type": "tool_result", "tool_use_id": u.id, "content": "21 °C"} for u in uses]
    second = client.messages.create(messages=[*history, {"role": "user", "content": blocks}], **ask)
    assert second.content[-1].text == ANSWER and second.stop_reason == "end_turn"
    before = first.usage.input_tokens + first.usage.cache_read_input_tokens
    assert second.usage.cache_read_input_tokens >= before - 1
