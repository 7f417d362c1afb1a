"""The figures of a suite next to the paper's, as lines of text, a table per preset and column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedloom.claims.cell_verdict import cell_verdict
from fedloom.claims.result_files import Figure, ResultFile
from fedloom.claims.suites import rule
from fedloom.metrics.paired import paired_difference
from fedloom.settings.paper_table import Printed
from fedloom.settings.presets import names, preset

COLUMNS = ("row", "ours", "gains", "mean gain", "interval", "paper", "verdict")


@dataclass(frozen=True)
class FigureTable:
    """One column of a paper's table; the gains of its lines are over the first row."""

    preset: str
    column: str
    metric: str
    lines: Sequence[Sequence[str]]


def figure_tables(result: ResultFile) -> list[FigureTable]:
    """A table for each preset and column of a result file."""
    by_column: dict[tuple[str, str], list[Figure]] = {}
    for figure in result.figures:
        by_column.setdefault((figure.preset, figure.column), []).append(figure)
    return [
        FigureTable(*place, rows[0].metric, [_line(row, rows[0], result) for row in rows])
        for place, rows in by_column.items()
    ]


def confidence(result: ResultFile) -> float:
    """Of its intervals: higher after the one extension to more seeds."""
    return rule().extended_confidence if result.extended else rule().confidence


def _line(figure: Figure, first: Figure, result: ResultFile) -> list[str]:
    """A row's cells: gains are over the first row, for the seeds that both have."""
    level = confidence(result)
    ours, theirs = _known(figure), _known(first)
    complete = len(ours) == len(figure.by_seed)
    mean = f"{sum(ours.values()) / len(ours):.2f}" if ours and complete else "-"
    found = None if figure is first else paired_difference(ours, theirs, level)
    gains = [f"{ours[seed] - theirs[seed]:+.2f}" for seed in ours if seed in theirs]
    interval, printed = "-", printed_number(figure)
    if found is not None and found.interval is not None:
        interval = f"[{found.interval[0]:+.2f}, {found.interval[1]:+.2f}]"
    return [
        figure.row,
        mean,
        "-" if found is None else " ".join(gains),
        "-" if found is None else f"{found.mean:+.2f}",
        interval,
        str(printed or "-"),
        cell_verdict(ours, theirs, printed, printed_number(first), result.gate.met, level),
    ]


def _known(figure: Figure) -> Mapping[int, float]:
    return {seed: value for seed, value in figure.by_seed.items() if value is not None}


def printed_number(figure: Figure) -> Printed | None:
    """What the paper prints in this cell; None if it has no such cell."""
    found = preset(figure.preset).table if figure.preset in names() else None
    rows = () if found is None else found.rows
    printed = {row.name: row.printed.get(figure.column) for row in rows}
    return printed.get(figure.row)
