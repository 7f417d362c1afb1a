"""Power losses: what was not synced is lost, torn or out of order.

A run is recorded: before each step of trust/disk.py the folder is compared with what it was, which
gives the sequence of creations, writes, cuts, renames, deletions and syncs, SQLite's included. The
power then fails after each of them. In the model

    a write or a cut of a file is safe once that file is synced;
    a new name, a rename or a deletion is safe once its folder is synced;
    of everything else any part may have reached the disk, in any order: an operation is kept, lost,
    or, if it is a write, torn: only some of its first or of its last sectors are there.

This is weaker than what file systems promise in practice (ext4 and XFS order renames). Not
modelled: a disk that loses what it reported as synced, and damage to sectors that nobody wrote. The
index of SQLite's log (`-shm`) and the lock are left out: neither is read after a restart.
"""

from __future__ import annotations

import functools
import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trust import small_run
from trust.disk import watched
from trust.kills import SCENARIOS, Scenario, prepared
from trust.outcomes import WRONG, Outcomes, judged
from trust.recorder import Operation, Recorder, folder_of
from trust.small_run import copied

SECTOR = 512
RANDOM_SUBSETS = 12  # for each moment

Fate = Literal["kept", "lost", "a quarter", "half", "three quarters", "second half", "zeros"]
TORN: dict[Fate, float] = {"a quarter": 0.25, "half": 0.5, "three quarters": 0.75}


@dataclass
class Disk:
    """Files by name, as they are found after the power is back."""

    names: dict[str, int]
    contents: dict[int, bytes]
    folders: set[str]

    def apply(self, op: Operation, fate: Fate) -> None:
        if op.kind == "folder":
            self.folders.add(op.path)
        elif op.kind in ("name", "rename"):
            if self.names.get(op.path) == op.file:
                del self.names[op.path]
            self.names[op.target or op.path] = op.file
        elif op.kind == "delete" and self.names.get(op.path) == op.file:
            del self.names[op.path]
        elif op.kind == "cut":
            self.contents[op.file] = self.contents.get(op.file, b"")[: op.offset]
        elif op.kind == "write":
            self._write(op, fate)

    def _write(self, op: Operation, fate: Fate) -> None:
        data = op.data
        if fate in TORN:
            data = data[: _sectors(op, TORN[fate])]
        elif fate == "zeros":
            data = bytes(len(data))
        elif fate == "second half":
            written = _sectors(op, 0.5)
            data = bytes(written) + data[written:]
        before = self.contents.get(op.file, b"").ljust(op.offset, b"\0")
        self.contents[op.file] = before[: op.offset] + data + before[op.offset + len(data) :]

    def write_to(self, folder: Path) -> None:
        for name in sorted(self.folders):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for path, file in self.names.items():
            with suppress(FileNotFoundError):  # a file whose folder was lost is lost with it
                (folder / path).write_bytes(self.contents.get(file, b""))

    def digest(self) -> bytes:
        digest = hashlib.sha256(repr(sorted(self.folders)).encode())
        for path, file in sorted(self.names.items()):
            content = self.contents.get(file, b"")
            digest.update(f"{path}|{len(content)}|".encode())
            digest.update(content)
        return digest.digest()


def _sectors(op: Operation, share: float) -> int:
    """A share of a write, up to a boundary of the disk's sectors."""
    end = (op.offset + round(share * len(op.data))) // SECTOR * SECTOR
    return max(end - op.offset, 0)


@dataclass(frozen=True)
class Recording:
    """A run, the state before it, and the rounds that it reported, by number of operations."""

    before: Disk
    operations: list[Operation]
    safe: list[tuple[int, int]]

    def disk(self, moment: int, fates: dict[int, Fate]) -> Disk:
        """The disk after a power loss. fates: what became of operations that were not safe."""
        disk = Disk(dict(self.before.names), dict(self.before.contents), set(self.before.folders))
        for number, operation in enumerate(self.operations[:moment]):
            fate = fates.get(number, "kept")
            if fate != "lost":
                disk.apply(operation, fate)
        return disk

    def safe_round(self, moment: int) -> int:
        return max((round for at, round in self.safe if at <= moment), default=0)

    def pending(self, moment: int) -> list[int]:
        """The operations that were not safe yet."""
        synced_files: set[int] = set()
        synced_folders: set[str] = set()
        pending = []
        for number in reversed(range(moment)):
            op = self.operations[number]
            if op.kind == "sync":
                synced_files.add(op.file)
            elif op.kind == "sync folder":
                synced_folders.add(op.path)
            elif op.kind in ("write", "cut"):
                pending += [number] if op.file not in synced_files else []
            elif folder_of(op.target or op.path) not in synced_folders:
                pending.append(number)
        return pending[::-1]


def record(base: Path, done: int) -> Recording:
    """Resume or start the run in a folder, step by step."""
    recorder = Recorder(base)
    before = Disk(dict(recorder.names), dict(recorder.contents), set(recorder.folders))
    with watched(base, recorder):
        small_run.go_on(base / "run", recorder.reported)
    recorder.settle()
    return Recording(before, recorder.operations, [(0, done), *recorder.safe])


def losses(
    recording: Recording, moments: Iterable[int], rng: random.Random
) -> Iterator[tuple[int, dict[int, Fate]]]:
    """Power losses at these moments, with what becomes of the operations that were not safe."""
    for moment in moments:
        for fates in _fates(recording.operations, recording.pending(moment), rng):
            yield moment, fates


def _fates(
    operations: list[Operation], pending: list[int], rng: random.Random
) -> Iterator[dict[int, Fate]]:
    all_lost: dict[int, Fate] = dict.fromkeys(pending, "lost")
    yield {}
    yield all_lost
    for number in pending:
        for fate in _possible(operations[number]):
            yield {number: fate}  # it alone is lost or torn
            yield {**all_lost, number: "kept" if fate == "lost" else fate}  # it alone survives
    for _ in range(RANDOM_SUBSETS if len(pending) > 1 else 0):
        yield {n: rng.choice(["kept", *_possible(operations[n])]) for n in pending}


def _possible(operation: Operation) -> list[Fate]:
    if operation.kind != "write":
        return ["lost"]
    return ["lost", *TORN, "second half", "zeros"]


def attack(
    share: float = 1.0, seed: int = 0, scenarios: Sequence[Scenario] = SCENARIOS
) -> Outcomes:
    """Power losses after every operation of three recordings, or after a share of them.

    Only losses that leave different disks are tried and counted.
    """
    rng, outcomes = random.Random(seed), Counter[str]()
    for scenario, base, shop in prepared(scenarios):
        recording = record(copied(base, shop / "place"), scenario.done)
        every = range(len(recording.operations) + 1)
        moments = sorted(rng.sample(every, max(1, round(share * len(every)))))
        for moment, fates in _different(recording, losses(recording, moments, rng)):
            name = f"{scenario.name}, after operation {moment}: {fates}"
            case = functools.partial(_tried, shop, recording, moment, fates)
            outcomes[judged(name, case)] += 1
    return outcomes


def _different(
    recording: Recording, cases: Iterable[tuple[int, dict[int, Fate]]]
) -> list[tuple[int, dict[int, Fate]]]:
    """One case for every disk that can be found; of equal ones the latest, of which most is due."""
    by_disk = {recording.disk(*case).digest(): case for case in cases}
    return list(by_disk.values())


def _tried(shop: Path, recording: Recording, moment: int, fates: dict[int, Fate]) -> str:
    empty = shop / "empty"
    empty.mkdir(exist_ok=True)
    place = copied(empty, shop / "place")
    recording.disk(moment, fates).write_to(place)
    rounds: list[int] = []
    outcome = small_run.resume(place / "run", rounds.append)
    if rounds and rounds[0] <= recording.safe_round(moment):
        return WRONG  # a reported round was lost
    return outcome
