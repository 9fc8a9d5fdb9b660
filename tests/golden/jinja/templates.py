"""Compares templates of real models with Jinja2: python3 templates.py FOLDER [INCIPIT]

Each FOLDER/*.jinja renders a dozen conversations, with and without tools, calls, results, reasoning, parts
of content and the variables that templates know; `incipit template` must print the same bytes, or
fail where Jinja2 raises. Prints the counts; needs jinja2."""

import json
import pathlib
import random
import subprocess
import sys
import time

import oracle

CONVERSATIONS = 12
TEXTS = ["Hi", " two\nlines ", "é € 日本 😀", "<|im_end|> [INST] </s>", "", "```py\nx = {'a': 1}\n```", "{{ x }} {% y %}"]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Does things.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "where", "enum": ["a", "b"]},
                    "days": {"type": "integer", "description": "how long"},
                    "more": {"type": "array", "items": {"type": "string"}, "description": "what"},
                },
                "required": ["city"],
            },
        },
    }
    for name in ("get_weather", "get_time")
]


def call(rng, n):
    arguments = {"city": rng.choice(TEXTS), "days": rng.choice([3, -1, 2.5]), "more": ["x", "\n"]}
    arguments = dict(rng.sample(sorted(arguments.items()), rng.randint(0, 3)))
    if rng.random() < 0.3:
        arguments = json.dumps(arguments)
    function = {"name": rng.choice(["get_weather", "get_time"]), "arguments": arguments}
    return {"id": f"call{n:05}", "type": "function", "function": function}


def content(rng):
    text = rng.choice(TEXTS)
    return [{"type": "text", "text": text}] if rng.random() < 0.15 else text


def answer(rng):
    message = {"role": "assistant", "content": content(rng)}
    if rng.random() < 0.4:
        message["reasoning_content"] = rng.choice(TEXTS)
    if rng.random() < 0.5:
        message["tool_calls"] = [call(rng, n) for n in range(rng.randint(1, 2))]
        if rng.random() < 0.5:
            message["content"] = rng.choice([None, ""])
    return message


def conversation(rng):
    messages = [{"role": "system", "content": content(rng)}] if rng.random() < 0.5 else []
    for _ in range(rng.randint(1, 3)):
        messages.append({"role": "user", "content": content(rng)})
        if rng.random() < 0.7:
            said = answer(rng)
            messages.append(said)
            for c in said.get("tool_calls", []):
                messages.append({"role": "tool", "tool_call_id": c["id"], "name": "f", "content": content(rng)})
            if "tool_calls" in said and rng.random() < 0.6:
                messages.append({"role": "assistant", "content": rng.choice(TEXTS)})
    chat = {"messages": messages, "add_generation_prompt": rng.random() < 0.7}
    chat |= {"bos_token": "<s>", "eos_token": "</s>"}
    if rng.random() < 0.6:
        chat["tools"] = TOOLS[: rng.randint(1, 2)]
    for name in ("enable_thinking", "preserve_thinking"):
        if rng.random() < 0.3:
            chat.setdefault("extra", {})[name] = rng.random() < 0.5
    return chat


def expected(source, chat):
    variables = {"tools": None, "documents": None} | {k: v for k, v in chat.items() if k != "extra"}
    return oracle.render(source, variables | chat.get("extra", {}))[0]


def main(folder, binary="build/src/cli/incipit"):
    oracle.NOW = int(time.time())
    same = raised = 0
    wrong = []
    paths = sorted(pathlib.Path(folder).glob("*.jinja"))
    for path in paths:
        rng = random.Random(path.name)
        for n in range(CONVERSATIONS):
            chat = conversation(rng)
            want = expected(path.read_text(), chat)
            command = [binary, "template", "--template", path]
            done = subprocess.run(command, input=json.dumps(chat).encode(), capture_output=True)
            got = done.stdout.decode() if done.returncode == 0 else None
            if got != want:
                wrong.append(f"{path.name} {n}: {done.stderr.decode().strip() or 'other text'}")
            same += got == want is not None
            raised += got is want is None
    print(f"{len(paths)} templates, {same} equal texts, {raised} errors in both, {len(wrong)} differences")
    print("\n".join(wrong[:20]))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
