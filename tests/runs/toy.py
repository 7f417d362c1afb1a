"""A run without training, whose contents are known in advance, and which can be killed anywhere."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedloom.core.key import Key
from fedloom.core.params import Params
from fedloom.core.state import ServerState
from fedloom.runs.folder import RunFolder

CONFIG = '[train]\nlr = 0.05\nname = "toy"\n'
CLIENTS = 6
FROZEN = ("base.embedding", "base.a")  # of the model: the same in every round

Done = Callable[[int], None]


def draw(*path: str | int, shape: tuple[int, ...] = (3,)) -> Tensor:
    return torch.randn(shape, generator=Key.root(1).fold(*path).generator())


def state(round: int) -> ServerState:
    """Unsorted nested names, a counter, a scalar, an empty tensor, bfloat16, empty groups."""
    params = {
        "base.embedding": draw("e", shape=(4, 5)),
        "block.norm.weight": draw("w", round, shape=(2, 3)),
        "block.norm.num_batches_tracked": torch.tensor(2**53 + 1 + round),
        "a.scale": draw("s", round, shape=()),
        "a.none": torch.zeros(0, 4),
        "a.half": draw("h", round).to(torch.bfloat16),
        "base.a": draw("b"),
    }
    memory = {
        "momentum of model": {
            "velocity": {"block.norm.weight": draw("v", round, shape=(2, 3))},
            "later": {},
        }
    }
    shared = {"control": {"z": draw("c", round), "b": draw("d", round)}, "nothing yet": {}}
    return ServerState(round, params, memory, shared)


def new_memories(round: int) -> dict[int, dict[str, Params]]:
    """The new memories of a round; clients and slots change from round to round."""
    chosen = [(round * 2 + k) % CLIENTS for k in range(2 + round % 2)]
    return {
        c: {"control": {"z": draw("m", round, c, shape=(40,)), "a": draw("n", round, c)}}
        | ({"personal": {"head": draw("p", round, c)}} if (round + c) % 3 == 0 else {})
        for c in chosen
    }


def memories(round: int) -> dict[int, dict[str, Params]]:
    """What all clients remember after a round."""
    memories: dict[int, dict[str, Params]] = {c: {} for c in range(CLIENTS)}
    for r in range(1, round + 1):
        for client, slots in new_memories(r).items():
            memories[client] |= slots
    return memories


def line(round: int) -> dict[str, Any]:
    return {"round": round, "accuracy": 1 - 1 / (round + 1), "refused": {"3": "why"}}


def run_rounds(folder: RunFolder, first: int, last: int, done: Done = lambda round: None) -> None:
    """Rounds first to last, each saved."""
    for round in range(first, last + 1):
        for client, memories in new_memories(round).items():
            folder.store.remember(client, memories)
        folder.append_metrics(line(round))
        folder.save(state(round), frozen=FROZEN, best=round)
        done(round)


def made(path: Path, rounds: int) -> Path:
    """The folder of a toy run, closed."""
    with RunFolder.create(path, CONFIG) as folder:
        run_rounds(folder, 1, rounds)
    return path


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def assert_same(got: Params, expected: Params) -> None:
    """The same names in the same order, types, shapes and bits."""
    assert list(got) == list(expected)
    for name, tensor in expected.items():
        assert got[name].dtype == tensor.dtype and got[name].shape == tensor.shape, name
        assert torch.equal(got[name], tensor), name


def restored_round(folder: RunFolder) -> int:
    """Restore, and compare everything with what was saved in that round; 0 if there is no save."""
    restored = folder.restore()
    round = restored.state.round if restored else 0
    if restored:
        expected = state(round)
        assert_same(restored.state.tensors(), expected.tensors())
        assert (
            restored.state.memory["momentum of model"].keys()
            == expected.memory["momentum of model"].keys()
        )
        assert restored.state.shared.keys() == expected.shared.keys()
        assert restored.manifest.extra == {"best": round}
    assert_remembers(folder, memories(round))
    assert folder.metrics() == [line(r) for r in range(1, round + 1)]
    return round


def assert_remembers(folder: RunFolder, expected: dict[int, dict[str, Params]]) -> None:
    for client, slots in expected.items():
        memories = folder.store.recall(client)
        assert set(memories) == set(slots), client
        for slot, params in slots.items():
            assert_same(memories[slot], params)


def assert_no_file_without_row(path: Path) -> None:
    """The files of large memories are exactly those that rows refer to."""
    seals = rows_in_files(path / "clients.sqlite")
    assert names(path / "clients") == sorted(seals) if seals else not (path / "clients").exists()


def rows_in_files(database: Path) -> list[str]:
    """The checksums of the rows whose values are in files."""
    with closing(sqlite3.connect(database)) as db:
        return [seal.hex() for (seal,) in db.execute("SELECT seal FROM memory WHERE value = ''")]


def assert_resumes(path: Path, last: int) -> int:
    """Restore, run to the last round, and restore that; the round from which it resumed."""
    with RunFolder.open(path) as folder:
        came_from = restored_round(folder)
        run_rounds(folder, came_from + 1, last)
        assert_remembers(folder, memories(last))
    with RunFolder.open(path) as folder:
        assert restored_round(folder) == last
    return came_from


class Fuse:
    """Counts the calls that change the disk, and does something at one of them."""

    def __init__(self, at: int, blow: Callable[[str], None]) -> None:
        self.left, self.blow = at, blow

    def tick(self, what: str) -> None:
        self.left -= 1
        if self.left == 0:
            self.blow(what)

    def wire(self, patch: Callable[[object, str, object], None], statements: bool) -> None:
        """Tick before every sync, rename and deletion; optionally before SQLite statements."""
        for name in ("fsync", "replace", "unlink"):
            patch(os, name, self._ticking(name, getattr(os, name)))
        if statements:
            patch(sqlite3, "connect", self._traced(sqlite3.connect))

    def _ticking(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.tick(name)
            return real(*args, **kwargs)

        return call

    def _traced(self, real: Callable[..., sqlite3.Connection]) -> Callable[..., sqlite3.Connection]:
        def connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            db = real(*args, **kwargs)
            db.set_trace_callback(self.tick)
            return db

        return connect


def in_child(work: Callable[[Done], None]) -> tuple[int, list[int]]:
    """Run the work in a forked process; its exit status, and the numbers that it reported."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work(lambda number: os.write(theirs, bytes([number])) and None)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        reported = list(pipe.read())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), reported


def crashes(work: Callable[[Done], None]) -> Iterator[list[int]]:
    """The work, killed at its first call that changes the disk, its second, ... to its end."""
    for at in range(1, 2000):

        def blown(done: Done, at: int = at) -> None:
            Fuse(at, lambda what: os._exit(9)).wire(setattr, statements=True)
            work(done)

        status, reported = in_child(blown)
        yield reported
        if status == 0:
            return
        assert status == 9
    raise AssertionError("the work has no end")
