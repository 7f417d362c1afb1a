"""The resident worker of a site: what a stranger may send to its socket, and how it ends."""

import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.served_worker import HELLO, LIMIT, Served
from deploy.three_sites import HOSPITALS
from fedloom.core.errors import UserError
from fedloom.deploy.site import framing
from fedloom.deploy.site.settings import read_settings
from fedloom.deploy.site.worker import is_listening, listening, main
from fedloom.engines.flower import messages

pytestmark = pytest.mark.posix


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("w"))
    yield served
    served.close()


def frame(*parts: tuple[bytes, bytes], count: int | None = None, start: bytes = b"fdlm") -> bytes:
    data = start + struct.pack("<H", len(parts) if count is None else count)
    for name, content in parts:
        data += struct.pack("<H", len(name)) + name + struct.pack("<Q", len(content)) + content
    return data


GARBAGE = {
    "nothing": b"",
    "garbage": b"GET / HTTP/1.1\r\n\r\n",
    "zeros": b"\0" * 100,
    "truncated": frame((b"request", b"x" * 100))[:-1],
    "no request": frame(),
    "too many parts": frame(count=60000),
    "long name": b"fdlm" + struct.pack("<HH", 1, 65535),
    "no text": frame((b"\xff\xfe", b"")),
    "oversize": b"fdlm" + struct.pack("<HH", 1, 1) + b"a" + struct.pack("<Q", 2**63),
    "oversize together": frame((b"a", b"x" * (LIMIT - 5)), (b"b", b"x" * 10)),
    "wrong content": frame((b"request", b"x" * 1000)),
    "wrong kind": frame((b"request", messages.error_reply(messages.NO_HEADER, "x")["reply"])),
    "other part": frame((b"reply", b"")),
}


@pytest.mark.parametrize("case", GARBAGE)
def test_the_worker_survives_whatever_is_sent(case: str, worker: Served) -> None:
    received = worker.sent(GARBAGE[case])
    if received:
        parts = _parsed(received)
        reply = messages.read_reply(parts, LIMIT)
        assert isinstance(reply, messages.ErrorReply) and "site 'north'" in reply.reason
    assert worker.says_hello()


def _parsed(data: bytes) -> dict[str, bytes]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(data)
        return framing.receive(theirs, LIMIT)


@pytest.mark.parametrize("case", ["garbage", "oversize", "too many parts", "wrong content"])
def test_garbage_is_answered_with_a_reason(case: str, worker: Served) -> None:
    assert worker.sent(GARBAGE[case])


def test_a_silent_or_slow_stranger_does_not_block_it(worker: Served) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(worker.path))
        silent.sendall(b"fd")
        started = time.monotonic()
        assert worker.says_hello()
        assert time.monotonic() - started < 10


def test_one_who_does_not_read_the_answer_does_not_end_it(worker: Served) -> None:
    with socket.socket(socket.AF_UNIX) as rude:
        rude.connect(str(worker.path))
        framing.send(rude, HELLO)
    assert worker.says_hello()


def test_the_socket_is_for_its_owner_only(worker: Served) -> None:
    mode = worker.path.stat().st_mode
    assert stat.S_ISSOCK(mode) and mode & 0o777 == 0o600
    assert worker.path.parent.stat().st_mode & 0o777 == 0o700


def test_a_second_worker_is_refused(worker: Served) -> None:
    with pytest.raises(UserError, match="is being written by process"), listening(worker.path):
        pass
    assert worker.says_hello()


def test_places_that_are_no_good_are_refused(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 120) / "worker.sock"
    with pytest.raises(UserError, match="longer than the 100 bytes"), listening(long):
        pass
    tmp_path.chmod(0o755)
    with pytest.raises(UserError, match="is open to others"), listening(tmp_path / "w.sock"):
        pass


def test_the_socket_of_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s" / "worker.sock"
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert not is_listening(path)
    with listening(path):
        assert is_listening(path)
    assert not path.exists()


def test_messages_arrive_as_they_were_sent() -> None:
    ours, theirs = socket.socketpair()
    parts = {"request": os.urandom(3 << 20), "broadcast": b"", "ü": b"\0"}
    with ours, theirs:
        thread = threading.Thread(target=framing.send, args=(ours, parts))
        thread.start()
        assert framing.receive(theirs, 4 << 20) == parts
        thread.join()


def site_toml(folder: Path, text: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "site.toml").write_text(f'name = "north"\nserver = "localhost:9092"\n{text}')
    return folder


def test_settings_of_a_site(tmp_path: Path) -> None:
    text = (
        'trust = ["m.py:f"]\n[data]\nformat = "table"\ntarget = "ill"\n[share]\nstatistics = false'
    )
    settings = read_settings(site_toml(tmp_path, text) / "site.toml")
    assert (settings.name, settings.trust) == ("north", ("m.py:f",))
    assert not settings.shared.statistics and not settings.shared.class_counts
    source = settings.source(Path("x.csv"))
    assert (source.format, source.options) == ("table", {"target": "ill"})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("trust = 3", "field 'trust' is 3"),
        ("[share]\nrows = true", "field 'share.rows' is missing or unknown"),
        ("max_bytes = 0", "field 'max_bytes' is 0"),
    ],
)
def test_settings_of_a_site_are_checked(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=problem):
        read_settings(site_toml(tmp_path, text) / "site.toml")


def test_a_worker_process_serves_until_it_is_told_to_end(tmp_path: Path) -> None:
    kit = site_toml(tmp_path / "kit")
    data, path = HOSPITALS / "north.csv", kit / "state" / "worker.sock"
    command = [sys.executable, "-m", "fedloom.deploy.site.worker", str(kit), "--data", str(data)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert _eventually(lambda: is_listening(path))
            reply = messages.read_reply(framing.ask(path, HELLO, LIMIT), LIMIT)
            assert isinstance(reply, messages.HelloReply)
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0 and not path.exists()
    assert "site 'north': 1 clients" in log and "said hello" in log
    assert (kit / "state" / "secret").stat().st_mode & 0o777 == 0o600


def _eventually(condition: Any, seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return False


def test_bad_data_end_the_process_with_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main([str(site_toml(tmp_path / "kit")), "--data", str(tmp_path / "none.csv")]) == 2
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "error: no file or folder" in capsys.readouterr().err
