"""Run folders in which someone has planted links, pipes, sockets or a strange database."""

import os
import shutil
import signal
import socket
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fedloom.core.errors import RunError, UserError
from fedloom.runs.durable_files import write_durably
from fedloom.runs.folder import RunFolder
from runs import toy

SECRET = b"a file of the user that has nothing to do with the run"
SECONDS = 5  # a pipe would keep the reader waiting for ever


@pytest.fixture(autouse=True)
def _deadline() -> Iterator[None]:
    def late(number: int, frame: object) -> None:
        raise AssertionError(f"no answer within {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def victim(disk: Path) -> Path:
    (disk / "victim").write_bytes(SECRET)
    return disk / "victim"


def socket_at(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))


PLANTED: dict[str, tuple[Callable[[Path], None], str]] = {
    "link": (lambda place: place.symlink_to("/proc/self/cmdline"), "a symbolic link"),
    "link to nothing": (lambda place: place.symlink_to("absent"), "a symbolic link"),
    "device": (lambda place: place.symlink_to("/dev/zero"), "a symbolic link"),
    "pipe": (os.mkfifo, "a named pipe"),
    "socket": (socket_at, "a socket"),
    "folder": (Path.mkdir, "a folder"),
}
PLACES = [
    "config.toml",
    "metrics.jsonl",
    "lock",
    "result.json.tmp",
    "result.json",
    "clients.sqlite",
    "clients.sqlite-wal",
    "clients.sqlite-shm",
    "clients.sqlite-journal",
    "checkpoint/MANIFEST-5.json",
    "checkpoint/MANIFEST-4.json",
    "checkpoint/round-5.safetensors",
]


def plant(place: Path, what: Callable[[Path], None]) -> None:
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    what(place)


def go_on(path: Path) -> None:
    """All that a resumed run does: restore, three more saves, and the result."""
    with RunFolder.open(path) as folder:
        folder.restore()
        toy.run_rounds(folder, 6, 8)
        folder.finish({"rounds": 8})


def look_at(path: Path) -> None:
    with RunFolder.read_only(path) as folder:
        folder.check_config()
        folder.restore()
        folder.metrics()
        folder.result()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("what", "said"), PLANTED.values(), ids=PLANTED)
def test_what_was_planted_is_named(
    run: Path, place: str, what: Callable[[Path], None], said: str
) -> None:
    plant(run / place, what)
    with pytest.raises((UserError, RunError), match=f"{place}: it is {said}, not a regular file; "):
        go_on(run)
    assert place in {str(p.relative_to(run)) for p in run.rglob("*")}


@pytest.mark.parametrize("place", [p for p in PLACES if p not in ("lock", "result.json.tmp")])
@pytest.mark.parametrize(("what", "said"), PLANTED.values(), ids=PLANTED)
def test_also_for_those_who_only_read(
    run: Path, place: str, what: Callable[[Path], None], said: str
) -> None:
    plant(run / place, what)
    with pytest.raises((UserError, RunError), match=f"{place}: it is {said}, not a regular file; "):
        look_at(run)


EVERY_PLACE = [
    *PLACES,
    "config.toml.tmp",
    "metrics.jsonl.tmp",
    "checkpoint/MANIFEST-3.json.tmp",
    "checkpoint/MANIFEST-6.json",
    "checkpoint/MANIFEST-6.json.tmp",
    "checkpoint/round-6.safetensors",
    "checkpoint/round-6.safetensors.tmp",
    "copying",
]


@pytest.mark.parametrize("place", EVERY_PLACE)
def test_the_target_of_a_link_is_left_alone(run: Path, victim: Path, place: str) -> None:
    """What looks like a half-written file is deleted: the link, not what it leads to."""
    plant(run / place, lambda path: path.symlink_to(victim))
    for use in (look_at, go_on):
        try:
            use(run)
        except (UserError, RunError) as error:
            assert "it is a symbolic link" in str(error) or "checkpoint" in str(error)
        assert victim.read_bytes() == SECRET and not victim.is_symlink()


@pytest.mark.parametrize(
    "place", ["lock", "metrics.jsonl", "metrics.jsonl.tmp", "config.toml.tmp", "config.toml"]
)
def test_a_new_run_in_a_folder_with_links(disk: Path, victim: Path, place: str) -> None:
    (disk / "new").mkdir()
    (disk / "new" / place).symlink_to(victim)
    with pytest.raises((UserError, RunError), match=r"symbolic link|holds a run already"):
        RunFolder.create(disk / "new", toy.CONFIG)
    assert victim.read_bytes() == SECRET


@pytest.mark.parametrize("begin", [go_on, look_at])
def test_the_checkpoint_folder_must_be_real(
    run: Path, disk: Path, begin: Callable[[Path], None]
) -> None:
    (run / "checkpoint").rename(disk / "elsewhere")
    (run / "checkpoint").symlink_to(disk / "elsewhere")
    before = sorted(p.name for p in (disk / "elsewhere").iterdir())
    with pytest.raises(UserError, match="checkpoint: it is a symbolic link, not a real folder"):
        begin(run)
    assert sorted(p.name for p in (disk / "elsewhere").iterdir()) == before


def test_a_new_run_does_not_use_a_linked_checkpoint_folder(disk: Path) -> None:
    (disk / "new").mkdir()
    (disk / "target").mkdir()
    (disk / "new/checkpoint").symlink_to(disk / "target")
    with pytest.raises(UserError, match="checkpoint: it is a symbolic link, not a real folder"):
        RunFolder.create(disk / "new", toy.CONFIG)


def test_the_run_folder_itself_may_be_a_link(run: Path, disk: Path) -> None:
    (disk / "link").symlink_to(run)
    go_on(disk / "link")


SCHEMAS = {
    "an endless view": "DROP TABLE memory; CREATE VIEW memory AS WITH RECURSIVE n(client) AS "
    "(SELECT 1 UNION ALL SELECT client + 1 FROM n) "
    "SELECT client, 'a' AS slot, 1 AS round, x'00' AS seal, x'00' AS value FROM n",
    "another view": "CREATE VIEW other AS SELECT 1",
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON memory BEGIN DELETE FROM memory; END",
    "an index": "CREATE INDEX i ON memory (hex(seal))",
    "a table": "CREATE TABLE other (a)",
    "a column": "ALTER TABLE memory ADD COLUMN a DEFAULT 1",
}


@pytest.mark.parametrize("sql", SCHEMAS.values(), ids=SCHEMAS)
@pytest.mark.parametrize("use", [go_on, look_at])
def test_a_database_holds_our_table_and_nothing_else(
    run: Path, sql: str, use: Callable[[Path], None]
) -> None:
    with closing(sqlite3.connect(run / "clients.sqlite")) as db:
        db.executescript(sql)
    with pytest.raises(RunError, match=r"clients.sqlite: it holds a .* that fedloom did not make"):
        use(run)


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_the_owner_may_read_a_run(disk: Path) -> None:
    before = os.umask(0)
    try:
        with RunFolder.create(disk / "above/run", toy.CONFIG) as folder:
            toy.run_rounds(folder, 1, 2)
            folder.finish({})
            found = {p: permissions(p) for p in (disk / "above/run").rglob("*")}
    finally:
        os.umask(before)
    assert {p.name for p in found} > {"clients.sqlite", "clients.sqlite-wal", "lock", "result.json"}
    for path, mode in found.items():
        assert mode == (0o700 if path.is_dir() else 0o600), path
    assert permissions(disk / "above/run") == 0o700
    assert permissions(disk / "above") == 0o777


def test_the_permissions_of_an_existing_folder_stay(disk: Path) -> None:
    (disk / "run").mkdir()
    (disk / "run").chmod(0o750)
    RunFolder.create(disk / "run", toy.CONFIG).close()
    assert permissions(disk / "run") == 0o750


def test_a_half_written_file_is_replaced(disk: Path) -> None:
    (disk / "facts.tmp").write_bytes(b"half")
    (disk / "facts.tmp").chmod(0o644)
    write_durably(disk / "facts", b"whole")
    assert (disk / "facts").read_bytes() == b"whole" and permissions(disk / "facts") == 0o600
    assert not (disk / "facts.tmp").exists()
