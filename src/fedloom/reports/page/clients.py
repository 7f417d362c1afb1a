"""Every client's score, and the clients that do worst."""

from __future__ import annotations

import numpy as np

from fedloom.reports.client_scores import ClientData, scores_by_client
from fedloom.reports.colours import drawing_order
from fedloom.reports.page import svg
from fedloom.reports.page.curves import legend, whole
from fedloom.reports.page.facts import Facts
from fedloom.reports.page.html import Html, element, note, section, table
from fedloom.reports.page.numbers import percent

WORST = 10  # clients listed
NAMED_CLASSES = 3  # of a client, the most frequent ones
Scores = dict[str, list[float | None]]


def clients(facts: Facts) -> Html:
    """Scores of all clients and the worst ones, or why there are none."""
    title, data = "Clients", facts.clients
    if isinstance(data, str):
        return section(
            title, "clients", note(f"The scores of single clients are not shown: {data}.")
        )
    found = {name: scores_by_client(run, data) for name, run in facts.first_runs.items()}
    scores = {name: each for name, each in found.items() if any(s is not None for s in each)}
    if not scores:
        return section(title, "clients", note("No run is finished and has scores of its clients."))
    seed = next(iter(facts.first_runs.values())).config.seed
    return section(
        title,
        "clients",
        _chart(facts, scores),
        legend(facts, list(scores)),
        note(
            "Clients from the worst to the best, for each method by itself. The score is the mean "
            f"recall over the classes that a client has, of the model it ends with; seed {seed}."
        ),
        element("h3", "Clients that do worst"),
        _worst(facts, scores, data),
        note("By the mean over the methods shown."),
    )


def _chart(facts: Facts, scores: Scores) -> Html:
    longest = max(map(len, scores.values()))
    axes = svg.Axes((1.0, float(max(longest, 2))), (0.0, 100.0))
    names = list(scores)
    order = [names[n] for n in drawing_order(facts.styles[name] for name in names)]
    ranked = {
        name: sorted(100 * score for score in scores[name] if score is not None) for name in order
    }
    lines = [
        svg.line(axes, [(n + 1.0, y) for n, y in enumerate(ranked[name])], facts.styles[name])
        for name in order
    ]
    frame = svg.frame(axes, "clients, from the worst to the best", "score, %", x_text=whole)
    tips = [(n + 1.0, _tip(ranked, n)) for n in svg.thinned(range(longest))]
    return svg.chart(axes, "Scores of clients, sorted", frame, *lines, svg.hover(axes, tips))


def _tip(ranked: dict[str, list[float]], place: int) -> str:
    known = [f"{v[place]:.1f} % {name}" for name, v in ranked.items() if place < len(v)]
    return "\n".join([f"client {place + 1} from the worst", *known])


def _worst(facts: Facts, scores: Scores, data: ClientData) -> Html:
    means = {}
    for client in range(len(data.counts)):
        known = [each[client] for each in scores.values() if each[client] is not None]
        if known:
            means[client] = sum(s for s in known if s is not None) / len(known)
    worst = sorted(means, key=lambda client: means[client])[:WORST]
    rows = [
        [
            client,
            _classes(data, client),
            int(data.counts[client].sum()),
            *(percent(each[client]) for each in scores.values()),
        ]
        for client in worst
    ]
    return table(["client", "most of", "samples", *(f"{name} %" for name in scores)], rows, words=2)


def _classes(data: ClientData, client: int) -> str:
    """The classes that a client has most of."""
    held = data.counts[client]
    order = [c for c in np.argsort(-held, kind="stable") if held[c]]
    more = len(order) - NAMED_CLASSES
    names = ", ".join(data.classes[c] for c in order[:NAMED_CLASSES])
    return names + (f" and {more} more" if more > 0 else "")
