"""The report page of runs that are still going on, served on this machine only.

The server listens on the loopback address and answers only requests that name it: a page of some
other site whose name leads to 127.0.0.1 (DNS rebinding) is refused. It answers GET and nothing
else, and what it sends is drawn from the run folders, which it only reads.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fedloom.core.errors import RunError, UserError
from fedloom.experiment.stored_run import StoredRun, read_run
from fedloom.metrics.curve import CurveOptions
from fedloom.reports.by_method import by_method
from fedloom.reports.comparison import compare_runs
from fedloom.reports.page.facts import Kept
from fedloom.reports.page.html import element
from fedloom.reports.page.page import document, render
from fedloom.runs.folder_layout import ANALYSIS, METRICS, RESULT, each_run

ADDRESS = "127.0.0.1"
NAMES = (ADDRESS, "localhost")
WATCHED = (METRICS, RESULT, f"{ANALYSIS}/analysis.json")
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class LivePage:
    """The page of some run folders, drawn again when they have changed.

    A folder of `compare` or `sweep` stands for the runs inside it, also those that begin later.
    """

    def __init__(self, folders: Sequence[Path], options: CurveOptions | None = None) -> None:
        self._folders, self._options = list(folders), options
        self._kept, self._lock = Kept(), threading.Lock()
        self._drawn: tuple[str, str] = ("", "")

    def state(self) -> str:
        """Changes when a run has a new round, a result or an analysis."""
        facts = [_stamp(run / name) for run in each_run(self._folders) for name in WATCHED]
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]

    def text(self) -> str:
        """The page as it is now."""
        with self._lock:
            state = self.state()  # before reading: a later change is then noticed
            if self._drawn[0] != state:
                self._drawn = state, self._draw(state)
            return self._drawn[1]

    def _draw(self, state: str) -> str:
        try:
            runs = [read_run(folder) for folder in each_run(self._folders)]
            begun = [run for run in runs if run.history.accuracy]
            if not begun:
                return _message("No run has been evaluated yet. The page waits for it.", state)
            comparison = compare_runs(by_method(begun), self._options)
            return render(comparison, None if _all_finished(runs) else state, self._kept)
        except (UserError, RunError, OSError) as problem:
            return _message(str(problem), state)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.lstat()
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


def _all_finished(runs: Sequence[StoredRun]) -> bool:
    return all(run.result is not None for run in runs)


def _message(text: str, state: str) -> str:
    body = element("main", element("h1", "fedloom watch"), element("p", text))
    return document("fedloom watch", body, state)


def open_server(page: LivePage, port: int = 0) -> ThreadingHTTPServer:
    """A server of this page. port: 0 for any that is free."""

    class Handler(_Handler):
        """Of this page."""

    Handler.page = page
    try:
        server = ThreadingHTTPServer((ADDRESS, port), Handler)
    except OSError as error:
        raise UserError(
            f"port {port} cannot be used ({error.strerror}); choose another --port, or 0 for any"
        ) from error
    server.daemon_threads = True
    Handler.hosts = frozenset(f"{name}:{server.server_port}" for name in NAMES)
    return server


class _Handler(BaseHTTPRequestHandler):
    """Answers `/` with the page and `/state` with its state."""

    page: LivePage
    hosts: frozenset[str]  # names of this server, with its port
    server_version = "fedloom"
    sys_version = ""
    timeout = 30  # seconds that a request may take to arrive

    def do_GET(self) -> None:
        if not self._is_for_us():
            self._answer(HTTPStatus.FORBIDDEN, "this server answers on its own address only\n")
        elif self.path == "/":
            self._answer(HTTPStatus.OK, self.page.text(), "text/html")
        elif self.path == "/state":
            self._answer(HTTPStatus.OK, self.page.state())
        else:
            self._answer(HTTPStatus.NOT_FOUND, "there is only the page /\n")

    def _is_for_us(self) -> bool:
        """Whether the request names this server, and not another name that leads here."""
        named = self.headers.get_all("Host") or []
        return len(named) == 1 and named[0] in self.hosts

    def _answer(self, status: HTTPStatus, text: str, kind: str = "text/plain") -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""
