"""The page at /: served with a policy that lets it talk to its own server only, and, where a Chromium
is installed, a chat in it."""

import re
import shutil

import pytest

from browser import CHROMIUM, Browser
from program import serving


def test_page_is_served(server):
    a = server.get("/")
    assert a.status == 200 and a.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = a.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy
    html = a.body.decode()
    assert html.startswith("<!doctype html>") and "viewport" in html
    assert not re.search(r"""(?:src|href)=["']?https?:""", html), "it loads from elsewhere"


@pytest.fixture(scope="module")
def page():
    if not CHROMIUM:
        pytest.skip("no Chromium is installed")
    with Browser() as b:
        yield b


def say(page, text):
    page.run(f"document.getElementById('input').value = {text!r}; document.getElementById('form').requestSubmit()")


def notes(page):
    return page.run("[...document.querySelectorAll('.note')].map(n => n.textContent)")


def test_a_chat(page, server):
    page.open(server.url + "/")
    page.run("document.getElementById('temperature').value = '0'")
    page.wait("/tokens of context/.test(document.getElementById('model').textContent)")
    say(page, "Say only: yes")
    page.wait("document.querySelectorAll('.note').length === 1")
    say(page, "Again, please.")
    page.wait("document.querySelectorAll('.note').length === 2")
    assert all(re.search(r"\d+ tokens?.* · reused \d+ of \d+ prompt tokens", n) for n in notes(page))
    assert int(re.search(r"reused (\d+)", notes(page)[1])[1]) > 30
    assert page.run("document.querySelectorAll('article').length") == 4


def test_stopping_and_reloading(page, server):
    page.run("document.getElementById('fresh').click()")
    say(page, "Write a long story about the sea, with many chapters.")
    page.wait("document.querySelector('article:last-child .text').textContent.length > 20")
    page.run("document.getElementById('form').requestSubmit()")
    page.wait("document.querySelectorAll('.note').length === 1")
    assert notes(page)[0].startswith("stopped")
    page.open(server.url + "/")
    assert len(notes(page)) == 1, "the tab keeps its conversation"
    page.run("document.getElementById('fresh').click()")
    assert page.run("document.querySelectorAll('article').length") == 0


def test_markup_in_messages_is_text(page, server):
    page.open(server.url + "/")
    page.run("document.getElementById('limit').value = '20'")
    say(page, "<img src=x onerror=document.title=1><b>bold</b>")
    page.wait("document.querySelectorAll('.note').length === 1")
    assert page.run("document.querySelectorAll('#talk img, #talk b').length") == 0
    assert page.run("document.title") == "incipit"


def test_several_models(page, tiny_model, tmp_path):
    for name in "ab":
        shutil.copy(tiny_model, tmp_path / f"{name}.gguf")
    with serving("--model-dir", tmp_path, "--cache-ram", "64M") as s:
        page.open(s.url + "/")
        page.wait("document.getElementById('choice').options.length === 2")
        page.run("const c = document.getElementById('choice'); c.value = 'b'; c.dispatchEvent(new Event('change'))")
        page.run("document.getElementById('limit').value = '3'")
        say(page, "hi")
        page.wait("document.querySelectorAll('.note').length === 1")
        loaded = {m["id"]: m["status"]["value"] for m in s.get("/v1/models").json["data"]}
        assert loaded == {"a": "unloaded", "b": "loaded"}
        page.open(s.url + "/")
        page.wait("document.getElementById('choice').value === 'b'")
