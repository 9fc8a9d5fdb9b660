"""Continue: one run of `cn -p`, in which it calls its shell and reads the answer."""

from check import Agent, check

CALL = """I make the file.
<tool_call>
{"name": "Bash", "arguments": {"command": "printf made > made.txt"}}
</tool_call>"""
CONFIG = """name: local
version: 1.0.0
schema: v1
models:
  - {{name: local, provider: openai, model: local, apiKey: any, apiBase: "{url}/v1", capabilities: [tool_use]}}
"""


@check("-p: a command of the model's is run, and its result answered")
def _():
    with Agent(CALL, "The file is there.") as agent:
        agent.write("config.yaml", CONFIG.format(url=agent.url))
        said = agent.run("cn", "-p", "Make made.txt.", "--auto", "--config", agent.home / "config.yaml")
        assert "The file is there." in said
        agent.made_file()
