# /// script
# requires-python = "<3.13"
# dependencies = ["aider-chat==0.86.2"]
# ///
"""aider: one run with a message, in which the model's edit is made and committed."""

from check import Agent, check

EDIT = """made.txt
```
made
```
"""


@check("--message: the model's edit is made")
def _():
    with Agent(plain=EDIT) as agent:
        agent.write("work/made.txt", "old\n")
        agent.run(
            *("aider", "--model", "openai/local", "--edit-format", "whole", "--yes-always"),
            *("--no-show-model-warnings", "--no-analytics", "--no-check-update", "--map-tokens", "0"),
            *("--message", "Make made.txt say made.", "made.txt"),
            OPENAI_API_BASE=agent.url + "/v1",
            OPENAI_API_KEY="any",
        )
        assert (agent.work / "made.txt").read_text() == "made\n"
