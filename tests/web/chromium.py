"""A real browser: Chromium without a window, driven through its debugging pipe by the DevTools protocol."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any, Self

from tests.programs import missing

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE = 30.0
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--mute-audio"),
    *("--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-extensions", "--disable-features=Translate,MediaRouter", "--remote-debugging-pipe"),
)


class Chromium:
    """One tab of a browser of its own."""

    def __init__(self, profile: Path) -> None:
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if program is None:
            missing("Chromium is not installed (Debian: apt-get install chromium)")
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        # The protocol's pipe is file 3 for commands and file 4 for answers.
        wrapped = ["bash", "-c", f'exec "$0" "$@" 3<&{commands} 4>&{answers}', program]
        self._process = subprocess.Popen(
            [*wrapped, *OPTIONS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(commands)
        os.close(answers)
        self._number = 0
        self._buffer = b""
        self._session: str | None = None
        # A tab of our own: the browser's first one may appear after it answers.
        tab = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Runtime.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = os.read(self._read, 1 << 16)
            assert piece, "the browser has ended"
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def run(self, script: str) -> Any:
        """Evaluate JavaScript in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, url: str) -> None:
        """Open a page, and wait until it is there."""
        self.call("Page.navigate", url=url)
        there = json.dumps(url.partition("?")[0])
        self.until(f"document.readyState === 'complete' && location.href.startsWith({there})")

    def until(self, script: str) -> None:
        """Wait until something is true in the page."""
        end = time.monotonic() + PATIENCE
        while not self._is_true(script):
            assert time.monotonic() < end, f"never: {script}\n{self.text()}"
            time.sleep(0.05)

    def _is_true(self, script: str) -> bool:
        try:
            return bool(self.run(script))
        except AssertionError:
            return False  # The page is being replaced.

    def text(self) -> str:
        """Return what the page says."""
        return self.run("document.body.innerText")

    def click(self, label: str) -> None:
        """Click a button or a link by what is written on it."""
        found = f"[...document.querySelectorAll('button, a')].find((e) => e.innerText.trim() === {json.dumps(label)})"
        # Found and clicked in one step: an update may replace it in between.
        self.until(f"((element) => element ? (element.click(), true) : false)({found})")

    def screen(self, width: int, height: int, scheme: str) -> None:
        """Set the size of the screen, and light or dark."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path: Path) -> None:
        """Keep a picture of the page."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._write)
        os.close(self._read)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE)
