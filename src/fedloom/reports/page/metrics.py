"""Metrics besides the score: of the global model, over the clients, and for the worst of them."""

from __future__ import annotations

import statistics

from fedloom.reports.comparison_row import ComparisonRow, metric_text
from fedloom.reports.page.facts import Facts
from fedloom.reports.page.html import Html, note, section, table
from fedloom.reports.page.results import named

EXPLANATION = (
    "All test data: the global model in its last evaluation, mean over seeds; std: over seeds. "
    "Clients: the model that each ends with, mean over clients and seeds, where every client has "
    "a model or test samples of its own; worst tenth: of clients, those with the highest values "
    "where lower is better. A dash: the metric is not defined there, such as AUROC where all test "
    "samples are of one class."
)


def metrics(facts: Facts) -> Html | None:
    """A row per method and metric; None without metrics."""
    names = dict.fromkeys(
        name for row in facts.rows for name in (*row.metrics, *row.client_metrics)
    )
    if not names:
        return None
    columns = ["method", "metric", "all test data", "std", "clients", "worst tenth"]
    rows = [
        [named(facts, row.name), name, *_cells(row, name)] for name in names for row in facts.rows
    ]
    return section("Metrics", "metrics", table(columns, rows, words=2), note(EXPLANATION))


def _cells(row: ComparisonRow, name: str) -> list[str]:
    known = [value for value in row.metrics.get(name, ()) if value is not None]
    deviation = statistics.stdev(known) if len(known) > 1 else None
    clients = [row.over_clients(name, of) for of in ("mean", "worst_tenth")]
    return [metric_text(value) for value in (row.metric(name), deviation, *clients)]
