"""A headless Chromium, driven over its debugging pipe: JSON messages that end with NUL.

https://chromedevtools.github.io/devtools-protocol/"""

import base64
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    def __init__(self, width=1280, height=800):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()
        ours = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (to_read, to_write)]
        os.close(to_read), os.close(to_write)
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
        options += [f"--user-data-dir={self.profile.name}", f"--window-size={width},{height}", "about:blank"]
        self.process = subprocess.Popen(  # it takes descriptors 3 and 4
            [CHROMIUM, *options],
            preexec_fn=lambda: (os.dup2(ours[0], 3), os.dup2(ours[1], 4)),
            pass_fds=(3, 4),
            stderr=subprocess.DEVNULL,
        )
        for fd in ours:
            os.close(fd)
        self.answers, self.n, self.session = b"", 0, None
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        self.resize(width, height)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.to), os.close(self.back)
        self.profile.cleanup()

    def call(self, method, **params):
        self.n += 1
        message = {"id": self.n, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.answers:
                piece = os.read(self.back, 1 << 16)
                assert piece, "the browser has ended"
                self.answers += piece
            line, _, self.answers = self.answers.partition(b"\0")
            answer = json.loads(line)
            if answer.get("id") == self.n:
                assert "error" not in answer, answer
                return answer["result"]

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def run(self, script):
        """Runs JavaScript in the page; its value."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def wait(self, condition, seconds=60):
        until = time.monotonic() + seconds
        while not self.run(condition):
            assert time.monotonic() < until, f"never: {condition}"
            time.sleep(0.05)

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot")["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))
