"""Cline's CLI: one run with a prompt, in which it calls its shell and reads the answer."""

from check import Agent, check

CALL = """I make the file.
<tool_call>
{"name": "run_commands", "arguments": {"commands": ["printf made > made.txt"]}}
</tool_call>"""


@check("a prompt: a command of the model's is run, and its result answered")
def _():
    with Agent(CALL, "The file is there.") as agent:
        agent.run("cline", "auth", "-p", "openai", "-k", "any", "-m", "local", "-b", agent.url + "/v1")
        said = agent.run("cline", "--timeout", "200", "Make made.txt.")
        assert "The file is there." in said
        agent.made_file()
