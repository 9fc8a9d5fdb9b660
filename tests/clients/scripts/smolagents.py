# /// script
# dependencies = ["smolagents[openai]==1.26.0"]
# ///
"""smolagents: an agent that calls tools, and one that writes code."""

from smolagents import CodeAgent, OpenAIServerModel, ToolCallingAgent, tool

from check import QUESTION, URL, Agent, check


@tool
def length(river: str) -> str:
    """Tells the length of a river.

    Args:
        river: its name
    """
    return f"{river}: 1012 km"


def model(url, **more):
    return OpenAIServerModel("local", api_base=url + "/v1", api_key="any", **more)


@check("a message, whole and streamed")
def _():
    ask = [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]
    brief = model(URL, max_tokens=24, temperature=0)
    whole = brief.generate(ask).content
    assert whole and "".join(d.content or "" for d in brief.generate_stream(ask)) == whole


@check("ToolCallingAgent: a tool that must be called is, and its result comes back")
def _():
    agent = ToolCallingAgent([length], model(URL, max_tokens=200, temperature=0), max_steps=1)
    agent.run("How long is the Loire?")
    step = agent.memory.steps[1]
    assert step.error is None or "steps" in str(step.error), step.error
    assert step.tool_calls[0].name in ("length", "final_answer") and step.observations


@check("CodeAgent: code between stop strings is run")
def _():
    code = 'Thought: easy.\n<code>\nfinal_answer(length("Loire"))\n</code>'
    with Agent(plain=code) as script:
        assert CodeAgent([length], model(script.url)).run("How long?") == "Loire: 1012 km"
