"""opencode: one run of `opencode run`, in which it calls its shell and reads the answer."""

import json

from check import Agent, check

CALL = """I make the file.
<tool_call>
{"name": "bash", "arguments": {"command": "printf made > made.txt", "description": "Makes it"}}
</tool_call>"""


def config(url, package, base):
    provider = {"npm": package, "options": {"baseURL": url + base, "apiKey": "any"}, "models": {"local": {}}}
    return json.dumps(
        {
            "provider": {"incipit": provider},
            "model": "incipit/local",
            "autoupdate": False,
            "share": "disabled",
            "permission": {"*": "allow"},
        }
    )


for package, base in (("@ai-sdk/openai-compatible", "/v1"), ("@ai-sdk/openai", "/v1"), ("@ai-sdk/anthropic", "/v1")):

    @check(f"run, with {package}: a command of the model's is run, and its result answered")
    def _():
        with Agent(CALL, "The file is there.") as agent:
            agent.write("work/opencode.json", config(agent.url, package, base))
            said = agent.run("opencode", "run", "Make made.txt.")
            assert "The file is there." in said
            agent.made_file()
