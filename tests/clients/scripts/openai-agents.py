# /// script
# dependencies = ["openai-agents==0.24.0"]
# ///
"""OpenAI's Agents SDK, over responses and over chat."""

from agents import Agent as OpenAIAgent
from agents import (
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel, Field

from check import URL, Agent, check

set_tracing_disabled(True)
KINDS = {"responses": OpenAIResponsesModel, "chat": OpenAIChatCompletionsModel}
BRIEF = ModelSettings(max_tokens=60, temperature=0)


class River(BaseModel):
    long: bool
    km: int = Field(ge=1, le=9)


@function_tool
def length(river: str) -> str:
    """Tells the length of a river."""
    return f"{river}: 1012 km"


def agent(kind, url=URL, **more):
    client = AsyncOpenAI(base_url=url + "/v1", api_key="any")
    return OpenAIAgent("a", instructions="Be brief.", model=KINDS[kind]("local", client), **more)


for kind in KINDS:

    @check(f"{kind}: a run and a stream")
    async def _():
        whole = await Runner.run(agent(kind, model_settings=BRIEF), "Say only: yes")
        assert whole.final_output
        stream = Runner.run_streamed(agent(kind, model_settings=BRIEF), "Say only: yes")
        events = [e.type async for e in stream.stream_events()]
        assert stream.final_output and "raw_response_event" in events

    @check(f"{kind}: an object by its schema")
    async def _():
        got = await Runner.run(agent(kind, output_type=River, model_settings=BRIEF), "The Loire?")
        assert isinstance(got.final_output, River)

    for streamed in (False, True):

        @check(f"{kind}: a tool is called, and its result answered{', streamed' if streamed else ''}")
        async def _():
            call = '<tool_call>\n{"name": "length", "arguments": {"river": "Loire"}}\n</tool_call>'
            with Agent(call, "It is 1012 km long.") as script:
                works = agent(kind, script.url, tools=[length])
                if streamed:
                    run = Runner.run_streamed(works, "How long?")
                    async for _ in run.stream_events():
                        pass
                else:
                    run = await Runner.run(works, "How long?")
                assert run.final_output == "It is 1012 km long."
