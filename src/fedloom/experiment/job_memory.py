"""Runs at the same time under a memory limit: a run begins when what it needs is free.

What a run needs is measured: the first run of a kind has the memory for itself, and its peak is
what others of that kind are expected to need. Runs are of one kind if they differ only in settings
that take no memory, such as the seed or the learning rate.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Condition

from fedloom.core.errors import RunError, UserError, shown_text
from fedloom.settings.config import Config

MARGIN = 1.1  # a run may need a little more than another of its kind
POLL = 0.05  # seconds between two looks at a running process
STOPPED = 130  # exit code of a run that was not started since all are to stop
PROC = Path("/proc")
UNITS = {"MB": 10**6, "GB": 10**9, "MIB": 2**20, "GIB": 2**30}
WITHOUT_MEMORY = {"seed", "rounds", "guard", "checkpoint_every"}
TRAINING_WITHOUT_MEMORY = {
    *("lr", "epochs", "steps", "clip", "schedule"),
    *("weight_decay", "decay_norms", "betas", "eps"),
}


def parse_memory(text: str) -> int:
    """Bytes from text such as 8GB or 500MB.

    >>> parse_memory("1.5GB")
    1500000000
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", text)
    unit = UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None or not float(match[1]):
        raise UserError(
            f"--memory {shown_text(text)} is not an amount of memory; write for example 8GB or "
            "500MB"
        )
    return int(float(match[1]) * unit)


class MemoryGate:
    """Lets runs begin as long as they fit into a limit, in bytes; without one, all at once."""

    def __init__(self, limit: int | None = None) -> None:
        if limit is not None and not (PROC / "self" / "status").exists():
            raise UserError("--memory can be measured on Linux only; leave it out")
        self._limit = limit
        self._changed = Condition()
        self._peaks: dict[str, int] = {}
        self._reserved: list[float] = []
        self._closed = False

    def run(self, command: Sequence[str], config: Config) -> int:
        """Run the command once there is memory for it; its exit code."""
        if self._limit is None:
            return subprocess.run(command, stdout=subprocess.DEVNULL).returncode
        kind = _kind(config)
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._fits(kind))
            if self._closed:
                return STOPPED
            needed = self._needed(kind)
            self._reserved.append(needed)
        code, peak = None, 0
        try:
            code, peak = _run_watched(command)
        finally:
            with self._changed:
                self._reserved.remove(needed)
                if code == 0 and peak:
                    self._peaks[kind] = max(peak, self._peaks.get(kind, 0))
                self._changed.notify_all()
        return code

    def close(self) -> None:
        """Start no more runs."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _needed(self, kind: str) -> float:
        """What a run of this kind is expected to need; everything before one was measured."""
        assert self._limit is not None
        if kind not in self._peaks:
            return self._limit
        if self._peaks[kind] > self._limit:
            raise RunError(
                f"one run took {self._peaks[kind] / 1e6:,.0f} MB, more than --memory "
                f"{self._limit / 1e6:,.0f}MB; raise it, or use a smaller model or batch"
            )
        return min(MARGIN * self._peaks[kind], self._limit)

    def _fits(self, kind: str) -> bool:
        assert self._limit is not None
        return sum(self._reserved) + self._needed(kind) <= self._limit


def _kind(config: Config) -> str:
    """The settings that decide how much memory a run takes, as text.

    A method's weights and rates do not; its counts and choices may.
    """
    kept = config.model_dump(mode="json", exclude=WITHOUT_MEMORY)
    kept["train"] = {n: v for n, v in kept["train"].items() if n not in TRAINING_WITHOUT_MEMORY}
    kept["method"] = [
        (spec.name, {n: v for n, v in spec.args.items() if not isinstance(v, float)})
        for spec in config.method_specs
    ]
    return json.dumps(kept)


def _run_watched(command: Sequence[str]) -> tuple[int, int]:
    """The exit code of a command and the most memory that it took, with all its processes."""
    peaks: dict[int, int] = {}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while True:
            peaks |= {pid: peak for pid in _family(process.pid) if (peak := _peak(pid))}
            try:
                code = process.wait(POLL)
            except subprocess.TimeoutExpired:
                continue
            return code, sum(peaks.values())


def _family(pid: int) -> Iterator[int]:
    """A process and its descendants."""
    yield pid
    for children in (PROC / str(pid) / "task").glob("*/children"):
        for child in _text(children).split():
            yield from _family(int(child))


def _peak(pid: int) -> int:
    """The most memory that a process has had in RAM so far, in bytes; 0 if it has ended."""
    found = re.search(r"^VmHWM:\s*(\d+) kB", _text(PROC / str(pid) / "status"), re.MULTILINE)
    return 1024 * int(found[1]) if found else 0


def _text(file: Path) -> str:
    """Of a file of a process, which may end at any moment."""
    try:
        return file.read_text()
    except OSError:
        return ""
