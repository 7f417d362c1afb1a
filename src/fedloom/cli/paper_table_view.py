"""`fedloom compare --preset PAPER/TABLE`: a table of a paper made again, ours beside the printed numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedloom.cli.comparison_view import drawn
from fedloom.cli.output import out, print_json, print_table, rounds_to, say, table

if TYPE_CHECKING:
    from fedloom.experiment.schedule import PlannedRun
    from fedloom.reports.paper_table import Figure
    from fedloom.settings.paper_table import Scale, Table

Settings = dict[str, Any]


def show_table(
    study: Table,
    scale: Scale,
    seeds: int,
    folder: Path,
    over: Callable[[Settings], Settings],
    run_all: Callable[[Sequence[PlannedRun]], None],
    as_json: bool,
) -> None:
    """Run what is not done yet of a table, then print it, one block a column."""
    from fedloom.reports import paper_table as room

    for line in header(study, scale):
        say(line)
    spots = room.plan(study, scale, seeds, folder, over)
    run_all(room.runs_of(spots))
    found = room.figures(spots)
    choices = room.over_choices(spots, found)
    picture = _drawn(choices or found, folder / "table.png", study.name)
    if as_json:
        known = {
            "preset": study.name,
            "scale": scale,
            "cut": study.about.cut if scale == "small" else "",
        }
        print_json(
            {
                **known,
                "figures": [f.describe() for f in found],
                "choices": [f.describe() for f in choices],
                "picture": picture,
                "out": str(folder),
            }
        )
        return
    for column in study.columns:
        title = f"{column.name}: {column.measure}"
        print_table(_block(title, [f for f in found if f.column == column.name]))
        if of_column := [f for f in choices if f.column == column.name]:
            print_table(_choices(f"{title}, over choices", of_column))
    out.print(f"{READING}; runs: {folder}", highlight=False)
    if picture:
        out.print(f"picture: {picture}", highlight=False)


def _drawn(figures: Sequence[Figure], path: Path, title: str) -> str | None:
    """The picture of those figures that are percentages, if there are such and it can be drawn."""
    from fedloom.metrics.measures import counts_rounds
    from fedloom.reports.plots import effects

    shares = [f for f in figures if not counts_rounds(f.measure)]
    return str(path) if shares and drawn(lambda path: effects(shares, path, title), path) else None


READING = (
    "ours: mean over seeds, N+ where a seed does not reach the target within N rounds; std: over seeds; "
    "gain: over the first row, seed by seed; paper: as printed, at its own scale and for its own targets"
)


def header(study: Table, scale: Scale) -> list[str]:
    """What is run and what was cut of it."""
    about = study.about
    said = [f"{study.name}: {about.title}", f"paper: {about.settings}"]
    said += [f"departs: {about.departs}"] if about.departs else []
    return [
        *said,
        f"scale small, cut: {about.cut}" if scale == "small" else "scale paper: nothing cut",
    ]


def _block(title: str, figures: Sequence[Figure]) -> Any:
    columns = ["row", "ours", "std", "gain", "paper", "gain", "seconds"]
    return table(
        columns, [_line(f, figures[0]) for f in figures], title=title, right=(1, 2, 3, 4, 5, 6)
    )


def _line(figure: Figure, first: Figure) -> list[str]:
    from fedloom.metrics.measures import counts_rounds
    from fedloom.reports.paper_table import gain

    counted = counts_rounds(figure.measure)
    number = _count if counted else _number
    printed = (
        None
        if figure.printed is None or first.printed is None
        else figure.printed.gain(first.printed)
    )
    return [
        figure.row,
        rounds_to(figure.ours, figure.rounds) if counted else _number(figure.mean),
        number(figure.std),
        number(gain(figure, first), "+"),
        str(figure.printed or "-"),
        number(printed, "+"),
        f"{figure.seconds:.0f}",
    ]


def _choices(title: str, figures: Sequence[Figure]) -> Any:
    lines = [
        [f.row, str(len(f.ours)), _number(f.mean), _number(f.std), str(f.printed or "-")]
        for f in figures
    ]
    return table(
        ["take", "choices", "ours", "std", "paper"], lines, title=title, right=(1, 2, 3, 4)
    )


def _number(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}.2f}"


def _count(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{round(value, 1):{sign}g}"
