# /// script
# dependencies = ["langchain-openai==1.7.4", "langchain-anthropic==1.7.10", "langgraph==1.2.24",
#                 "langchain==1.5.2"]
# ///
"""LangChain and LangGraph, over all three APIs."""

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel

from check import QUESTION, URL, Agent, check

OPENAI = {"base_url": URL + "/v1", "api_key": "any", "model": "local", "temperature": 0}


class River(BaseModel):  # without bounds, which do not reach Messages: clients take them out
    """A river."""

    long: bool


@tool
def length(river: str) -> str:
    """Tells the length of a river."""
    return f"{river}: 1012 km"


MODELS = {
    "chat": ChatOpenAI(**OPENAI, max_tokens=40, stream_usage=True),
    "responses": ChatOpenAI(**OPENAI, max_tokens=40, use_responses_api=True),
    "messages": ChatAnthropic(base_url=URL, api_key="any", model="local", max_tokens=40),
}

for name, model in MODELS.items():

    @check(f"{name}: invoke and stream, usage with cached tokens")
    def _():
        whole = model.invoke(QUESTION)
        assert whole.text and whole.usage_metadata["output_tokens"] > 1
        total = None
        for chunk in model.stream(QUESTION):
            total = chunk if total is None else total + chunk
        usage = total.usage_metadata
        assert total.text and usage["input_tokens"] == whole.usage_metadata["input_tokens"]
        assert usage["input_token_details"]["cache_read"] == usage["input_tokens"] - 1, usage

    @check(f"{name}: a tool that must be called, whole and streamed")
    def _():
        bound = model.bind_tools([River], tool_choice="any")
        [call] = bound.invoke("The Loire?").tool_calls
        assert call["name"] == "River" and River(**call["args"])
        total = None
        for chunk in bound.stream("The Loire?"):
            total = chunk if total is None else total + chunk
        assert total.tool_calls[0]["name"] == "River" and River(**total.tool_calls[0]["args"])

    @check(f"{name}: structured output by a JSON schema")
    def _():
        got = model.with_structured_output(River, method="json_schema").invoke("The Loire?")
        assert isinstance(got, River)


@check("completions")
def _():
    assert OpenAI(**OPENAI, max_tokens=8).invoke("The sun is")


CALL = '<tool_call>\n{"name": "length", "arguments": {"river": "Loire"}}\n</tool_call>'

for name in MODELS:

    @check(f"{name}: an agent of LangGraph calls a tool and goes on")
    def _():
        with Agent(CALL, "It is 1012 km long.") as agent:
            model = (
                ChatAnthropic(base_url=agent.url, api_key="any", model="local", max_tokens=200)
                if name == "messages"
                else ChatOpenAI(
                    base_url=agent.url + "/v1",
                    api_key="any",
                    model="local",
                    use_responses_api=name == "responses",
                )
            )
            graph = create_agent(model, [length])
            said = graph.invoke({"messages": [("user", "How long is the Loire?")]})["messages"]
            assert said[2].content == "Loire: 1012 km" and said[3].text == "It is 1012 km long."
