"""What users of OpenAI's Responses rely on, through the Python SDK."""

import json

import openai
import pytest
from pydantic import BaseModel, Field

from program import eventually


def respond(client, text="Name three rivers of France.", **fields):
    fields = {"model": "default", "max_output_tokens": 24, "temperature": 0} | fields
    return client.responses.create(input=text, **fields)


def test_answer(client):
    r = respond(client, instructions="Be brief.", metadata={"k": "v"})
    assert r.object == "response" and r.id.startswith("resp_") and r.created_at
    assert r.output_text and r.output[0].role == "assistant"
    assert r.status == "incomplete" and r.incomplete_details.reason == "max_output_tokens"
    assert r.instructions == "Be brief." and r.metadata == {"k": "v"} and r.temperature == 0
    assert r.text.format.type == "text" and r.tool_choice == "auto" and r.tools == []
    assert r.usage.total_tokens == r.usage.input_tokens + r.usage.output_tokens
    again = respond(client, instructions="Be brief.")
    assert again.output_text == r.output_text
    assert again.usage.input_tokens_details.cached_tokens == r.usage.input_tokens - 1


def test_stream_is_the_answer_in_order(client):
    whole = respond(client)
    events = list(respond(client, stream=True))
    types = [e.type for e in events]
    assert types[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert types[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    assert set(types[4:-4]) == {"response.output_text.delta"}
    assert [e.sequence_number for e in events] == list(range(len(events)))
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == whole.output_text == events[-1].response.output_text == events[-4].text
    assert {e.item_id for e in events[4:-3]} == {events[2].item.id}


def test_stream_helper(client):
    with client.responses.stream(model="default", input="Say only: yes", temperature=0) as s:
        text = "".join(e.delta for e in s if e.type == "response.output_text.delta")
        final = s.get_final_response()
    assert final.status == "completed" and final.output_text == text
    assert client.responses.retrieve(final.id).output_text == text


def test_items_in_every_form(client):
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"x": 1}'}
    result = {"type": "function_call_output", "call_id": "c1", "output": "42"}
    r = respond(
        client,
        [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "What is f of 1?"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
            call,
            result,
            {"role": "assistant", "content": [{"type": "output_text", "text": "42", "annotations": []}]},
            {"role": "user", "content": "And of 2?"},
        ],
        tools=[
            {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}},
            {"type": "web_search"},
        ],
    )
    assert r.output and r.tools[0].name == "f"


def test_parse(client):
    class River(BaseModel):
        long: bool
        km: int = Field(ge=1, le=9)

    r = client.responses.parse(model="default", input="The Loire?", text_format=River, temperature=0)
    assert isinstance(r.output_parsed, River) and r.text.format.type == "json_schema"


def test_tool_call_and_its_result(client):
    schema = {"type": "object", "properties": {"long": {"type": "boolean"}}, "required": ["long"]}
    tool = {"type": "function", "name": "river", "strict": True, "parameters": schema | {"additionalProperties": False}}
    question = {"role": "user", "content": "Is the Loire long?"}
    r = respond(client, [question], tools=[tool], tool_choice="required", max_output_tokens=100)
    call = r.output[-1]
    assert call.type == "function_call" and call.name == "river" and "long" in json.loads(call.arguments)
    events = list(respond(client, [question], tools=[tool], tool_choice="required", max_output_tokens=100, stream=True))
    done = next(e for e in events if e.type == "response.function_call_arguments.done")
    deltas = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == done.arguments == call.arguments
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "1012 km"}
    assert respond(client, [result], previous_response_id=r.id, tools=[tool]).output


def test_conversation_goes_on(client):
    first = respond(client, "My name is Ada.")
    second = respond(client, "What is my name?", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    # All of the first turn is in the prompt, and nearly all of it came from the cache.
    assert second.usage.input_tokens > first.usage.total_tokens
    assert second.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens
    items = list(client.responses.input_items.list(second.id, order="asc", limit=2))
    assert [i.role for i in items] == ["user", "assistant", "user"]
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError) as e:
        respond(client, "What?", previous_response_id=first.id)
    assert e.value.code == "previous_response_not_found"


def test_what_is_not_stored(client):
    r = respond(client, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(r.id)


def test_tenants_do_not_share_responses(keyed):
    ann = openai.OpenAI(base_url=keyed.url + "/v1", api_key="key-of-ann", max_retries=0)
    bob = openai.OpenAI(base_url=keyed.url + "/v1", api_key="key-of-bob", max_retries=0)
    r = respond(ann, "mine", max_output_tokens=4)
    assert ann.responses.retrieve(r.id).id == r.id
    with pytest.raises(openai.NotFoundError):
        bob.responses.retrieve(r.id)
    with pytest.raises(openai.BadRequestError):
        respond(bob, "whose?", previous_response_id=r.id)


def test_count(client):
    n = client.responses.input_tokens.count(model="default", input="Hello.").input_tokens
    assert n == respond(client, "Hello.").usage.input_tokens


def test_full_context(client):
    with pytest.raises(openai.BadRequestError) as e:
        respond(client, "word " * 20000)
    assert e.value.code == "context_length_exceeded"
    events = list(respond(client, "word " * 20000, stream=True))
    assert events[-1].type == "response.failed"
    assert events[-1].response.error.code == "context_length_exceeded"


def test_bad_requests(client):
    for fields in (
        {"background": True},
        {"temperature": 1000},
        {"tool_choice": {"type": "web_search"}},
        {"input": []},
        {"input": [{"type": "item_reference", "id": "x"}]},
    ):
        with pytest.raises(openai.BadRequestError) as e:
            client.responses.create(**{"model": "default", "input": "x"} | fields)
        assert e.value.param and e.value.code


def test_leaving_cancels(server, client):
    before = server.metrics()["num_requests_running"]
    stream = respond(client, "Tell a long story.", stream=True, max_output_tokens=2000)
    for event in stream:
        if event.type == "response.output_text.delta":
            break
    stream.close()
    assert eventually(lambda: server.metrics()["num_requests_running"] == before)
