"""Methods or runs weighed against each other: the table of `fedloom compare`, its JSON and its picture."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from fedloom.cli.output import megabytes, out, print_json, print_table, rounds_to, say, table

if TYPE_CHECKING:
    from fedloom.metrics.curve import CurveOptions
    from fedloom.reports.comparison import PlannedRun, Row

WorkOff = Callable[["Sequence[PlannedRun]"], None]


def weigh(
    raw: dict[str, Any],
    methods: Sequence[str],
    seeds: int,
    reading: CurveOptions,
    work_off: WorkOff,
    folder: Path,
    as_json: bool,
) -> None:
    """Run what is not done yet of a comparison, then show it."""
    from fedloom.reports import comparison as room

    cells = room.plan(raw, methods, seeds, folder)
    room.check_reading(cells, reading)
    work_off(cells)
    present("method", room.by_method(cells), reading, folder, as_json, Pictures())


@dataclass(frozen=True)
class Pictures:
    """What is drawn of runs beside their curves. client: whose classes, None for all; by: a setting whose effect is shown.

    compute: accuracy against what was computed for it.
    """

    client: int | None = None
    by: str | None = None
    compute: bool = False


def look(
    folders: Sequence[Path],
    reading: CurveOptions,
    folder: Path | None,
    as_json: bool,
    wish: Pictures,
) -> None:
    """Show runs as they are, finished or not, a row each; pictures only where a folder is named for them."""
    from fedloom.reports.comparison import check_runs, so_far

    check_runs(folders, reading)
    for path, rounds in so_far(folders).items():
        say(f"note: '{path}' is not finished; this is what {rounds} rounds of it came to")
    present("run", {str(path): [path] for path in folders}, reading, folder, as_json, wish)


def present(
    kind: str,
    runs: Mapping[str, Sequence[Path]],
    reading: CurveOptions,
    folder: Path | None,
    as_json: bool,
    wish: Pictures,
) -> None:
    """The table and the pictures, a row for each of a kind."""
    from fedloom.reports.comparison import rows

    found = rows(runs, reading)
    pictures = {} if folder is None else _drawn(found, runs, folder, wish)
    if as_json:
        known = {**found[0].reading.describe(), "rows": [r.describe(kind) for r in found]}
        shown = {"curves": None, "classes": None, **pictures}
        print_json({**known, **shown, "out": None if folder is None else str(folder)})
    else:
        _show(kind, found, pictures)


def _drawn(
    rows: Sequence[Row], runs: Mapping[str, Sequence[Path]], folder: Path, wish: Pictures
) -> dict[str, str]:
    """The pictures that can be drawn, by what they show."""
    from fedloom.reports import compute_curve, plots
    from fedloom.reports.client_scores import by_class
    from fedloom.reports.sweep import varied

    draw: dict[str, Callable[[Path], None]] = {
        "curves": lambda path: plots.curves(rows, path, "Test accuracy by round")
    }
    if (seen := by_class({row.name: row.own for row in rows}, runs, wish.client)) is not None:
        draw["classes"] = lambda path: plots.changes(seen.recalls, seen.classes, path, seen.title)
    every = [path for paths in runs.values() for path in paths]
    if wish.compute:
        draw["compute"] = lambda path: compute_curve.draw(
            compute_curve.tracks(every, rows[0].reading), path
        )
    if wish.by is not None:
        figures, by = varied(every, wish.by), wish.by
        draw["effects"] = lambda path: plots.effects(figures, path, f"By {by}")
    return {
        what: str(folder / f"{what}.png")
        for what, make in draw.items()
        if drawn(make, folder / f"{what}.png")
    }


def drawn(make: Callable[[Path], None], path: Path) -> bool:
    """Whether a picture could be drawn; if not, why is said."""
    from fedloom.core.errors import UserError

    try:
        make(path)
    except UserError as missing:
        say(f"note: {missing}")
        return False
    return True


def _show(kind: str, rows: Sequence[Row], pictures: Mapping[str, str]) -> None:
    """The table with a line of bars for every curve, and how it is read."""
    reading, own = rows[0].reading, any(r.personal for r in rows)
    at, to = [f"at {r}" for r in reading.at], [f"to {100 * t:.1f} %" for t in reading.targets]
    columns = [
        kind,
        *(OWN if own else ()),
        "accuracy %",
        "std",
        *at,
        *to,
        "sent",
        "seconds",
        "by round",
    ]
    ys = [y for r in rows for _, y in r.line]
    order = [(r.over_clients("recall") or 0.0) if own else r.mean for r in rows]
    lines = [
        _line(r, score == max(order), own, min(ys), max(ys))
        for r, score in zip(rows, order, strict=True)
    ]
    print_table(table(columns, lines, right=range(1, len(columns) - 1)))
    out.print(_legend(rows), highlight=False)
    if own:
        out.print(OF_CLIENTS, highlight=False)
    for what, path in pictures.items():
        out.print(f"{what}: {path}", highlight=False)


OWN = ("personal %", "worst tenth", "weighted %")
OF_CLIENTS = (
    "personal: mean recall over the classes a client has, of its own model, or of the server's where the method makes no other, "
    "mean over clients; worst tenth: of clients; weighted: accuracy weighted by a client's labels; accuracy: the server's model"
)


def _line(row: Row, best: bool, own: bool, low: float, high: float) -> list[str]:
    from fedloom.reports.plots import sparkline

    scores = (("recall", "mean"), ("recall", "worst_tenth"), ("weighted", "mean")) if own else ()
    return [
        f"[bold]{escape(row.name)}[/bold]" if best else escape(row.name),
        *(
            "-" if (score := row.over_clients(*which)) is None else f"{100 * score:.2f}"
            for which in scores
        ),
        f"{100 * row.mean:.2f}",
        f"{100 * row.std:.2f}" if len(row.accuracies) > 1 else "-",
        *(f"{100 * statistics.fmean(each):.2f}" for each in row.at),
        *(rounds_to(each, row.rounds) for each in row.reached),
        megabytes(row.bytes),
        f"{row.seconds:.1f}",
        sparkline([y for _, y in row.line], low, high, width=16),
    ]


def _legend(rows: Sequence[Row]) -> str:
    """How the columns are read."""
    what = "accuracy, at" if rows[0].reading.at else "accuracy"
    seldom = (
        " (not every round has one)" if any(len(row.curve) < row.rounds for row in rows) else ""
    )
    fewest = min(len(row.curve) for row in rows)
    how = f"{_smoothing(rows[0].reading, fewest)}{seldom}"
    return f"{what}: {how}; std: over seeds; to: first round that reaches it, N+ where a seed does not within N"


def _smoothing(reading: CurveOptions, evaluations: int) -> str:
    from fedloom.metrics.curve import LAST

    if reading.ema is None:
        return f"mean of the last {min(LAST, evaluations)} evaluations"
    begun = {"first": "begun with the first", "debiased": "debiased"}[reading.start]
    return f"moving average {reading.ema:g} over evaluations, {begun}"
