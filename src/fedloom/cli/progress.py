"""A bar with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedloom.cli.output import err, say

Watch = Callable[[dict[str, Any]], None]


@contextmanager
def watching(title: str, rounds: int, done: int = 0) -> Iterator[Watch]:
    """Yields what is to be called with every round's metrics line."""
    if err.is_terminal:
        with _bar() as bar:
            task = bar.add_task(title, total=rounds, completed=done, note="")
            yield lambda line: bar.update(task, completed=line["round"], note=_note(line))
    else:
        started = time.perf_counter()
        yield lambda line: say(
            f"{title}: round {line['round']}/{rounds}{_note(line)}, {_left(started, line['round'] - done, rounds - done)}"
        )


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(*columns, TextColumn("{task.fields[note]}"), console=err)


def _note(line: dict[str, Any]) -> str:
    scored = f", accuracy {line['accuracy']:.4f}" if "accuracy" in line else ""
    refused = f", {len(line['refused'])} refused" if line["refused"] else ""
    return f", {len(line['participants'])} clients{scored}, loss {line['train_loss']:.4f}{refused}"


def _left(started: float, done: int, total: int) -> str:
    seconds = (time.perf_counter() - started) / max(done, 1) * (total - done)
    return f"{seconds:.0f} s left"
