"""The page at /: served with a policy that lets it talk to its own server only, and, where a Chromium
is installed, a chat in it."""

import re
import shutil

import pytest

from browser import CHROMIUM, Browser
from program import serving
from scripted import HERMES, scripted_model


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


MARKDOWN = """<think>
A greeting is *wanted*.
</think>

## Hello
Say **hello** with `f`:

```python
def f():
    return "<b>2 * 3 * 4</b>"
```

3. one <i>line</i>

   and more
4. two
- three

| a | b |
|---|---|
| 1 | `2` |
"""


@pytest.fixture(scope="module")
def thinker(tmp_path_factory):
    """A model that thinks, then writes all that the page knows of Markdown."""
    path = tmp_path_factory.mktemp("page") / "thinker.gguf"
    specials = ("<think>", "</think>")
    model = scripted_model(path, [], plain=MARKDOWN, specials=specials, template=HERMES + "{# <think></think> #}")
    with serving("-m", model, "--cache-ram", "256M") as s:
        yield s


def test_thoughts_and_markdown(page, thinker):
    page.open(thinker.url + "/")
    for n in (1, 2):  # the second request sends the first one's thoughts back
        say(page, "How do I greet?")
        page.wait(f"document.querySelectorAll('.note').length === {n}")
    page.open(thinker.url + "/")
    page.run("window.last = document.querySelector('article:last-child')")
    assert page.run("last.querySelector('.thoughts').open") is False
    assert page.run("last.querySelector('.thoughts p').textContent") == "A greeting is *wanted*."
    blocks = page.run("[...last.querySelector('.text').children].map(b => [b.localName, b.innerText.trim()])")
    assert [name for name, _ in blocks] == ["h2", "p", "div", "ol", "ul", "table"]
    assert page.run("last.querySelector('pre').textContent") == 'def f():\n    return "<b>2 * 3 * 4</b>"'
    assert page.run("[...last.querySelectorAll('li')].map(l => l.textContent)") == ["one <i>line</i>\nand more", "two", "three"]
    assert page.run("[...last.querySelectorAll('ol li')].map(l => l.value)") == [3, 4]
    assert page.run("[...last.querySelectorAll('td')].map(c => c.innerHTML)") == ["a", "b", "1", "<code>2</code>"]
    assert page.run("last.querySelector('strong').textContent") == "hello"
    page.run("navigator.clipboard.writeText = async text => { window.copied = text; }")
    page.run("last.querySelector('.code button').click()")
    assert page.run("copied") == 'def f():\n    return "<b>2 * 3 * 4</b>"'
    page.run("last.querySelector('.link').click()")
    assert page.run("copied").startswith("## Hello")
    page.wait("last.querySelector('.link').textContent === 'Copied'")


def test_while_it_thinks(page, thinker):
    """Thoughts are open until the answer begins."""
    page.open(thinker.url + "/")
    page.run("""document.getElementById('fresh').click();
        window.seen = [];
        new MutationObserver(() => {
            const box = document.querySelector('.thoughts');
            if (box) seen.push([box.firstChild.textContent, box.open]);
        }).observe(document.getElementById('talk'), {subtree: true, childList: true, attributes: true});""")
    page.run("window.requestAnimationFrame = draw => draw()")  # nothing is skipped
    say(page, "How do I greet?")
    page.wait("document.querySelectorAll('.note').length === 1")
    seen = page.run("seen")
    assert seen[0] == ["Thinking …", True] and seen[-1] == ["Thoughts", False]


def test_no_server(page, server):
    page.open(server.url + "/")
    page.run("document.getElementById('fresh').click(); document.getElementById('limit').value = '5'")
    page.run("window.real = window.fetch; window.fetch = async () => { throw new TypeError('Failed to fetch'); }")
    say(page, "Are you there?")
    page.wait("document.querySelector('.bad')?.textContent === 'The server does not answer.'")
    page.wait("document.getElementById('model').textContent === 'no connection'")
    say(page, "And now?")  # in its place
    page.wait("document.querySelectorAll('.bad').length === 1 && document.querySelectorAll('article').length === 2")
    page.run("window.fetch = window.real; document.querySelector('article .link').click()")
    page.wait("document.querySelectorAll('.note').length === 1 && !document.querySelector('.bad')")
    assert page.run("messages.map(m => m.role)") == ["user", "assistant"]
    page.wait("/tokens of context/.test(document.getElementById('model').textContent)")


def test_what_got_no_answer_can_be_asked_again(page, server):
    page.open(server.url + "/")
    page.run("sessionStorage.setItem('messages', JSON.stringify([{role: 'user', content: 'Hello?'}]))")
    page.open(server.url + "/")
    page.run("document.getElementById('limit').value = '5'; document.querySelector('article .link').click()")
    page.wait("document.querySelectorAll('.note:not(.bad)').length === 1 && !document.querySelector('.bad')")


@pytest.mark.parametrize("width", [320, 1280])
def test_nothing_is_wider_than_the_window(page, thinker, width):
    page.resize(width, 700)
    page.open(thinker.url + "/")
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run("document.getElementById('scroll').scrollWidth") <= width
    page.resize(1280, 800)
