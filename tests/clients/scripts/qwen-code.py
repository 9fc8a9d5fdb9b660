"""Qwen Code: one run of `qwen -p`, in which it calls its shell and reads the answer."""

from check import Agent, check

CALL = """I make the file.
<tool_call>
{"name": "run_shell_command", "arguments": {"command": "printf made > made.txt", "is_background": false}}
</tool_call>"""


@check("-p: a command of the model's is run, and its result answered")
def _():
    with Agent(CALL, "The file is there.") as agent:
        agent.write(".qwen/settings.json", '{"privacy": {"usageStatisticsEnabled": false}}')
        said = agent.run(
            "qwen",
            "--yolo",
            *("--auth-type", "openai", "-p", "Make made.txt."),
            OPENAI_BASE_URL=agent.url + "/v1",
            OPENAI_API_KEY="any",
            OPENAI_MODEL="local",
        )
        assert "The file is there." in said
        agent.made_file()
