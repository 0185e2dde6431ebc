"""Chromium driven by the DevTools protocol over a pipe: real mouse and keyboard events, no further package."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--remote-debugging-pipe",
]  # fmt: skip
# Chromium reads commands from descriptor 3 and answers on 4
START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3]]
for fd, place in zip(ends, (3, 4)):
    os.dup2(fd, place)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One page; `events` holds what the browser reported."""

    def __init__(self, profile: Path) -> None:
        read, self._out = os.pipe()
        self._in, write = os.pipe()
        flags = [*FLAGS, f"--user-data-dir={profile}", "about:blank"]
        command = [sys.executable, "-S", "-c", START, str(read), str(write), str(CHROMIUM), *flags]
        self._process = subprocess.Popen(command, pass_fds=(read, write), stderr=subprocess.DEVNULL)
        os.close(read)
        os.close(write)
        self._ids, self._buffer, self._session = itertools.count(1), b"", None
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        self._session = None
        self.send("Browser.close")
        self._process.wait(timeout=20)
        os.close(self._out)
        os.close(self._in)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a command of the protocol."""
        number = next(self._ids)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], 60)[0]:
                raise TimeoutError("the browser does not answer")
            received = os.read(self._in, 1 << 20)
            if not received:
                raise EOFError("the browser has ended")
            self._buffer += received
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def window(self, width: int, height: int, *, dark: bool = False) -> None:
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, address: str) -> None:
        """Load a report and wait until it is ready."""
        self.send("Page.navigate", url="about:blank")
        self.send("Page.navigate", url=address)
        self.wait("document.documentElement?.dataset.ready === ''")

    def js(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait(self, expression: str, seconds: float = 20) -> None:
        """Until an expression is true in the page."""
        end = time.monotonic() + seconds
        while not self.js(f"Boolean({expression})"):
            if time.monotonic() > end:
                raise TimeoutError(f"never true: {expression}")
            time.sleep(0.02)

    def box(self, selector: str) -> list[float]:
        """x, y, width, height of an element, which is scrolled to the middle of the window."""
        self.js(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center'}})")
        self.js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        got = f"document.querySelector({selector!r}).getBoundingClientRect()"
        return self.js(f"(({{x, y, width, height}}) => [x, y, width, height])({got})")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, selector: str, count: int = 1) -> None:
        x, y, width, height = self.box(selector)
        for n in range(1, count + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.mouse(kind, x + width / 2, y + height / 2, button="left", clickCount=n)

    def drag(self, selector: str, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Drag inside an element, from and to fractions of its width and height."""
        x, y, width, height = self.box(selector)
        points = [(x + width * (a + (b - a) * k / 4), y + height * (c + (d - c) * k / 4))
                  for k in range(5) for (a, c), (b, d) in [(start, end)]]  # fmt: skip
        self.mouse("mouseMoved", *points[0])
        self.mouse("mousePressed", *points[0], button="left", clickCount=1)
        for point in points[1:]:
            self.mouse("mouseMoved", *point, button="left", buttons=1)
        self.mouse("mouseReleased", *points[-1], button="left", clickCount=1)

    def press(self, key: str) -> None:
        text = key if len(key) == 1 else "\r" if key == "Enter" else ""
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, **({"text": text} if text else {}))
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        image = self.send("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(image["data"]))
