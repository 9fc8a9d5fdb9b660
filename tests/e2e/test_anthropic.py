"""What users of Anthropic's Python SDK rely on, through that SDK."""

import anthropic
import pytest
from anthropic import Anthropic

QUESTION = [{"role": "user", "content": "Name three rivers of France."}]


@pytest.fixture(scope="session")
def claude(server):
    return Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=120)


def ask(claude, messages=QUESTION, **fields):
    greedy = {"temperature": 0} | fields.pop("extra_body", {})
    fields = {"model": "default", "max_tokens": 24} | fields
    return claude.messages.create(messages=messages, extra_body=greedy, **fields)


def total(usage):
    return usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens


def test_message(claude):
    m = ask(claude)
    assert m.type == "message" and m.role == "assistant" and m.id.startswith("msg_") and m.model
    assert m.content[0].type == "text" and m.content[0].text
    assert m.stop_reason in ("end_turn", "max_tokens") and m.stop_sequence is None
    again = ask(claude)
    assert again.content[0].text == m.content[0].text
    assert again.usage.input_tokens == 1 and total(again.usage) == total(m.usage)
    assert again.usage.cache_read_input_tokens == total(m.usage) - 1


def test_stream_says_the_same(claude):
    whole = ask(claude)
    events = list(ask(claude, stream=True))
    types = [e.type for e in events]
    assert types[:2] == ["message_start", "content_block_start"]
    assert types[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(types[2:-3]) == {"content_block_delta"}
    text = "".join(e.delta.text for e in events if e.type == "content_block_delta")
    assert text == whole.content[0].text
    first, last = events[0].message.usage, events[-2].usage
    assert (first.input_tokens, first.cache_read_input_tokens) == (1, last.cache_read_input_tokens)
    assert events[-2].usage.output_tokens == whole.usage.output_tokens


def test_stream_helper(claude):
    with claude.messages.stream(model="default", max_tokens=24, messages=QUESTION) as s:
        text = "".join(s.text_stream)
        final = s.get_final_message()
    assert final.content[0].text == text and final.stop_reason
    assert total(final.usage) == claude.messages.count_tokens(model="m", messages=QUESTION).input_tokens


def test_same_model_as_openai(claude, client):
    other = client.chat.completions.create(model="default", messages=QUESTION, max_tokens=24, temperature=0)
    assert ask(claude).content[0].text == other.choices[0].message.content


def test_stop_sequence(claude):
    text = ask(claude).content[0].text
    word = text.split()[2]
    m = ask(claude, stop_sequences=["@@@", word])
    assert m.stop_reason == "stop_sequence" and m.stop_sequence == word
    assert m.content[0].text == text[: text.index(word)]


def test_system_and_blocks(claude):
    cache = {"type": "ephemeral", "ttl": "1h"}
    blocks = [{"type": "text", "text": "Be brief.", "cache_control": cache}]
    a = ask(claude, system="Be brief.")
    b = ask(claude, [{"role": "user", "content": [{"type": "text", "text": QUESTION[0]["content"]}]}], system=blocks)
    assert a.content[0].text == b.content[0].text and total(a.usage) == total(b.usage)


def test_labels_of_clients_do_not_move_the_prompt(claude):
    def system(session):
        return [
            {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2; cch={session};"},
            {"type": "text", "text": "You are a helpful agent. " * 30},
        ]

    first = ask(claude, system=system("a1"))
    second = ask(claude, system=system("b2"))
    assert second.usage.input_tokens == 1 and total(first.usage) == total(second.usage)


def test_tools_in_history(claude):
    tool = {"name": "river", "description": "Its length.", "input_schema": {"type": "object", "properties": {}}}
    use = {"type": "tool_use", "id": "toolu_1", "name": "river", "input": {"name": "Loire"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "1012 km"}]}
    m = ask(
        claude,
        QUESTION
        + [{"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "x"}, use]}]
        + [{"role": "user", "content": [result, {"type": "text", "text": "So?"}]}],
        tools=[tool],
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
        thinking={"type": "disabled"},
    )
    assert m.content


def test_tool_use(claude):
    schema = {"type": "object", "properties": {"long": {"type": "boolean"}}, "required": ["long"]}
    tool = {"name": "river", "input_schema": schema | {"additionalProperties": False}}
    for choice in ({"type": "any"}, {"type": "tool", "name": "river"}):
        m = ask(claude, tools=[tool], tool_choice=choice, max_tokens=100)
        use = m.content[-1]
        assert m.stop_reason == "tool_use" and use.type == "tool_use" and use.name == "river"
        assert isinstance(use.input["long"], bool)
    with claude.messages.stream(
        model="default", max_tokens=100, messages=QUESTION, tools=[tool], tool_choice={"type": "any"}
    ) as s:
        streamed = s.get_final_message()
    assert isinstance(streamed.content[-1].input["long"], bool)


def test_diagnostics(claude):
    """Turns that go on have nothing to say; what changes in what came before is named, and costs."""
    system = "You know all about rivers. " * 20
    tool = {"name": "river", "description": "Its length.", "input_schema": {"type": "object"}}

    def turn(previous, messages=QUESTION, **more):
        more = {"system": system, "tools": [tool]} | more
        return ask(claude, messages, diagnostics={"previous_message_id": previous}, **more)

    first = turn(None)
    assert first.diagnostics is None
    answer = {"role": "assistant", "content": first.content}
    more = [*QUESTION, answer, {"role": "user", "content": "And of Spain?"}]
    second = turn(first.id, more)
    assert second.diagnostics is None and second.usage.cache_read_input_tokens >= total(first.usage) - 1
    other = [{"role": "user", "content": "Name three lakes of France."}, *more[1:]]
    for reason, change in (
        ("messages_changed", {"messages": other}),
        ("system_changed", {"messages": more, "system": "No. " + system}),
        ("tools_changed", {"messages": more, "tools": [tool | {"name": "lake"}]}),
    ):
        m = turn(second.id, **change)
        why = m.diagnostics.cache_miss_reason
        assert why.type == reason
        assert 0 < why.cache_missed_input_tokens <= total(second.usage) - m.usage.cache_read_input_tokens
    assert turn("msg_0").diagnostics.cache_miss_reason.type == "previous_message_not_found"


def test_prefill(claude):
    whole = ask(claude).content[0].text
    begun = ask(claude, QUESTION + [{"role": "assistant", "content": whole[:9]}])
    assert begun.content[0].text and begun.stop_reason


def test_errors_by_class(claude, keyed):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    for messages, word in (
        ([], "messages"),
        ([{"role": "robot", "content": "x"}], "robot"),
        ([{"role": "user", "content": [image]}], "text only"),
        ([{"role": "user", "content": "word " * 20000}], "prompt is too long"),
    ):
        with pytest.raises(anthropic.BadRequestError) as e:
            ask(claude, messages)
        assert word in str(e.value) and e.value.request_id.startswith("req_")
        assert e.value.body["error"]["type"] == "invalid_request_error"
    stranger = Anthropic(base_url=keyed.url, api_key="wrong", max_retries=0)
    with pytest.raises(anthropic.AuthenticationError):
        ask(stranger)
    assert ask(Anthropic(base_url=keyed.url, api_key="key-of-ann", max_retries=0), max_tokens=2).content


def test_models(claude):
    [model] = claude.models.list().data
    assert model.type == "model" and model.display_name == model.id and model.created_at.year >= 2024
    assert claude.models.retrieve(model.id) == model
    with pytest.raises(anthropic.NotFoundError) as e:
        claude.models.retrieve("nothing")
    assert e.value.body["error"]["type"] == "not_found_error"


def test_missing_max_tokens(server):
    a = server.post("/v1/messages?beta=true", {"model": "m", "messages": QUESTION})
    assert a.status == 400 and a.json["type"] == "error" and "max_tokens" in a.error["message"]
    assert a.json["request_id"] == a.headers["request-id"]


def test_probe(server):
    assert server.request("HEAD", "/").status == 200
