"""Codex CLI: one run of `codex exec`, in which it calls its shell and reads the answer."""

from check import Agent, check

CONFIG = """
model = "local"
model_provider = "incipit"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.incipit]
name = "incipit"
base_url = "{url}/v1"
wire_api = "responses"
"""
CALL = """I make the file.
<tool_call>
{"name": "exec_command", "arguments": {"cmd": "printf made > made.txt; cat made.txt"}}
</tool_call>"""


@check("exec: a command of the model's is run, and its result answered")
def _():
    with Agent(CALL, "The file is there.") as agent:
        agent.write(".codex/config.toml", CONFIG.format(url=agent.url))
        said = agent.run("codex", "exec", "--dangerously-bypass-approvals-and-sandbox", "Make made.txt.")
        assert "The file is there." in said
        agent.made_file()
