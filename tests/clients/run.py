"""Real clients against a real server: `./dev clients [NAME...]`.

    tests/clients/scripts/NAME.py    of Python; a block at its head pins what it needs
    tests/clients/scripts/NAME.mjs   of Node; package.json pins what they need

`run.py install` puts it into build/clients. `run.py` then makes a network namespace that has
nothing but a loopback interface, so that no client can speak to anybody else, starts a server on the
default model, runs each script in a process of its own, and prints a table."""

import fcntl
import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = HERE / "scripts"
PROGRAMS = HERE.parents[1] / "build/clients"
LOGS = PROGRAMS / "logs"
UV = PROGRAMS / "uv/bin/uv"
UV_VERSION = "0.13.9"
SECONDS = 900

# Has a licence of its own, which who installs it agrees to: only when it is named.
CLAUDE_CODE = ("@anthropic-ai/claude-code", "2.1.332")

# (title, script, package of npm; of Python it is the script's first dependency)
CLIENTS = [
    ("Claude Code", "claude-code.py", CLAUDE_CODE[0]),
    ("Codex CLI", "codex.py", "@openai/codex"),
    ("opencode", "opencode.py", "opencode-ai"),
    ("Qwen Code", "qwen-code.py", "@qwen-code/qwen-code"),
    ("Cline CLI", "cline.py", "cline"),
    ("Continue CLI", "continue.py", "@continuedev/cli"),
    ("aider", "aider.py", None),
    ("openai (Node)", "openai-node.mjs", "openai"),
    ("@anthropic-ai/sdk (Node)", "anthropic-node.mjs", "@anthropic-ai/sdk"),
    ("Vercel AI SDK", "ai-sdk.mjs", "ai"),
    ("LangChain, LangGraph", "langchain.py", None),
    ("LlamaIndex", "llama-index.py", None),
    ("LiteLLM", "litellm.py", None),
    ("Instructor", "instructor.py", None),
    ("Pydantic AI", "pydantic-ai.py", None),
    ("OpenAI Agents", "openai-agents.py", None),
    ("smolagents", "smolagents.py", None),
    ("Open WebUI", "open-webui.py", None),
    ("llm", "llm.py", None),
    ("lm-eval", "lm-eval.py", None),
    ("guidellm", "guidellm.py", None),
]


def block(script):
    """The block at the head of a Python script."""
    found = re.search(r"^# /// script\n((?:#.*\n)+?)# ///$", script.read_text(), re.M)
    return tomllib.loads("\n".join(line[2:] for line in found[1].splitlines()) if found else "")


def pins(script):
    """What it asks for."""
    return block(script).get("dependencies", [])


def overrides(script):
    """What it asks for in place of what those ask for."""
    return block(script).get("tool", {}).get("uv", {}).get("override-dependencies", [])


def python_of(script):
    """The interpreter that has what the script needs."""
    return PROGRAMS / "venv" / script.stem / "bin/python" if pins(script) else sys.executable


def version(script, package):
    if not package:
        return re.search(r"==(.*)", pins(script)[0])[1]
    return json.loads((PROGRAMS / "node_modules" / package / "package.json").read_text())["version"]


def chosen(names):
    """The clients of these names; all but Claude Code when there are none."""
    known = {pathlib.Path(script).stem for _, script, _ in CLIENTS}
    if unknown := set(names) - known:
        sys.exit(f"clients: there is no {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    wanted = set(names) or known - {"claude-code"}
    return [(t, SCRIPTS / s, p) for t, s, p in CLIENTS if pathlib.Path(s).stem in wanted]


# ---- installing ----


def up_to_date(stamp, wanted):
    return stamp.exists() and stamp.read_text() == wanted


def install_python(script):
    venv, wanted = PROGRAMS / "venv" / script.stem, "\n".join(pins(script) + overrides(script))
    if not wanted or up_to_date(venv / "installed", wanted):
        return
    subprocess.run([UV, "venv", "-q", "--clear", "--python", sys.executable, venv], check=True)
    command = [UV, "pip", "install", "-q", "--python", venv, "--override", "-", *pins(script)]
    subprocess.run(command, input="\n".join(overrides(script)), text=True, check=True)
    (venv / "installed").write_text(wanted)


def npm_install(*packages):
    options = ["--silent", "--no-audit", "--no-fund", *(["--no-save"] if packages else [])]
    subprocess.run(["npm", "install", *options, *packages], cwd=PROGRAMS, check=True)


def install(names):
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    if not UV.exists():
        subprocess.run([sys.executable, "-m", "venv", UV.parents[1]], check=True)
        subprocess.run([UV.parent / "pip", "install", "-qq", f"uv=={UV_VERSION}"], check=True)
    scripts = {script.stem: script for _, script, _ in chosen(names)}
    for script in scripts.values():
        if script.suffix == ".py":
            install_python(script)
    wanted = (HERE / "package.json").read_text()
    if any(package for *_, package in chosen(names)) and not up_to_date(PROGRAMS / "installed", wanted):
        shutil.copy(HERE / "package.json", PROGRAMS)
        npm_install()
        (PROGRAMS / "installed").write_text(wanted)
    if "claude-code" in scripts:
        npm_install("@".join(CLAUDE_CODE))


# ---- running ----


def alone():
    """Starts this program again where there is no network but the machine itself, and where nothing
    that a client leaves behind outlives it."""
    if os.environ.get("INCIPIT_ALONE"):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:  # lo: up and running
            fcntl.ioctl(s, 0x8914, struct.pack("16sh", b"lo", 0x41))
        return
    os.environ["INCIPIT_ALONE"] = "1"
    apart = ["--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    os.execvp("unshare", ["unshare", *apart, "--", sys.executable, *sys.argv])


def run(script, url):
    """The lines of its checks."""
    local = str(PROGRAMS / "node_modules/.bin")
    env = {k: os.environ[k] for k in ("PATH", "HOME", "LANG", "INCIPIT_BIN", "INCIPIT_MODEL") if k in os.environ}
    env |= {"INCIPIT_URL": url, "INCIPIT_CLIENTS": str(PROGRAMS), "PYTHONSAFEPATH": "1"}
    env |= {"PYTHONPATH": f"{HERE}:{HERE.parent / 'e2e'}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [python_of(script), script]
    if script.suffix == ".mjs":
        for part in (script, HERE / "check.mjs"):
            shutil.copy(part, PROGRAMS)
        command = [f"{local}/node", PROGRAMS / script.name]
    log = LOGS / f"{script.stem}.log"
    with log.open("w") as out:
        try:
            subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            print("\nfailed: it did not end", file=out)
    lines = re.findall(r"^(ok|failed) ?(.*)$", log.read_text(), re.M)
    return lines or [("failed", "nothing was checked")]


def main(names):
    from program import serving

    LOGS.mkdir(parents=True, exist_ok=True)
    rows, wrong, passed = [], [], 0
    with serving("--cache-ram", "2G", "-a", "local") as server:
        for title, script, package in chosen(names):
            print(f"{title} …", end=" ", flush=True, file=sys.stderr)
            checks = run(script, server.url)
            n = sum(what == "ok" for what, _ in checks)
            print(f"{n} of {len(checks)}", file=sys.stderr)
            rows.append(f"| {title} | {version(script, package)} | {n} of {len(checks)} |")
            wrong += [f"{script.stem}: {why}" for what, why in checks if what != "ok"]
            passed += n
    print("\n| client | version | checks passed |\n|---|---|---|", *rows, "", *wrong, sep="\n")
    print(f"\n{passed} passed, {len(wrong)} failed")
    return bool(wrong)


if __name__ == "__main__":
    sys.path.append(str(HERE.parent / "e2e"))
    if sys.argv[1:2] == ["install"]:
        install(sys.argv[2:])
    else:
        chosen(sys.argv[1:])
        alone()
        sys.exit(main(sys.argv[1:]))
