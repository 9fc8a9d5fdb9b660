"""What the scripts of clients share. run.py starts each in a process of its own, against a server
at URL; they print a line "ok WHAT" or "failed WHAT: WHY" for each check."""

import asyncio
import contextlib
import inspect
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import traceback

HERE = pathlib.Path(__file__).resolve().parent
from program import Server
from scripted import scripted_model

URL = os.environ.get("INCIPIT_URL", "http://127.0.0.1:8080")
PROGRAMS = pathlib.Path(os.environ.get("INCIPIT_CLIENTS", HERE.parents[1] / "build/clients"))
QUESTION = "Name three rivers of France."


def check(what):
    """Runs what it decorates at once."""

    def run(work):
        try:
            asyncio.run(work()) if inspect.iscoroutinefunction(work) else work()
            print("ok", what, flush=True)
        except BaseException as failure:
            traceback.print_exc()
            first = next(iter(str(failure).splitlines()), "")
            print(f"failed {what}: {type(failure).__name__} {first[:160]}", flush=True)

    return run



class Agent:
    """A command-line agent in a folder of its own, with a home of its own, and a model that says
    what the script wants."""

    def __init__(self, *turns, **model):
        self.folder = tempfile.TemporaryDirectory(prefix="incipit-client-", ignore_cleanup_errors=True)
        self.home = pathlib.Path(self.folder.name)
        self.work = self.home / "work"
        self.work.mkdir()
        subprocess.run(["git", "init", "-q", self.work], check=True)
        model = scripted_model(self.home / "scripted.gguf", turns, **model)
        self.server = Server("-m", model, "--cache-ram", "2G", "-a", "local")
        self.url = self.server.url

    def write(self, path, text):
        path = self.home / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self, *command, seconds=240, **env):
        """Its exit status must be 0; gives what it printed."""
        local = PROGRAMS / "node_modules/.bin"
        path = os.pathsep.join([str(local), os.path.dirname(sys.executable), os.environ["PATH"]])
        env = {"HOME": str(self.home), "PATH": path, "TERM": "dumb", "NO_COLOR": "1"} | QUIET | env
        said = self.home / "said"
        with said.open("w") as out:
            agent = subprocess.Popen(
                [*map(str, command)],
                **{"cwd": self.work, "env": env, "stdin": subprocess.DEVNULL},
                **{"stdout": out, "stderr": out, "start_new_session": True},
            )
            try:
                status = agent.wait(seconds)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(agent.pid, signal.SIGKILL)
                print(said.read_text(), self.server.log, sep="\n", flush=True)
        assert status == 0, f"{command[0]} ended with {status}"
        return said.read_text()

    def requests(self):
        """(path, status, prompt tokens, cached tokens) of each."""
        line = r"POST (\S+) (\d+)[^\n]*?(?:prompt (\d+), cached (\d+)|\n|$)"
        return [(p, int(s), int(n or 0), int(c or 0)) for p, s, n, c in re.findall(line, self.server.log)]

    def made_file(self):
        """The agent ran what the script called for, and the cache carried it from turn to turn."""
        assert (self.work / "made.txt").read_text().strip() == "made"
        refused = re.findall(r"(?:GET|POST|HEAD|DELETE) /(?!health)\S* [45]\d\d.*", self.server.log)
        assert not refused, refused
        (_, _, first, _), (_, _, second, cached) = self.requests()[-2:]
        assert second > first and cached >= first - 1, "the second turn did not find the first"

    def __enter__(self):
        return self

    def __exit__(self, failure, *rest):
        if failure:
            print(self.server.log, flush=True)
            self.server.process.kill()
        else:
            self.server.stop()
        self.folder.cleanup()


# No client may speak to anybody but the server; run.py sees to that. These spare it the attempt.
QUIET = {
    "DO_NOT_TRACK": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "true",
    "OPENCODE_DISABLE_MODELS_FETCH": "true",
    "CLINE_TELEMETRY_DISABLED": "1",
    "AIDER_ANALYTICS": "false",
    "AIDER_CHECK_UPDATE": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "LANGCHAIN_TRACING_V2": "false",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
