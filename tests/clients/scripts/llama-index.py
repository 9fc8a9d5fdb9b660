# /// script
# dependencies = ["llama-index-llms-openai-like==0.8.1"]
# ///
"""LlamaIndex, as its OpenAILike has it."""

from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel, Field

from check import QUESTION, URL, Agent, check


class River(BaseModel):
    """A river."""

    long: bool
    km: int = Field(ge=1, le=9)


def length(river: str) -> str:
    """Tells the length of a river."""
    return f"{river}: 1012 km"


def llm(url, **more):
    more = {"is_chat_model": True, "is_function_calling_model": True, "max_tokens": 60} | more
    return OpenAILike(model="local", api_base=url + "/v1", api_key="any", temperature=0, **more)


@check("chat, whole and streamed")
def _():
    ask = [ChatMessage(role="user", content=QUESTION)]
    whole = llm(URL).chat(ask).message.content
    *_, last = llm(URL).stream_chat(ask)
    assert whole and last.message.content == whole


@check("completion")
def _():
    assert llm(URL, is_chat_model=False).complete("The sun is").text


@check("a tool that must be called")
def _():
    tools = [FunctionTool.from_defaults(length)]
    answer = llm(URL).chat_with_tools(tools, "How long is the Loire?", tool_required=True)
    [call] = llm(URL).get_tool_calls_from_response(answer)
    assert call.tool_name == "length" and isinstance(call.tool_kwargs["river"], str)


@check("structured output")
def _():
    got = llm(URL, should_use_structured_outputs=True).as_structured_llm(River).complete("The Loire?")
    assert isinstance(got.raw, River)


@check("predict_and_call runs the tool")
def _():
    with Agent('<tool_call>\n{"name": "length", "arguments": {"river": "Loire"}}\n</tool_call>') as agent:
        said = llm(agent.url).predict_and_call([FunctionTool.from_defaults(length)], "How long?")
        assert "1012 km" in str(said)
