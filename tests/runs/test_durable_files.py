"""Durable writes, seals, the journal and the lock."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedloom.core.errors import RunError, UserError
from fedloom.runs.durable_files import seal, unseal, write_durably
from fedloom.runs.journal import Journal, begins_with, records
from fedloom.runs.lock import Lock

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def failing(number: int, message: str) -> Any:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise OSError(number, message)

    return fail


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EDQUOT, "free some space"),
        (errno.EROFS, "change its permissions"),
        (errno.EIO, "check the disk"),
    ],
)
def test_a_write_that_fails_says_so_and_leaves_the_old_file(
    call: str, number: int, said: str, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_durably(disk / "facts", b"old")
    monkeypatch.setattr(os, call, failing(number, os.strerror(number)))
    with pytest.raises(RunError, match=rf"facts: {os.strerror(number).lower()}; {said}"):
        write_durably(disk / "facts", b"new")
    assert (disk / "facts").read_bytes() == b"old"
    assert [p.name for p in disk.iterdir()] == ["facts"]


def test_a_missing_folder_is_named(disk: Path) -> None:
    with pytest.raises(
        RunError, match="gone/facts: no such file or directory; put back the folder it belongs in"
    ):
        write_durably(disk / "gone" / "facts", b"new")


@given(st.dictionaries(st.text().filter(lambda name: name != "checksum"), JSON, max_size=4))
def test_sealed_facts_come_back(facts: dict[str, Any]) -> None:
    assert json.dumps(unseal(seal(facts))) == json.dumps(facts)


@given(st.data())
def test_a_seal_notices_any_changed_byte(data: st.DataObject) -> None:
    whole = bytearray(seal({"round": 3, "names": ["a", "b"], "rate": 0.1}))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    assert unseal(bytes(whole)) is None


def test_integer_keys_are_sealed_as_strings() -> None:
    assert unseal(seal({"refused": {10: "late", 9: "NaN"}})) == {
        "refused": {"10": "late", "9": "NaN"}
    }


def test_the_journal_keeps_its_own_checksum(disk: Path) -> None:
    journal = Journal(disk / "metrics.jsonl")
    for round in range(3):
        journal.append({"round": round})
    said = journal.sync()
    journal.append({"round": 3})
    data = (disk / "metrics.jsonl").read_bytes()
    assert begins_with(data, said) and said["bytes"] == 39
    assert not begins_with(data[:38], said) and not begins_with(b"x" + data[1:], said)
    journal.truncate(26)
    journal.append({"round": 7})
    assert records((disk / "metrics.jsonl").read_bytes()) == [
        {"round": 0},
        {"round": 1},
        {"round": 7},
    ]
    assert begins_with((disk / "metrics.jsonl").read_bytes(), journal.sync())


def test_a_line_that_does_not_fit_on_the_disk_is_removed_again(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(disk / "metrics.jsonl")
    journal.append({"round": 1})
    real = journal._file

    class Full:
        """Takes the first four bytes, as a full disk does."""

        truncate, fileno = real.truncate, real.fileno

        def write(self, line: bytes) -> int | None:
            return real.write(line[:4])

    monkeypatch.setattr(journal, "_file", Full())
    with pytest.raises(RunError, match=r"metrics\.jsonl: no space left on device; free some space"):
        journal.append({"round": 2})
    monkeypatch.setattr(journal, "_file", real)
    journal.append({"round": 2})
    assert records((disk / "metrics.jsonl").read_bytes()) == [{"round": 1}, {"round": 2}]
    assert begins_with((disk / "metrics.jsonl").read_bytes(), journal.sync())


def test_lines_of_a_repeated_round_replace_the_earlier_ones() -> None:
    lines = [{"round": 1, "a": 1}, {"note": "x"}, {"round": 2}, {"note": "y"}, {"round": 1, "a": 2}]
    data = b"".join(json.dumps(entry).encode() + b"\n" for entry in lines)
    assert records(data) == [{"round": 1, "a": 2}, {"note": "x"}, {"round": 2}, {"note": "y"}]
    assert records(data + b'{"round": 3') == records(data)
    assert records(data + b"[3]\n" + data) == records(data)


HOLD = """
import sys, time, pathlib
from fedloom.runs.lock import Lock
lock = Lock(pathlib.Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def test_a_second_process_is_rejected_until_the_first_has_ended(disk: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(disk / "lock")], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(
            UserError, match=rf"{disk} is being written by process {holder.pid} on .*; wait"
        ):
            Lock(disk / "lock")
        holder.send_signal(signal.SIGKILL)
    Lock(disk / "lock").close()
    assert (disk / "lock").read_text().startswith(f"process {os.getpid()} on ")


def test_one_process_does_not_lock_twice(disk: Path) -> None:
    held = Lock(disk / "lock")
    with pytest.raises(UserError, match=f"is being written by process {os.getpid()}"):
        Lock(disk / "lock")
    held.close()
    Lock(disk / "lock").close()


def test_a_lock_that_cannot_be_written_is_named(disk: Path) -> None:
    with pytest.raises(UserError, match="gone/lock: no such file or directory"):
        Lock(disk / "gone" / "lock")
