"""Recall by class: a row of dots per class, one for each method."""

from __future__ import annotations

from fedloom.metrics.score import ACCURACY
from fedloom.reports.page import svg
from fedloom.reports.page.curves import legend
from fedloom.reports.page.differences import short
from fedloom.reports.page.facts import Facts
from fedloom.reports.page.html import Html, element, folded, joined, note, section, table
from fedloom.reports.page.numbers import percent
from fedloom.reports.page.results import named

MAX_CLASSES = 40  # drawn and listed; of more, those with the lowest recall
ROW, SPREAD = 26.0, 16.0  # of a class, and of the dots in it
Recalls = dict[str, list[float | None]]


def classes(facts: Facts) -> Html | None:
    """The chart and the table, or why there are none; None for tasks without classes."""
    if facts.score is not ACCURACY:
        return None
    recalls, title = facts.class_recalls, "Recall by class"
    if not recalls:
        return section(title, "classes", note("No run is finished and has scores by class."))
    names = facts.class_names(len(next(iter(recalls.values()))))
    shown = _lowest(recalls)
    explanation = "Of the models that clients end with, mean over seeds."
    if len(shown) < len(names):
        explanation += f" Shown: the {len(shown)} of {len(names)} classes with the lowest recall."
    return section(
        title,
        "classes",
        _chart(facts, recalls, names, shown),
        legend(facts, list(recalls)),
        note(explanation),
        _groups(facts),
        folded("The values", _table(facts, recalls, names, shown)),
    )


def _lowest(recalls: Recalls) -> list[int]:
    """The classes that are shown, in their own order."""
    size = len(next(iter(recalls.values())))
    columns = zip(*recalls.values(), strict=True)
    lowest = [min((r for r in column if r is not None), default=1.0) for column in columns]
    return sorted(sorted(range(size), key=lambda c: lowest[c])[:MAX_CLASSES])


def _chart(facts: Facts, recalls: Recalls, names: list[str], shown: list[int]) -> Html:
    height = svg.TOP + svg.BOTTOM + ROW * len(shown)
    axes = svg.Axes((0.0, 100.0), (0.0, float(len(shown))), height, left=130.0)
    pieces: list[object] = [svg.frame(axes, "recall, %")]
    for number, c in enumerate(shown):
        values = {name: recall[c] for name, recall in recalls.items()}
        pieces.append(_class_row(axes, facts, names[c], values, len(shown) - number - 0.5))
    return svg.chart(axes, "Recall by class, a dot per method", *pieces)


def _class_row(
    axes: svg.Axes, facts: Facts, title: str, values: dict[str, float | None], height: float
) -> Html:
    known = {name: value for name, value in values.items() if value is not None}
    _, y = axes.at(0, height)
    pieces: list[object] = [svg.text(axes.left - 8, y + 4, short(title, 18), "end")]
    if known:
        left, right = (
            axes.at(100 * end, 0)[0] for end in (min(known.values()), max(known.values()))
        )
        pieces.append(element("path", d=f"M{left:.1f} {y:.1f}H{right:.1f}", class_="span"))
    for number, (name, value) in enumerate(known.items()):
        x, _ = axes.at(100 * value, 0)
        aside = SPREAD * ((number + 0.5) / len(known) - 0.5)  # so that equal dots are all seen
        tip = f"{title}\n{percent(value)} % {name}"
        pieces.append(svg.dot(x, y + aside, facts.styles[name], tip))
    return joined(pieces)


def _groups(facts: Facts) -> Html | None:
    """Recall of head, middle and tail, where classes are not equally frequent."""
    found: dict[str, dict[str, float]] = {}
    for row in facts.rows:
        seeds = [scores.group_recall for scores in row.client_scores]
        if seeds and all(seeds):
            found[row.name] = {
                group: sum(s[group] for s in seeds) / len(seeds)
                for group in seeds[0]
                if all(group in s for s in seeds)
            }
    if not found:
        return None
    groups = list(dict.fromkeys(group for values in found.values() for group in values))
    rows = [[named(facts, n), *(percent(v.get(g)) for g in groups)] for n, v in found.items()]
    explanation = "Recall % of the most frequent third of the classes (head), the middle, the tail."
    return joined([note(explanation), table(["method", *groups], rows)])


def _table(facts: Facts, recalls: Recalls, names: list[str], shown: list[int]) -> Html:
    columns = ["recall %", *(names[c] for c in shown)]
    rows = [[named(facts, n), *(percent(r[c]) for c in shown)] for n, r in recalls.items()]
    return table(columns, rows)
