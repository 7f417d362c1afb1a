"""The table of a comparison as Markdown or as LaTeX, for papers and pull requests."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from fedloom.metrics.curve import rounds_to
from fedloom.metrics.score import ACCURACY
from fedloom.reports.comparison import Comparison
from fedloom.reports.comparison_row import ComparisonRow, metric_text

_ROUNDS = (
    "std: over seeds. Rounds to a target: the first round that reaches it, mean over seeds; N+ if "
    "a seed does not within N rounds."
)
_SENT = "Sent: uploads and downloads of all clients, mean over seeds."
LEGEND = (
    f"{_ROUNDS} Recall of clients: mean over the classes that a client has, "
    "of the model it ends with; worst tenth: of clients; label-weighted: by how often the client "
    f"has each class. {_SENT}"
)
OTHER_LEGEND = (  # of tasks without classes
    f"{_ROUNDS} Clients: of the model that each ends with, mean over clients; worst tenth: of "
    f"clients. {_SENT}"
)
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def markdown(comparison: Comparison) -> str:
    """A table in the form of GitHub's Markdown, and the notes under it."""
    columns, rows = _cells(comparison)
    lines = [
        _line([_in_markdown(cell) for cell in columns]),
        _line(["---", *["---:"] * (len(columns) - 1)]),
        *(_line([_in_markdown(cell) for cell in row]) for row in rows),
    ]
    notes = [f"\n{_in_markdown(note)}" for note in comparison.notes]
    return "\n".join([*lines, *notes])


def latex(comparison: Comparison) -> str:
    """A tabular with the rules of the booktabs package; notes are comments above it."""
    columns, rows = _cells(comparison)
    body = [" & ".join(map(_in_latex, row)) + r" \\" for row in rows]
    head = " & ".join(map(_in_latex, columns)) + r" \\"
    notes = ["% " + " ".join(note.split()) for note in comparison.notes]
    start = rf"\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}"
    end = r"\end{tabular}"
    return "\n".join([*notes, start, r"\toprule", head, r"\midrule", *body, r"\bottomrule", end])


def _cells(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Column names and rows, as text."""
    options, rows, score = comparison.options, comparison.rows, comparison.score
    scored = any(row.has_client_scores for row in rows)
    scored = scored and all(row.over_clients(score.clients) is not None for row in rows)
    recall = "recall" if score is ACCURACY else score.name
    columns = [
        "method",
        f"{comparison.accuracy_heading}{score.unit}",
        *(f"at round {r}" for r in options.at),
        *(f"rounds to {score.text(t, 1)}{score.unit}" for t in options.targets),
        *([f"clients' {recall}{score.unit}", f"worst tenth{score.unit}"] if scored else []),
        *comparison.metric_names,
        "MB sent",
        "seeds",
    ]
    return columns, [_row(row, scored, comparison.metric_names) for row in rows]


def _row(row: ComparisonRow, scored: bool, metrics: Sequence[str]) -> list[str]:
    score = row.score
    deviation = f" ± {score.text(row.std)}" if len(row.accuracies) > 1 else ""
    parts = ("mean", "worst_tenth") if scored else ()
    return [
        row.name,
        f"{score.text(row.mean)}{deviation}",
        *(score.text(statistics.fmean(seeds)) for seeds in row.at),
        *(rounds_to(seeds, row.rounds) for seeds in row.reached),
        *(score.text(row.over_clients(score.clients, of)) for of in parts),
        *(metric_text(row.metric(name)) for name in metrics),
        f"{row.bytes / 1e6:.1f}",
        str(len(row.accuracies)),
    ]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _in_markdown(text: str) -> str:
    """Text without meaning in Markdown, on one line."""
    plain = " ".join(text.split())
    for character in "\\`*_[]<>|":
        plain = plain.replace(character, f"\\{character}")
    return plain


def _in_latex(text: str) -> str:
    """Text without meaning in LaTeX, on one line.

    >>> _in_latex("a_b ± 3 %")
    'a\\\\_b $\\\\pm$ 3 \\\\%'
    """
    plain = "".join(_LATEX.get(character, character) for character in " ".join(text.split()))
    return plain.replace("±", r"$\pm$")
