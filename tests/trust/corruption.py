"""Damage to every file of a run folder: flipped, cut, zeroed, deleted, doubled, swapped, extended.

Four folders are damaged: runs that were stopped, killed (with the log of the database), finished,
and finished but for their result. Whoever resumes or reads a damaged run must get the true numbers
or an error.

Before the first checkpoint nothing vouches for config.toml, so such a folder is not among them.
"""

from __future__ import annotations

import functools
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from fedloom.experiment.stored_run import read_run
from trust import kills, small_run
from trust.outcomes import FAILURES, IDENTICAL, WRONG, Outcomes, judged
from trust.small_run import copied

Damage = Callable[[Path, random.Random], object]


def flip_a_bit(file: Path, rng: random.Random) -> None:
    data = bytearray(file.read_bytes() or b"\0")
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)


def change_bytes(file: Path, rng: random.Random) -> None:
    data = bytearray(file.read_bytes() or b"\0")
    for _ in range(rng.randint(2, 40)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    file.write_bytes(data)


def cut(file: Path, rng: random.Random) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: rng.randrange(len(data) + 1)])


def cut_at_a_line(file: Path, rng: random.Random) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[: rng.randrange(len(lines) + 1)]))


def zero(file: Path, rng: random.Random) -> None:
    data = bytearray(file.read_bytes())
    start = rng.randrange(len(data) + 1)
    end = min(len(data), start + rng.choice([1, 16, 512, 4096]))
    data[start:end] = bytes(end - start)
    file.write_bytes(data)


def empty(file: Path, rng: random.Random) -> None:
    file.write_bytes(b"")


def delete(file: Path, rng: random.Random) -> None:
    file.unlink()


def double(file: Path, rng: random.Random) -> None:
    file.write_bytes(file.read_bytes() * 2)


def append(file: Path, rng: random.Random) -> None:
    with file.open("ab") as opened:
        opened.write(rng.choice([b"\n", b"{}\n", b"\0" * 512, rng.randbytes(100)]))


def move_a_part(file: Path, rng: random.Random) -> None:
    data = bytearray(file.read_bytes())
    size = min(len(data) // 2, rng.choice([8, 64, 512, 4096]))
    to, origin = (rng.randrange(len(data) - size + 1) for _ in range(2))
    data[to : to + size] = data[origin : origin + size]
    file.write_bytes(data)


def swap(file: Path, rng: random.Random) -> None:
    """With a file of the same kind, such as the state of another checkpoint, or any other."""
    others = [p for p in _files(_run_of(file)) if p != file]
    alike = [p for p in others if p.suffix == file.suffix]
    other = rng.choice(alike or others)
    ours, theirs = file.read_bytes(), other.read_bytes()
    file.write_bytes(theirs)
    other.write_bytes(ours)


def pass_off(file: Path, rng: random.Random) -> None:
    """The file under the name of another round, or a copy that a tool has left."""
    name = file.name.replace(str(rng.randint(1, 9)), str(rng.randint(1, 9)))
    shutil.copy(file, file.with_name(name if name != file.name else f"{file.name}.tmp"))


def from_another_run(file: Path, rng: random.Random) -> None:
    """The same file of a run with another seed."""
    shutil.copy(_run_of(file).parent / "other" / file.relative_to(_run_of(file)), file)


DAMAGES: tuple[Damage, ...] = (
    *(flip_a_bit, change_bytes, cut, cut_at_a_line, zero, empty, delete, double, append),
    *(move_a_part, swap, pass_off, from_another_run),
)


def attack(count: int = 1000, seed: int = 0) -> Outcomes:
    """Every file of every folder in turn, each time with the next kind of damage.

    In every fifth case a second file is damaged as well.
    """
    rng, outcomes = random.Random(seed), Counter[str]()
    small_run.reference()
    with small_run.workshop() as shop:
        folders = _folders(shop)
        targets = [(name, f.relative_to(b)) for name, b in folders.items() for f in _files(b)]
        for case in range(count):
            name, file = targets[case % len(targets)]
            damage = DAMAGES[(case // len(targets) + case) % len(DAMAGES)]
            run = copied(folders[name], shop / "run")
            if damage is from_another_run and not (shop / "other" / file).exists():
                damage = flip_a_bit
            damage(run / file, rng)
            title = f"case {case}: {damage.__name__} {file} of a {name} run"
            if case % 5 == 4:
                second, file = rng.choice(DAMAGES[:-2]), rng.choice(_files(run))
                second(file, rng)
                title += f", {second.__name__} {file.name}"
            outcomes[judged(title, functools.partial(_tried, title, run))] += 1
    return outcomes


def _tried(title: str, run: Path) -> str:
    """Read the run as reports do, then resume it."""
    reading = judged(f"{title}, read", functools.partial(_read, run))
    return reading if reading in FAILURES else small_run.resume(run)


def _read(run: Path) -> str:
    """What a report reads: true numbers, if not all of them."""
    wanted, read = small_run.reference(), read_run(run)
    lines = [small_run.timeless(record.to_json()) for record in read.history]
    right = lines == wanted.lines[: len(lines)]
    if read.result is not None:
        right = right and len(lines) == len(wanted.lines)
        right = right and read.result.weights_sha256 == wanted.weights
    return IDENTICAL if right else WRONG


def _folders(shop: Path) -> dict[str, Path]:
    place = shop / "bases"
    (place / "killed").mkdir(parents=True)
    kills.killed(place / "killed" / "run", at=130, half=False)
    finished = small_run.finished(place / "finished")
    unreported = copied(finished, place / "unreported")
    (unreported / "result.json").unlink()
    small_run.finished(shop / "other", seed=1)
    return {
        "stopped": small_run.stopped(place / "stopped", after=4),
        "killed": place / "killed" / "run",
        "finished": finished,
        "unreported": unreported,
    }


def _files(run: Path) -> list[Path]:
    return sorted(p for p in run.rglob("*") if p.is_file())


def _run_of(file: Path) -> Path:
    return file.parent.parent if file.parent.name == "checkpoint" else file.parent
