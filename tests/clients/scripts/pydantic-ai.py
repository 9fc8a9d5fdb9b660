# /// script
# dependencies = ["pydantic-ai-slim[openai,anthropic]==2.68.0"]
# ///
"""Pydantic AI: agents over chat, responses and messages."""

from pydantic import BaseModel, Field
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import NativeOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from check import QUESTION, URL, Agent, check


class River(BaseModel):
    long: bool
    km: int = Field(ge=1, le=9)


def models(url):
    openai = OpenAIProvider(base_url=url + "/v1", api_key="any")
    return {
        "chat": OpenAIChatModel("local", provider=openai),
        "responses": OpenAIResponsesModel("local", provider=openai),
        "messages": AnthropicModel("local", provider=AnthropicProvider(base_url=url, api_key="any")),
    }


BRIEF = {"max_tokens": 60, "temperature": 0}

for name in models(URL):

    @check(f"{name}: a run and a stream")
    async def _():
        agent = PydanticAgent(models(URL)[name], model_settings=BRIEF)
        whole = await agent.run(QUESTION)
        assert whole.output and whole.usage.input_tokens
        async with agent.run_stream(QUESTION) as stream:
            assert await stream.get_output()

    @check(f"{name}: an object by a tool")
    async def _():
        agent = PydanticAgent(models(URL)[name], output_type=River, model_settings=BRIEF)
        assert isinstance((await agent.run("The Loire?")).output, River)

    @check(f"{name}: a tool is called, and its result answered")
    async def _():
        call = '<tool_call>\n{"name": "length", "arguments": {"river": "Loire"}}\n</tool_call>'
        with Agent(call, "It is 1012 km long.") as script:
            agent = PydanticAgent(models(script.url)[name])

            @agent.tool_plain
            def length(river: str) -> str:
                """Tells the length of a river."""
                return f"{river}: 1012 km"

            run = await agent.run("How long is the Loire?")
            assert run.output == "It is 1012 km long." and run.usage.tool_calls == 1


@check("chat: an object by a schema")
async def _():
    agent = PydanticAgent(models(URL)["chat"], output_type=NativeOutput(River), model_settings=BRIEF)
    assert isinstance((await agent.run("The Loire?")).output, River)
