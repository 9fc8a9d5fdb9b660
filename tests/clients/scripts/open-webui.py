# /// script
# dependencies = ["open-webui==0.12.4"]
# [tool.uv]
# override-dependencies = [
#     "accelerate; sys_platform == 'never'",
#     "faster-whisper; sys_platform == 'never'",
#     "opencv-python-headless; sys_platform == 'never'",
#     "rapidocr; sys_platform == 'never'",
#     "sentence-transformers; sys_platform == 'never'",
# ]
# ///
"""Open WebUI without what embeds, reads pictures or hears on its own: its server, asked as its page asks."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import uuid

import httpx

from check import QUESTION, QUIET, Agent, check
from program import GOLDEN, serving

TOOL = '''
class Tools:
    def make(self, name: str) -> str:
        """Makes a file.

        :param name: the file
        """
        return f"{name} is made"
'''
CALL = 'I make it.\n<tool_call>\n{"name": "make", "arguments": {"name": "made.txt"}}\n</tool_call>'
SETTINGS = {
    "WEBUI_AUTH": "False",
    "WEBUI_SECRET_KEY": "not secret, but long enough for a test",
    "ENABLE_OLLAMA_API": "False",
    "OFFLINE_MODE": "True",
    "RAG_EMBEDDING_ENGINE": "openai",
    "RAG_EMBEDDING_MODEL": "local",
    "RAG_OPENAI_API_KEY": "any",
    "OPENAI_API_KEY": "any",
    "SCARF_NO_ANALYTICS": "true",
    "ANONYMIZED_TELEMETRY": "False",
}


@contextlib.contextmanager
def web_ui(agent, embedder):
    """Its server, with `agent`'s for its only connection, and one that embeds for its documents; the
    user who opens it first is signed in."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    settings = SETTINGS | {"OPENAI_API_BASE_URL": agent.url + "/v1", "DATA_DIR": str(agent.home / "data")}
    settings["RAG_OPENAI_API_BASE_URL"] = embedder.url + "/v1"
    command = [sys.executable, "-c", "from open_webui import app; app()", "serve", "--host", "127.0.0.1", "--port", str(port)]
    environment = {"HOME": str(agent.home), "PATH": os.environ["PATH"]} | QUIET | settings
    with subprocess.Popen(command, cwd=agent.work, env=environment) as process:
        ui = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120)
        try:
            until = time.monotonic() + 180
            while time.monotonic() < until and process.poll() is None:
                with contextlib.suppress(httpx.TransportError):
                    if ui.get("/health").is_success:
                        break
                time.sleep(0.3)
            user = post(ui, "/api/v1/auths/signin", email="", password="")
            ui.headers["Authorization"] = f"Bearer {user['token']}"
            yield ui
        finally:
            process.kill()


def post(ui, path, **body):
    answer = ui.post(path, json=body)
    assert answer.is_success, answer.text
    return answer.json()


def say(ui, text, tasks=(), **fields):
    """A new chat that begins with `text`, as the page begins one; gives the chat, once it is answered."""
    asked, answered = str(uuid.uuid4()), str(uuid.uuid4())
    message = {"id": asked, "parentId": None, "role": "user", "content": text, "models": ["local"]}
    body = {
        **{"model": "local", "stream": True, "messages": [{"role": "user", "content": text}], "parent_id": None},
        **{"session_id": "page", "id": answered, "user_message": message},
        **{"background_tasks": dict.fromkeys(tasks, True)},
    }
    chat = post(ui, "/api/chat/completions", **body | fields)["chat_id"]
    until = time.monotonic() + 120
    while time.monotonic() < until:
        time.sleep(0.2)
        kept = ui.get(f"/api/v1/chats/{chat}").json()["chat"]
        answer = kept["history"]["messages"][answered]
        assert not answer.get("error"), answer
        if answer.get("done") and (not tasks or "followUps" in answer and kept["title"] != "New Chat"):
            return kept, answer
    raise AssertionError("no answer came")


def connect(ui, agent, **settings):
    """Settings of its connection, as the page saves them."""
    connection = {"OPENAI_API_BASE_URLS": [agent.url + "/v1"], "OPENAI_API_KEYS": ["any"]}
    post(ui, "/openai/config/update", ENABLE_OPENAI_API=True, **connection, OPENAI_API_CONFIGS={"0": settings})
    assert [m["id"] for m in ui.get("/api/models").json()["data"]] == ["local"]


PLAIN = '{"title": "Rivers", "follow_ups": ["And Spain?"], "tags": ["rivers"]}'
NO_TOOLS = {"function_calling": "legacy"}

BERT = ("-m", GOLDEN / "models/bert.gguf", "-a", "local")

with Agent(CALL, "It is made.", plain=PLAIN) as agent, serving(*BERT) as embedder, web_ui(agent, embedder) as ui:

    @check("finds the model")
    def _():
        post(ui, "/openai/verify", url=agent.url + "/v1", key="any", config={})
        assert [m["id"] for m in ui.get("/api/models").json()["data"]] == ["local"]

    @check("its API: whole and streamed")
    def _():
        body = {"model": "local", "messages": [{"role": "user", "content": QUESTION}], "params": NO_TOOLS}
        whole = post(ui, "/api/chat/completions", **body)
        assert whole["choices"][0]["message"]["content"] == PLAIN and whole["usage"]["completion_tokens"] > 0
        with ui.stream("POST", "/api/chat/completions", json=body | {"stream": True}) as answer:
            events = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: {")]
        assert "".join(e["choices"][0]["delta"].get("content", "") for e in events if e.get("choices")) == PLAIN

    @check("a chat, for which it asks a title, follow-up questions and tags")
    def _():
        tasks = ["title_generation", "follow_up_generation", "tags_generation"]
        chat, answer = say(ui, QUESTION, tasks, params=NO_TOOLS)
        assert answer["content"] == PLAIN
        assert chat["title"] == "Rivers" and answer["followUps"] == ["And Spain?"]

    for name, settings in (("chat", {}), ("responses", {"api_type": "responses"}), ("llama.cpp", {"provider": "llama.cpp"})):

        @check(f"{name}: a tool of its own is called, and its result answered")
        def _():
            connect(ui, agent, **settings)
            if name == "chat":
                post(ui, "/api/v1/tools/create", id="make", name="Make", content=TOOL, meta={"description": ""})
            _, answer = say(ui, "Make made.txt.", tool_ids=["make"])
            kinds = [part["type"] for part in answer["output"]]
            assert kinds == ["message", "function_call", "function_call_output", "message"], kinds
            assert answer["output"][2]["output"][0]["text"] == "made.txt is made"
            assert answer["content"].endswith("It is made.")

    @check("documents are embedded, and the nearest is found")
    def _():
        for text in ("The Loire is 1012 km long.", "Bread is made of flour."):
            post(ui, "/api/v1/retrieval/process/text", name=text, content=text, collection_name="texts")
        found = post(ui, "/api/v1/retrieval/query/doc", collection_name="texts", query="The Loire is 1012 km long.", k=1)
        assert found["documents"][0] == ["The Loire is 1012 km long."], found

    @check("nothing that it asks for is refused")
    def _():
        wrong = [r for r in agent.requests() if r[1] != 200]
        assert not wrong and {r[0] for r in agent.requests()} == {"/v1/chat/completions", "/v1/responses"}, wrong
