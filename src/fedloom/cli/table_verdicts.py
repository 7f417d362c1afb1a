"""What a reproduced table shows: the sign of every cell, and the claims that its cells decide.

A table is judged as a suite is (claims/suite_table.py, claims/verdict.py), with one difference: it
has no gate, so whether its runs are a fair test is not known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedloom.cli.output import table

if TYPE_CHECKING:
    from fedloom.claims.judgement import Judgement
    from fedloom.claims.result_files import Figure, ResultFile
    from fedloom.claims.suite_table import FigureTable
    from fedloom.claims.verdict import Verdict
    from fedloom.reports.paper_table import CellResult
    from fedloom.settings.paper_table import Scale, Table

NO_GATE = "a table has no gate, as suites have"
COLUMNS = ("claim", "verdict", "compared", "mean", "interval", "seeds", "more", "the paper says")


def as_result_file(paper_table: Table, scale: Scale, results: Sequence[CellResult]) -> ResultFile:
    """The figures of a table as those of a suite without a gate."""
    from fedloom.claims.result_files import Figure, Gate, ResultFile

    figures = tuple(
        Figure(
            preset=paper_table.name,
            row=result.row,
            column=result.column,
            metric=result.measure,
            by_seed=dict(zip(result.seeds, result.ours, strict=True)),
            rounds=result.rounds,
        )
        for result in results
    )
    gate = Gate(met=None, why=NO_GATE)
    return ResultFile(
        format=1, suite=paper_table.name, commit="", scale=scale, gate=gate, figures=figures
    )


def judged_columns(paper_table: Table, found: ResultFile) -> list[FigureTable]:
    """A table of text per column; a row that is one of several choices has no printed number."""
    from dataclasses import replace

    from fedloom.claims.suite_table import figure_tables

    choices = {row.name for row in paper_table.rows if row.choice}

    def line(cells: Sequence[str]) -> Sequence[str]:
        *ours, _paper, _sign = cells
        return [*ours, "-", "-"] if cells[0] in choices else cells

    return [replace(each, lines=list(map(line, each.lines))) for each in figure_tables(found)]


def figures_json(
    results: Sequence[CellResult], found: ResultFile, judged: Sequence[FigureTable]
) -> list[Any]:
    """Every cell as JSON, with its gains, or ratios, over the row that its column is compared with.

    sign: whether it is above or below that row, as in the paper.
    """
    figures = {(figure.column, figure.row): figure for figure in found.figures}
    signs = {(each.column, line[0]): line[-1] for each in judged for line in each.lines}
    bases = {each.column: figures[each.column, each.base] for each in judged}
    return [
        {
            **result.describe(),
            "seeds": list(result.seeds),
            **_gains(figures[result.column, result.row], bases[result.column]),
            "sign": signs[result.column, result.row],
        }
        for result in results
    ]


def _gains(figure: Figure, base: Figure) -> dict[str, Any]:
    """By seed, their mean and its interval; none of the row that others are compared with."""
    from fedloom.claims.row_gains import row_gains
    from fedloom.claims.statistics import estimate
    from fedloom.claims.suites import rule

    gains = row_gains(figure, base)
    if figure is base or not gains.by_seed:
        return {"gains": {}, "mean_gain": None, "interval": None, "is_ratio": gains.is_ratio}

    def written(value: float) -> float:
        return math.exp(value) if gains.is_ratio else value

    values = list(gains.by_seed.values())
    found = estimate(values)
    return {
        "gains": {seed: written(value) for seed, value in gains.by_seed.items()},
        "mean_gain": written(sum(values) / len(values)),
        "interval": found and [written(end) for end in found.interval(rule().confidence)],
        "is_ratio": gains.is_ratio,
    }


def decided_claims(found: ResultFile) -> list[Verdict]:
    """The verdicts on the claims whose cells are all in the table."""
    from fedloom.claims.claim import claims
    from fedloom.claims.verdict import verdict

    about = (claim for claim in claims() if found.suite in claim.preset.names)
    return [test for claim in about if (test := verdict(claim, found)) is not None]


def claims_json(decided: Sequence[Verdict]) -> list[dict[str, Any]]:
    """As `fedloom reproduce --claims --json`, but that fairness is not known."""
    from fedloom.claims.sentences import describe

    facts = []
    for each in decided:
        assert each.judgement is not None  # it was tested
        said = f"{each.outcome}: {describe(each.judgement)}; fair test: not known, {each.gate}"
        facts.append({**each.describe(), "fair": None, "sentence": said})
    return facts


def claims_table(decided: Sequence[Verdict]) -> Any:
    """The claims with their verdicts, what was compared, and the seeds that would decide."""
    lines = []
    for each in decided:
        assert each.judgement is not None  # it was tested
        label = each.judgement.comparison.label
        lines.append(
            [each.claim.id, each.outcome, label, *_numbers(each.judgement), each.claim.text]
        )
    return table(COLUMNS, lines, title="claims that these cells decide", right=(3, 5, 6))


def _numbers(found: Judgement) -> list[str]:
    """Mean, interval, seeds, and the seeds that would decide."""
    from fedloom.claims.sentences import number

    mean = "-" if found.mean is None else number(found, found.mean)
    ends = [number(found, end) for end in found.interval or ()]
    interval = f"[{', '.join(ends)}]" if ends else "-"
    return [mean, interval, str(found.seeds), str(found.seeds_to_decide or "-")]
