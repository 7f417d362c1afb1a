"""Replies that were not used and rounds that were skipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fedloom.experiment.stored_run import StoredRun
from fedloom.reports.page.facts import Facts
from fedloom.reports.page.html import Html, element, note, section, table
from fedloom.reports.page.numbers import several
from fedloom.reports.page.results import named

MAX_REASONS = 20  # of a row, the most frequent ones
MAX_CLIENTS = 8  # named for a reason


def trouble(facts: Facts) -> Html:
    """The counts per method and the reasons, or that there was nothing."""
    title = "Rejected replies and skipped rounds"
    every = [record for run in facts.all_runs for record in run.history]
    if not any(record.rejected or record.skipped for record in every):
        asked = sum(len(record.participants) for record in every)
        calm = f"None: all {several(asked, 'reply', 'replies')} were used."
        return section(title, "rejected", note(calm))
    rows = [[named(facts, name), *_counts(group)] for name, group in facts.runs.items()]
    columns = ["method", "asked", "rejected", "rounds", "skipped rounds"]
    reasons = [row for name, group in facts.runs.items() for row in _reasons(facts, name, group)]
    return section(
        title,
        "rejected",
        table(columns, rows),
        element("h3", "Reasons"),
        table(["method", "what", "reason", "clients", "times"], reasons, words=4),
    )


def _counts(group: Sequence[StoredRun]) -> list[object]:
    records = [record for run in group for record in run.history]
    return [
        sum(len(record.participants) for record in records),
        sum(len(record.rejected) for record in records),
        len(records),
        sum(record.skipped is not None for record in records),
    ]


def _reasons(facts: Facts, name: str, group: Sequence[StoredRun]) -> list[list[object]]:
    found: Counter[tuple[str, str]] = Counter()
    clients: dict[str, set[int]] = {}
    for record in (record for run in group for record in run.history):
        for client, why in record.rejected.items():
            found["reply", why] += 1
            clients.setdefault(why, set()).add(client)
        if record.skipped is not None:
            found["round", record.skipped] += 1
    return [
        [named(facts, name), what, why, _listed(clients.get(why, ()) if what == "reply" else ()), n]
        for (what, why), n in found.most_common(MAX_REASONS)
    ]


def _listed(clients: set[int] | tuple[()]) -> str:
    ordered = sorted(clients)
    more = len(ordered) - MAX_CLIENTS
    return ", ".join(map(str, ordered[:MAX_CLIENTS])) + (f" and {more} more" if more > 0 else "")
