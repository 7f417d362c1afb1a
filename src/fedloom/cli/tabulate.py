"""`fedloom compare --preset PAPER/TABLE`: a table of a paper made again, ours beside the printed numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedloom.cli.output import out, print_json, say, table

if TYPE_CHECKING:
    from fedloom.study.compare import Cell
    from fedloom.study.presets.table import Printed, Scale, Table
    from fedloom.study.tabulate import Figure

Settings = dict[str, Any]


def tabulate(
    study: Table,
    scale: Scale,
    seeds: Sequence[int],
    folder: Path,
    over: Callable[[Settings], Settings],
    work_off: Callable[[Sequence[Cell]], None],
    as_json: bool,
) -> None:
    """Run what is not done yet of a table, then print it, one block a column."""
    from fedloom.study import tabulate as room

    for line in header(study, scale):
        say(line)
    spots = room.plan(study, scale, seeds, folder, over)
    work_off(room.cells_of(spots))
    found = room.figures(spots)
    if as_json:
        known = {"preset": study.name, "scale": scale, "cut": study.about.cut if scale == "small" else ""}
        print_json({**known, "figures": [f.describe() for f in found], "out": str(folder)})
        return
    for column in study.columns:
        out.print(_block(column.name, [f for f in found if f.column == column.name]))
    out.print(f"{READING}; runs: {folder}", highlight=False)


READING = "ours: mean over seeds; std: over seeds; gain: over the first row, seed by seed; paper: as printed, at its own scale"


def header(study: Table, scale: Scale) -> list[str]:
    """What is run and what was cut of it."""
    about = study.about
    said = [f"{study.name}: {about.title}", f"paper: {about.settings}"]
    said += [f"departs: {about.departs}"] if about.departs else []
    return [*said, f"scale small, cut: {about.cut}" if scale == "small" else "scale paper: nothing cut"]


def _block(name: str, figures: Sequence[Figure]) -> Any:
    from fedloom.study.tabulate import gain

    first = figures[0]
    lines = [
        [
            f.row,
            _number(f.mean),
            _number(f.std),
            _number(gain(f, first), "+"),
            str(f.printed or "-"),
            _number(_printed_gain(f.printed, first.printed), "+"),
            f"{f.seconds:.0f}",
        ]
        for f in figures
    ]
    columns = ["row", "ours", "std", "gain", "paper", "gain", "seconds"]
    return table(columns, lines, title=name, right=(1, 2, 3, 4, 5, 6))


def _printed_gain(printed: Printed | None, first: Printed | None) -> float | None:
    return None if printed is None or first is None else printed.mean - first.mean


def _number(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}.2f}"
