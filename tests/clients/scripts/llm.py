# /// script
# dependencies = ["llm==0.36"]
# ///
"""`llm`, the command: a prompt, a conversation, a schema, a tool."""

import json

from check import URL, Agent, check

MODELS = """
- model_id: incipit
  model_name: local
  api_base: {url}/v1
  api_key_name: incipit
  supports_tools: true
  supports_schema: true
"""
TOOL = 'def length(river: str) -> str:\n    "Tells the length of a river."\n    return river + ": 1012 km"\n'
CALL = '<tool_call>\n{"name": "length", "arguments": {"river": "Loire"}}\n</tool_call>'


def llm(agent, *args, url=URL):
    agent.write("llm/extra-openai-models.yaml", MODELS.format(url=url))
    return agent.run("llm", *args, LLM_USER_PATH=str(agent.home / "llm"), INCIPIT_KEY="any")


with Agent(CALL, "It is 1012 km long.") as agent:

    @check("a prompt, streamed and not, and a conversation")
    def _():
        brief = ("-m", "incipit", "-o", "max_tokens", "12", "--key", "any")
        assert llm(agent, "prompt", "Say hello.", *brief)
        assert llm(agent, "prompt", "Say hello.", *brief, "--no-stream")
        assert llm(agent, "prompt", "And again.", "-c", *brief[2:])

    @check("a schema")
    def _():
        said = llm(agent, "prompt", "The Loire?", "-m", "incipit", "--schema", "long bool, km int", "--key", "any")
        assert isinstance(json.loads(said[said.index("{") : said.rindex("}") + 1])["long"], bool)

    @check("a tool is called, and its result answered")
    def _():
        agent.write("tool.py", TOOL)
        ask = ("prompt", "How long?", "-m", "incipit", "--key", "any", "--functions", agent.home / "tool.py")
        assert "It is 1012 km long." in llm(agent, *ask, url=agent.url)
