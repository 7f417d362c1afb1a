"""`fedloom watch`: the page on this machine only, up to date, and a clean end."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.talk import fedloom, run
from fedloom.reports.live import LivePage, open_server


@contextmanager
def serving(*folders: Path) -> Iterator[int]:
    """The port of a server of these runs."""
    with open_server(LivePage(folders)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def ask(
    port: int, path: str = "/", host: str | None = None, method: str = "GET"
) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    text = answer.read().decode()
    if answer.status == 200:
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["Access-Control-Allow-Origin"] is None
    connection.close()
    return answer.status, text


def test_the_page_follows_the_run(desk: Path) -> None:
    run(desk / "a")
    result = (desk / "a/result.json").read_bytes()
    lines = (desk / "a/metrics.jsonl").read_text().splitlines(keepends=True)
    (desk / "a/result.json").unlink()
    more = json.dumps({**json.loads(lines[-1]), "round": 4, "rejected": {"2": "too late"}})
    with serving(desk / "a") as port:
        status, text = ask(port)
        found = re.search(r'<body data-state="(\w+)"', text)
        assert status == 200 and found is not None and "too late" not in text
        assert ask(port, "/state") == (200, found[1])
        (desk / "a/metrics.jsonl").write_text("".join([*lines, more + "\n"]))
        assert ask(port, "/state")[1] != found[1]
        assert "too late" in ask(port)[1]
        (desk / "a/metrics.jsonl").write_text("".join(lines))
        (desk / "a/result.json").write_bytes(result)
        assert "<body data-state" not in ask(port)[1]  # finished: nothing to ask for


def test_a_run_without_an_evaluation_is_waited_for(desk: Path) -> None:
    run(desk / "a")
    for name in ("result.json", "metrics.jsonl"):
        (desk / "a" / name).unlink()
    for file in (desk / "a/checkpoint").iterdir():
        file.unlink()
    with serving(desk / "a") as port:
        status, text = ask(port)
    assert status == 200 and "waits" in text and "<body data-state" in text


def test_a_folder_of_runs_shows_those_that_begin_later_too(desk: Path) -> None:
    run(desk / "all/a")
    with serving(desk / "all") as port:
        before = ask(port)[1]
        run(desk / "all/b", "--method", "fedprox")
        assert "fedprox" not in before and "fedprox" in ask(port)[1]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{}", "127.0.0.1", "[::1]:{}", ""])
def test_requests_that_name_another_host_are_refused(desk: Path, host: str) -> None:
    """A page of evil.example whose name leads to 127.0.0.1 must not read the runs."""
    run(desk / "a")
    with serving(desk / "a") as port:
        for path in ("/", "/state"):
            status, text = ask(port, path, host.format(port))
            assert status == 403 and "fedavg" not in text
        assert ask(port, host=f"localhost:{port}")[0] == 200


def test_only_the_page_and_only_reading(desk: Path) -> None:
    run(desk / "a")
    with serving(desk / "a") as port:
        for path in ("/a/config.toml", "/../a/config.toml", "/state/"):
            assert ask(port, path)[0] == 404
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert ask(port, method=method)[0] == 501


def test_the_server_listens_on_loopback(desk: Path) -> None:
    with open_server(LivePage([desk / "a"])) as server:
        assert server.server_address[0] == "127.0.0.1"


def test_bad_folders_and_ports_are_errors_at_once(desk: Path) -> None:
    run(desk / "a")
    assert "is not the folder of a run" in fedloom("watch", "nowhere", code=2).flat
    with serving(desk / "a") as port:
        said = fedloom("watch", "a", "--port", port, code=2).flat
        assert f"port {port} cannot be used" in said and "choose another --port" in said


def listen_to_ctrl_c() -> None:
    """Shells start background jobs that ignore SIGINT, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.skipif(os.name != "posix", reason="needs SIGINT")
def test_ctrl_c_ends_it_cleanly(desk: Path) -> None:
    run(desk / "a")
    words = [sys.executable, "-m", "fedloom", "watch", "a"]
    with subprocess.Popen(
        words, stderr=subprocess.PIPE, text=True, preexec_fn=listen_to_ctrl_c
    ) as running:
        assert running.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", running.stderr.readline())
        assert found is not None
        assert ask(int(found[1]))[0] == 200
        running.send_signal(signal.SIGINT)
        rest = running.stderr.read()
    assert running.returncode == 0 and rest == "stopped\n"
