# /// script
# dependencies = ["litellm==1.110.2"]
# ///
"""LiteLLM, as a library: openai/… and anthropic/…"""

import asyncio

import litellm
from pydantic import BaseModel

from check import QUESTION, URL, check

ASK = [{"role": "user", "content": QUESTION}]
WAYS = {
    "openai": {"model": "openai/local", "api_base": URL + "/v1"},
    "hosted_vllm": {"model": "hosted_vllm/local", "api_base": URL + "/v1"},
    "anthropic": {"model": "anthropic/local", "api_base": URL},
}
TOOL = {
    "type": "function",
    "function": {
        "name": "river",
        "parameters": {
            "type": "object",
            "properties": {"long": {"type": "boolean"}},
            "required": ["long"],
            "additionalProperties": False,
        },
    },
}


class River(BaseModel):
    long: bool


for name, way in WAYS.items():
    way = way | {"api_key": "any", "max_tokens": 60}

    @check(f"{name}: whole and streamed, usage with cached tokens")
    def _():
        whole = litellm.completion(messages=ASK, **way)
        assert whole.choices[0].message.content
        again = litellm.completion(messages=ASK, **way)
        assert again.usage.prompt_tokens_details.cached_tokens == again.usage.prompt_tokens - 1
        parts = list(litellm.completion(messages=ASK, stream=True, **way))
        assert "".join(p.choices[0].delta.content or "" for p in parts)
        assert parts[-1].choices[0].finish_reason in ("stop", "length")

    @check(f"{name}: a tool that must be called, streamed too")
    def _():
        more = way | {"tools": [TOOL], "tool_choice": "required"}
        [call] = litellm.completion(messages=ASK, **more).choices[0].message.tool_calls
        assert call.function.name == "river" and "long" in call.function.arguments
        parts = list(litellm.completion(messages=ASK, stream=True, **more))
        built = litellm.stream_chunk_builder(parts, messages=ASK)
        assert built.choices[0].message.tool_calls[0].function.name == "river"

    @check(f"{name}: a schema")
    def _():
        a = litellm.completion(messages=ASK, response_format=River, **way)
        assert River.model_validate_json(a.choices[0].message.content)

    @check(f"{name}: a full context is a ContextWindowExceededError")
    def _():
        long = [{"role": "user", "content": "word " * 20000}]
        try:
            litellm.completion(messages=long, **way)
        except litellm.ContextWindowExceededError:
            return
        raise AssertionError("no error")


@check("text_completion, and async")
def _():
    assert litellm.text_completion(prompt="The sun is", **WAYS["openai"], api_key="any", max_tokens=8).choices
    a = asyncio.run(litellm.acompletion(messages=ASK, **WAYS["openai"], api_key="any", max_tokens=8))
    assert a.choices[0].message.content


@check("responses")
def _():
    a = litellm.responses(input=QUESTION, **WAYS["openai"], api_key="any", max_output_tokens=16)
    assert a.output[0].content[0].text
