"""Servers that tests share. Each must still run at the end, end on SIGTERM with 0, and have logged
no error: Server.stop checks that."""

import pytest
from openai import OpenAI

from program import TINY, serving, tiny_copy

TEMPLATE = (
    "{% for m in messages %}<s>{{ m.role }}:{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant:{% endif %}"
)


@pytest.fixture(scope="session")
def server():
    """The default model."""
    with serving("--cache-ram", "2G") as s:
        yield s


@pytest.fixture(scope="session")
def client(server):
    return OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """The tiny model, with a chat template."""
    return tiny_copy(tmp_path_factory.mktemp("tiny"), tokenizer__chat_template=TEMPLATE)


@pytest.fixture(scope="session")
def tiny(tiny_model):
    """A model that answers in milliseconds."""
    with serving("-m", tiny_model, "--cache-ram", "64M") as s:
        yield s


@pytest.fixture(scope="session")
def keyed(tiny_model, tmp_path_factory):
    """Three keys: two named ones and one without a name."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("# who may call\nann key-of-ann\nbob key-of-bob\nkey-of-nobody\n")
    with serving("-m", tiny_model, "--cache-ram", "64M", "--api-key-file", keys) as s:
        yield s


@pytest.fixture(scope="session")
def uncached():
    """The default model without reuse."""
    with serving("--no-cache", "--cache-ram", "512M") as s:
        yield s
