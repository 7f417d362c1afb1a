"""The figures of a suite next to the paper's, as lines of text, a table per preset and column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedloom.claims.measure_words import measure_in_words
from fedloom.claims.result_files import Figure, ResultFile
from fedloom.claims.row_gains import MISSED, compares_ratios, known, row_gains
from fedloom.claims.sign_check import has_printed_difference, sign_check
from fedloom.claims.suites import rule
from fedloom.metrics.curve import rounds_to
from fedloom.settings.paper_table import Printed
from fedloom.settings.presets import names, preset

SIGN = "verdict on the sign"
GAINS = ("row", "ours", "gains by seed", "mean gain", "interval", "paper", SIGN)
RATIOS = ("row", "ours", "ratios by seed", "mean ratio", "interval", "paper", SIGN)
BASELINE = "fedavg"


@dataclass(frozen=True)
class FigureTable:
    """One column of a paper's table; the gains, or ratios, of its lines are relative to row `base`.

    metric: what the figures are, in words. notes: why a column of the table is empty.
    """

    preset: str
    column: str
    metric: str
    base: str
    heads: Sequence[str]
    lines: Sequence[Sequence[str]]
    notes: Sequence[str]


def figure_tables(result: ResultFile) -> list[FigureTable]:
    """A table for each preset and column of a result file."""
    by_column: dict[tuple[str, str], list[Figure]] = {}
    for figure in result.figures:
        by_column.setdefault((figure.preset, figure.column), []).append(figure)
    return [_table(rows, result) for rows in by_column.values()]


def confidence(result: ResultFile) -> float:
    """The confidence level of its intervals: higher after the one extension to more seeds."""
    return rule().extended_confidence if result.extended else rule().confidence


def _table(rows: Sequence[Figure], result: ResultFile) -> FigureTable:
    base = _base(rows)
    return FigureTable(
        base.preset,
        base.column,
        measure_in_words(base.metric),
        base.row,
        RATIOS if compares_ratios(base) else GAINS,
        [_line(row, base, result) for row in rows],
        list(_notes(rows, base)),
    )


def _base(rows: Sequence[Figure]) -> Figure:
    """FedAvg, unless the paper prints numbers for other rows only; then the first row."""
    found = [row for row in rows if row.row == BASELINE]
    if not found or (any(map(printed_number, rows)) and printed_number(found[0]) is None):
        return rows[0]
    return found[0]


def _line(figure: Figure, base: Figure, result: ResultFile) -> list[str]:
    """A row's cells."""
    printed, cells = printed_number(figure), [figure.row, _mean(figure)]
    if figure is base:
        return [*cells, "-", "-", "-", str(printed or "-"), "-"]
    gains, base_printed = row_gains(figure, base), printed_number(base)
    if gains.why and has_printed_difference(printed, base_printed):
        sign = f"not decided ({gains.why})"
    else:
        differences = list(gains.by_seed.values())
        sign = sign_check(differences, printed, base_printed, result.gate.met, result.extended)
    return [*cells, *gains.cells(confidence(result)), str(printed or "-"), sign]


def _notes(rows: Sequence[Figure], base: Figure) -> Iterator[str]:
    others = [row for row in rows if row is not base]
    reasons = {row_gains(row, base).why for row in others}
    if reasons == {MISSED}:
        yield (
            f"No ratios: {_who_missed(base)} on every seed, and the other seeds alone would be "
            "biased towards fast runs."
        )
    printed = [printed_number(row) for row in rows]
    if not any(printed):
        yield "The paper prints no numbers in these cells."
    elif others and not any(has_printed_difference(p, printed_number(base)) for p in printed):
        yield f"The paper prints no number for {base.row} to compare the other rows with."


def _who_missed(base: Figure) -> str:
    if None in base.by_seed.values():
        return f"{base.row} does not reach the target"
    return f"no row but {base.row} reaches the target"


def _mean(figure: Figure) -> str:
    values = list(figure.by_seed.values())
    if None in values:
        return rounds_to(values, figure.rounds or 0)
    numbers = known(figure).values()
    return f"{sum(numbers) / len(numbers):.2f}"


def printed_number(figure: Figure) -> Printed | None:
    """What the paper prints in this cell; None if it has no such cell."""
    found = preset(figure.preset).table if figure.preset in names() else None
    rows = () if found is None else found.rows
    printed = {row.name: row.printed.get(figure.column) for row in rows}
    return printed.get(figure.row)
