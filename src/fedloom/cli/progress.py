"""A bar with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fedloom.cli.output import err, say

Watch = Callable[[dict[str, Any]], None]


@contextmanager
def watching(title: str, rounds: int) -> Iterator[Watch]:
    """Yields what is to be called with every round's metrics line."""
    if err.is_terminal:
        with _bar() as bar:
            task = bar.add_task(title, total=rounds, note="")
            yield lambda line: bar.update(task, completed=line["round"], note=_note(line))
    else:
        began: list[tuple[int, float]] = [(-1, time.perf_counter())]
        yield lambda line: say(
            f"{title}: round {line['round']}/{rounds}{_note(line)}, {_left(began, line['round'], rounds)}"
        )


def _bar() -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, TextColumn("{task.fields[note]}"), console=err)


def _note(line: dict[str, Any]) -> str:
    scored = f", accuracy {line['accuracy']:.4f}" if "accuracy" in line else ""
    refused = f", {len(line['refused'])} refused" if line["refused"] else ""
    return f", {len(line['participants'])} clients{scored}, loss {line['train_loss']:.4f}{refused}"


def _left(began: list[tuple[int, float]], round: int, rounds: int) -> str:
    """The time left, judged from the rounds since the first line; a resumed run does not begin at round 1."""
    first, at = began[0] = (round - 1, began[0][1]) if began[0][0] < 0 else began[0]
    return f"{(time.perf_counter() - at) / (round - first) * (rounds - round):.0f} s left"
