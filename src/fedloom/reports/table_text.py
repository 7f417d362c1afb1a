"""The table of a comparison as Markdown or as LaTeX, for papers and pull requests."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from fedloom.metrics.curve import rounds_to
from fedloom.reports.comparison import Comparison, ComparisonRow

LEGEND = (
    "std: over seeds. Rounds to a target: the first round that reaches it, mean over seeds; N+ if "
    "a seed does not within N rounds. Recall of clients: mean over the classes that a client has, "
    "of the model it ends with; worst tenth: of clients; label-weighted: by how often the client "
    "has each class. Sent: uploads and downloads of all clients, mean over seeds."
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
    options, rows = comparison.options, comparison.rows
    scored = all(row.client_scores for row in rows)
    columns = [
        "method",
        f"{comparison.accuracy_heading} %",
        *(f"at round {r}" for r in options.at),
        *(f"rounds to {100 * t:.1f} %" for t in options.targets),
        *(["clients' recall %", "worst tenth %"] if scored else []),
        "MB sent",
        "seeds",
    ]
    return columns, [_row(row, scored) for row in rows]


def _row(row: ComparisonRow, scored: bool) -> list[str]:
    deviation = f" ± {100 * row.std:.2f}" if len(row.accuracies) > 1 else ""
    parts = ("mean", "worst_tenth") if scored else ()
    scores = [row.over_clients("mean_class_recall", of) for of in parts]
    return [
        row.name,
        f"{100 * row.mean:.2f}{deviation}",
        *(f"{100 * statistics.fmean(seeds):.2f}" for seeds in row.at),
        *(rounds_to(seeds, row.rounds) for seeds in row.reached),
        *(f"{100 * score:.2f}" for score in scores if score is not None),
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
