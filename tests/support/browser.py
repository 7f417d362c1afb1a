"""Debian's chromium, driven through chromedriver with nothing but the standard library.

The protocol is WebDriver: JSON over HTTP. The browser is started with a fresh profile and without
services that talk to the network by themselves.
"""

import base64
import contextlib
import json
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--disable-dev-shm-usage",
)
MISSING = "needs chromium and chromedriver: apt-get install chromium chromium-driver"


def is_installed() -> bool:
    """Whether there is a browser to test with."""
    return all(map(shutil.which, ("chromium", "chromedriver")))


class Browser:
    """One window."""

    def __init__(self, port: int, profile: str) -> None:
        self._server = f"http://127.0.0.1:{port}"
        options = {"args": [*FLAGS, f"--user-data-dir={profile}"], "binary": which("chromium")}
        logs = {"browser": "ALL", "performance": "ALL"}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": logs}
        found = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{found['sessionId']}"

    def open(self, address: str) -> None:
        """Load a page; messages and requests from before are forgotten."""
        self._load("about:blank")
        self.messages()
        self.requests()
        self._load(address)

    def _load(self, address: str) -> None:
        self._ask("POST", f"{self._session}/url", {"url": address})

    def run(self, script: str) -> Any:
        """What a script returns."""
        return self._ask("POST", f"{self._session}/execute/sync", {"script": script, "args": []})

    def click(self, selector: str) -> None:
        """A real click at the first element that a selector finds."""
        where = {"using": "css selector", "value": selector}
        (name,) = self._ask("POST", f"{self._session}/element", where).values()
        self._ask("POST", f"{self._session}/element/{name}/click", {})

    def screen(self, width: int, height: int, phone: bool = False, scheme: str = "light") -> None:
        """The size of the screen, and whether it is dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self.protocol("Emulation.setDeviceMetricsOverride", size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.protocol("Emulation.setEmulatedMedia", {"features": [feature]})

    def picture(self, path: Path, width: int, height: int, top: int = 0) -> None:
        """A part of the page as PNG, whether it is on the screen or not."""
        clip = {"x": 0, "y": top, "width": width, "height": height, "scale": 1}
        found = self.protocol(
            "Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True}
        )
        path.write_bytes(base64.b64decode(found["data"]))

    def protocol(self, command: str, parameters: dict[str, Any]) -> Any:
        """A command of chromium's own protocol."""
        words = {"cmd": command, "params": parameters}
        return self._ask("POST", f"{self._session}/goog/cdp/execute", words)

    def messages(self) -> list[str]:
        """What the console has shown since the last call."""
        found = self._ask("POST", f"{self._session}/se/log", {"type": "browser"})
        return [entry["message"] for entry in found]

    def requests(self) -> list[str]:
        """The addresses that were asked for since the last call."""
        found = self._ask("POST", f"{self._session}/se/log", {"type": "performance"})
        events = [json.loads(entry["message"])["message"] for entry in found]
        sent = [e for e in events if e["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def quit(self) -> None:
        self._ask("DELETE", self._session)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._server}{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]


def which(program: str) -> str:
    found = shutil.which(program)
    assert found is not None, MISSING
    return found


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A browser that ends with the block, its driver and its profile with it."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        subprocess.Popen(
            [which("chromedriver"), "--port=0"], stdout=subprocess.PIPE, text=True
        ) as driver,
    ):
        window = None
        try:
            window = Browser(_port(driver), profile)
            yield window
        finally:
            if window is not None:
                window.quit()
            driver.terminate()


def _port(driver: subprocess.Popen[str]) -> int:
    """The port that the driver says it has chosen."""
    assert driver.stdout is not None
    for line in driver.stdout:
        if "started successfully on port" in line:
            return int(line.rstrip(".\n ").rpartition(" ")[2])
    raise RuntimeError("chromedriver did not start")
