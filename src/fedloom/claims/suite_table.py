"""The figures of a suite next to the paper's, as lines of text, a table per preset and column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedloom.claims.cell_verdict import cell_verdict
from fedloom.claims.measure_words import measure_in_words
from fedloom.claims.result_files import Figure, ResultFile
from fedloom.claims.suites import rule
from fedloom.metrics.curve import rounds_to
from fedloom.metrics.paired import paired_difference
from fedloom.settings.paper_table import Printed
from fedloom.settings.presets import names, preset

COLUMNS = ("row", "ours", "gains", "mean gain", "interval", "paper", "verdict")


@dataclass(frozen=True)
class FigureTable:
    """One column of a paper's table; the gains of its lines are over the first row.

    metric: what the figures are, in words.
    """

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
        FigureTable(*place, measure_in_words(rows[0].metric), [_line(row, rows[0], result) for row in rows])
        for place, rows in by_column.items()
    ]


def confidence(result: ResultFile) -> float:
    """Of its intervals: higher after the one extension to more seeds."""
    return rule().extended_confidence if result.extended else rule().confidence


def _line(figure: Figure, first: Figure, result: ResultFile) -> list[str]:
    """A row's cells: gains are over the first row, for the seeds that both have.

    If a target was not reached on some seed, there are no gains: those of the other seeds would be
    a choice of the fast ones.
    """
    level, printed, base = confidence(result), printed_number(figure), printed_number(first)
    cells = [figure.row, _mean(figure)]
    if None in (*figure.by_seed.values(), *first.by_seed.values()):
        has_gain = printed is not None and base is not None and printed.gain(base) is not None
        is_open = has_gain and figure is not first
        verdict = "not decided (target not reached)" if is_open else "-"
        return [*cells, "-", "-", "-", str(printed or "-"), verdict]
    ours, theirs = _known(figure), _known(first)
    verdict = cell_verdict(ours, theirs, printed, base, result.gate.met, level)
    gains = ["-"] * 3 if figure is first else _gains(ours, theirs, level)
    return [*cells, *gains, str(printed or "-"), verdict]


def _mean(figure: Figure) -> str:
    values = list(figure.by_seed.values())
    if None in values:
        return rounds_to(values, figure.rounds or 0)
    known = _known(figure).values()
    return f"{sum(known) / len(known):.2f}"


def _gains(ours: Mapping[int, float], theirs: Mapping[int, float], level: float) -> list[str]:
    """The gains by seed, their mean and its interval."""
    found = paired_difference(ours, theirs, level)
    if found is None:
        return ["-", "-", "-"]
    by_seed = " ".join(f"{ours[seed] - theirs[seed]:+.2f}" for seed in ours if seed in theirs)
    if found.interval is None:
        return [by_seed, f"{found.mean:+.2f}", "-"]
    low, high = found.interval
    return [by_seed, f"{found.mean:+.2f}", f"[{low:+.2f}, {high:+.2f}]"]


def _known(figure: Figure) -> Mapping[int, float]:
    return {seed: value for seed, value in figure.by_seed.items() if value is not None}


def printed_number(figure: Figure) -> Printed | None:
    """What the paper prints in this cell; None if it has no such cell."""
    found = preset(figure.preset).table if figure.preset in names() else None
    rows = () if found is None else found.rows
    printed = {row.name: row.printed.get(figure.column) for row in rows}
    return printed.get(figure.row)
