"""The client store against a dictionary: remember, commit, go back, prune, reopen, in any order."""

import hashlib
import json
import shutil
import sqlite3
import tempfile
import threading
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fedloom.core.errors import RunError
from fedloom.runs import client_store
from fedloom.runs.client_store import SqliteStore
from fedloom.runs.memory_digest import MemoryDigest
from fedloom.runs.tensor_bytes import pack
from runs.conftest import MEMORY
from runs.toy import assert_same

clients, slots = st.integers(0, 3), st.sampled_from(["control", "personal solver", "ü|[1"])


class StoreMachine(RuleBasedStateMachine):
    """The reference keeps every version: versions[client, slot][round] is a value."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.store = SqliteStore(self.folder / "clients.sqlite")
        self.versions: dict[tuple[int, str], dict[int, float]] = {}
        self.pending: dict[tuple[int, str], float] = {}
        self.round = self.oldest = 0

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    def in_force(self, round: int) -> dict[tuple[int, str], int]:
        """For each memory, the round of the version that is current at the end of a round."""
        rounds = {key: [r for r in made if r <= round] for key, made in self.versions.items()}
        return {key: max(found) for key, found in rounds.items() if found}

    def digest(self, round: int) -> MemoryDigest:
        """By the definition: the sum of the checksums of (client, slot, round) and the bytes."""
        total = 0
        for (client, slot), made in self.in_force(round).items():
            data = json.dumps([client, slot, made]).encode() + pack(
                value(self.versions[client, slot][made])
            )
            total += int(hashlib.sha256(data).hexdigest(), 16)
        return MemoryDigest(len(self.in_force(round)), total % 2**256)

    @rule(client=clients, memories=st.dictionaries(slots, st.floats(-9, 9, width=32), max_size=2))
    def remember(self, client: int, memories: dict[str, float]) -> None:
        self.store.remember(client, {slot: value(v) for slot, v in memories.items()})
        self.pending |= {(client, slot): v for slot, v in memories.items()}

    @rule(rounds=st.integers(1, 2))
    def commit(self, rounds: int) -> None:
        self.round += rounds
        for key, v in self.pending.items():
            self.versions.setdefault(key, {})[self.round] = v
        self.pending = {}
        assert self.store.commit(self.round) == self.digest(self.round)

    @rule(back=st.integers(0, 3))
    def rollback(self, back: int) -> None:
        self.round = max(self.oldest, self.round - back)
        digest = self.store.digest(self.round)
        assert digest == self.digest(self.round)
        self.store.rollback_to(self.round, digest)
        self.versions = {
            key: {r: v for r, v in made.items() if r <= self.round}
            for key, made in self.versions.items()
        }
        self.pending = {}

    @rule(forward=st.integers(0, 2))
    def prune(self, forward: int) -> None:
        self.oldest = min(self.round, self.oldest + forward)
        self.store.prune(self.oldest)
        needed = sum(sum(r >= first for r in made) for made, first in self._from_oldest())
        assert self._rows() == needed

    def _from_oldest(self) -> list[tuple[dict[int, float], int]]:
        first = self.in_force(self.oldest)
        return [(made, first.get(key, 0)) for key, made in self.versions.items()]

    def _rows(self) -> int:
        if not self.store.path.exists():
            return 0
        with sqlite3.connect(self.store.path) as db:
            return int(db.execute("SELECT count(*) FROM memory").fetchone()[0])

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = SqliteStore(self.store.path)
        self.pending = {}

    @precondition(lambda self: self.oldest < self.round)
    @rule(data=st.data())
    def look_back(self, data: st.DataObject) -> None:
        round = data.draw(st.integers(self.oldest, self.round))
        reader = SqliteStore(self.store.path, read_only=True)
        reader.read_as_of(round)
        self.assert_recalls(
            reader, {key: self.versions[key][made] for key, made in self.in_force(round).items()}
        )
        reader.close()

    @invariant()
    def recalls(self) -> None:
        committed = {
            key: self.versions[key][made] for key, made in self.in_force(self.round).items()
        }
        self.assert_recalls(self.store, committed | self.pending)

    def assert_recalls(self, store: SqliteStore, expected: dict[tuple[int, str], float]) -> None:
        for client in range(4):
            memories = store.recall(client)
            assert set(memories) == {slot for c, slot in expected if c == client}
            for slot, params in memories.items():
                assert_same(params, value(expected[client, slot]))


def value(number: float) -> dict[str, torch.Tensor]:
    return {"z": torch.full((2,), number), "a": torch.tensor(int(number))}


class FilesMachine(StoreMachine):
    """The same with every memory in a file of its own; no file is ever left without its row."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(client_store, "LARGE_BYTES", 0)

    def teardown(self) -> None:
        self.patch.undo()
        super().teardown()

    @invariant()
    def has_the_files_of_its_rows(self) -> None:
        files = self.folder / "clients"
        names = {path.name for path in files.iterdir()} if files.exists() else set()
        committed = {name for name in names if not name.endswith(".tmp")}
        assert len(committed) == self._rows() and len(names - committed) == len(self.pending)


TestStore, TestFiles = StoreMachine.TestCase, FilesMachine.TestCase
for case in (TestStore, TestFiles):
    case.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@pytest.fixture
def store(disk: Path) -> SqliteStore:
    store = SqliteStore(disk / "clients.sqlite")
    for client in range(5):
        store.remember(client, {"control": value(client), "personal": value(-client)})
    store.commit(1)
    return store


def test_without_memories_there_is_no_file(disk: Path) -> None:
    store = SqliteStore(disk / "clients.sqlite")
    store.remember(3, {})
    assert store.recall(3) == {}
    assert store.commit(1) == store.digest(1) == MemoryDigest()
    store.prune(1)
    store.rollback_to(0, MemoryDigest())
    store.close()
    assert list(disk.iterdir()) == []


def test_an_empty_slot_is_a_memory(disk: Path) -> None:
    store = SqliteStore(disk / "clients.sqlite")
    store.remember(0, {"nothing": {}})
    store.commit(1)
    assert store.recall(0) == {"nothing": {}}


def test_memories_are_snapshots_on_the_device_asked_for(disk: Path) -> None:
    store, weights = SqliteStore(disk / "clients.sqlite", device="meta"), torch.zeros(3)
    store.remember(0, {"control": {"w": weights}})
    assert store.recall(0)["control"]["w"].device.type == "meta"
    store = SqliteStore(disk / "other.sqlite")
    store.remember(0, {"control": {"w": weights}})
    weights += 1
    assert store.recall(0)["control"]["w"].tolist() == [0, 0, 0]


def test_a_commit_that_fails_keeps_what_is_pending(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.remember(1, {"control": {"w": torch.zeros(200_000)}})
    with store._database.transaction() as db:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages + 3}")
    with pytest.raises(
        RunError, match=r"clients\.sqlite: database or disk is full; free some space"
    ):
        store.commit(2)
    assert store.digest(2) == store.digest(1)
    db.execute("PRAGMA max_page_count = 1000000")
    store.commit(2)
    store.close()
    assert_same(SqliteStore(store.path).recall(1)["control"], {"w": torch.zeros(200_000)})


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE memory SET value = (SELECT value FROM memory WHERE client = 2) WHERE client = 3",
        "UPDATE memory SET client = 9 WHERE client = 3",
        "UPDATE memory SET slot = 'other' WHERE client = 3 AND slot = 'control'",
        "UPDATE memory SET seal = zeroblob(32) WHERE client = 3",
        "UPDATE memory SET value = 'text' WHERE client = 3",
    ],
)
def test_a_changed_row_is_detected(store: SqliteStore, change: str) -> None:
    store.close()
    with sqlite3.connect(store.path) as db:
        db.execute(change)
    with pytest.raises(
        RunError,
        match=r"the memory '\w+' of client \d has a wrong checksum; .*fedloom run --config",
    ):
        SqliteStore(store.path).digest(1)


def test_a_lost_row_and_an_extra_genuine_row_change_the_digest(store: SqliteStore) -> None:
    before = store.digest(1)
    store.remember(7, {"control": value(7)})
    assert store.commit(2) != before
    with sqlite3.connect(store.path) as db:
        db.execute("DELETE FROM memory WHERE client = 2 AND slot = 'personal'")
    assert store.digest(1).count == before.count - 1


def test_another_thread_may_recall(store: SqliteStore) -> None:
    found: list[float] = []
    thread = threading.Thread(target=lambda: found.extend(store.recall(2)["control"]["z"].tolist()))
    thread.start()
    thread.join()
    assert found == [2.0, 2.0]


def test_a_reader_sees_committed_rows_while_the_store_is_open(store: SqliteStore) -> None:
    reader = SqliteStore(store.path, read_only=True)
    assert_same(reader.recall(4)["control"], value(4))
    store.remember(4, {"control": value(8)})
    store.commit(2)
    assert_same(reader.recall(4)["control"], value(8))
    assert reader.digest(1) == store.digest(1)
