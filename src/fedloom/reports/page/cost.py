"""Accuracy against what it costs: bytes that are sent, and multiply-accumulates of training."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

from fedloom.experiment.stored_run import StoredRun
from fedloom.reports.colours import drawing_order
from fedloom.reports.comparison_row import ComparisonRow
from fedloom.reports.compute_curve import ComputeCurve
from fedloom.reports.page import svg
from fedloom.reports.page.curves import legend
from fedloom.reports.page.facts import Facts
from fedloom.reports.page.html import Html, element, note, section, table
from fedloom.reports.page.numbers import engineering, size
from fedloom.reports.page.results import named

Curves = dict[str, list[svg.Point]]
BYTES_NOTE = "Uploads and downloads of all clients so far, mean over seeds."
MACS_NOTE = "Multiply-accumulates (MACs) of all clients' training so far, forward and backward."


def cost(facts: Facts) -> Html:
    """A chart against bytes, one against compute where it is known, and the totals."""
    sent = {row.name: _against_bytes(row, facts.runs[row.name]) for row in facts.rows}
    parts: list[object] = [
        element("h3", "Bytes"),
        _chart(facts, sent, "sent", size),
        note(BYTES_NOTE),
        element("h3", "Compute"),
    ]
    compute = facts.compute
    if isinstance(compute, str):
        parts.append(note(f"The compute is not shown: {compute}."))
    else:
        scale = facts.score.scale
        macs = {name: _against_compute(each, scale) for name, each in compute.items()}
        parts += [_chart(facts, macs, "MACs", engineering), note(MACS_NOTE)]
    title = f"{facts.score.title} against cost"
    return section(title, "cost", *parts, legend(facts), _totals(facts))


def _against_bytes(row: ComparisonRow, runs: Sequence[StoredRun]) -> list[svg.Point]:
    """Mean bytes so far and mean accuracy, for each round of the row's curve."""
    so_far = [
        list(itertools.accumulate(r.bytes_up + r.bytes_down for r in run.history)) for run in runs
    ]
    return [
        (statistics.fmean(each[number - 1] for each in so_far), row.score.scale * accuracy)
        for number, accuracy in row.smoothed
    ]


def _against_compute(curves: Sequence[ComputeCurve], scale: float) -> list[svg.Point]:
    tables = [{point.round: point for point in curve.points} for curve in curves]
    shared = sorted(set.intersection(*(set(each) for each in tables)))
    return [
        (
            statistics.fmean(each[number].macs for each in tables),
            scale * statistics.fmean(each[number].accuracy for each in tables),
        )
        for number in shared
    ]


def _chart(facts: Facts, curves: Curves, what: str, as_text: svg.Format) -> Html:
    highest = max(x for points in curves.values() for x, _ in points) or 1.0
    y = svg.bounds([y for points in curves.values() for _, y in points])
    axes = svg.Axes((0.0, highest), y)
    names = list(curves)
    order = [names[n] for n in drawing_order(facts.styles[name] for name in names)]
    lines = [svg.line(axes, curves[name], facts.styles[name]) for name in order]
    ends = [_end(axes, facts, name, curves[name], as_text) for name in order]
    frame = svg.frame(axes, what, facts.comparison.axis_name, x_text=as_text)
    return svg.chart(axes, f"{facts.score.title} against {what}", frame, *lines, *ends)


def _end(
    axes: svg.Axes, facts: Facts, name: str, points: list[svg.Point], as_text: svg.Format
) -> Html:
    (x, y), score = points[-1], facts.score
    tip = f"{name}\n{y:.{score.digits(1)}f}{score.unit} after {as_text(x)}"
    return svg.dot(*axes.at(x, y), facts.styles[name], tip)


def _totals(facts: Facts) -> Html:
    compute = facts.compute
    rows = []
    for row in facts.rows:
        runs = facts.runs[row.name]
        up, down = (
            statistics.fmean(run.history.total(name) for run in runs)
            for name in ("bytes_up", "bytes_down")
        )
        macs = None if isinstance(compute, str) else _against_compute(compute[row.name], 1.0)[-1][0]
        rows.append(
            [
                named(facts, row.name),
                facts.score.text(row.mean, 1),
                size(up),
                size(down),
                None if macs is None else engineering(macs),
                f"{row.seconds:.1f}",
            ]
        )
    accuracy = f"{facts.comparison.accuracy_heading}{facts.score.unit}"
    return table(["method", accuracy, "uploads", "downloads", "MACs", "seconds"], rows)
