"""Claude Code: one run of `claude -p`, in which it calls its shell and reads the answer."""

from check import Agent, check

CALL = """I make the file.
<tool_call>
{"name": "Bash", "arguments": {"command": "printf made > made.txt", "description": "Makes it"}}
</tool_call>"""


@check("-p: a command of the model's is run, and its result answered")
def _():
    with Agent(CALL, "The file is there.") as agent:
        said = agent.run(
            *("claude", "-p", "Make made.txt.", "--allowedTools", "Bash"),
            ANTHROPIC_BASE_URL=agent.url,
            ANTHROPIC_AUTH_TOKEN="any",
            ANTHROPIC_MODEL="local",
        )
        assert "The file is there." in said
        agent.made_file()
