"""Every client's score, and the clients that do worst."""

from __future__ import annotations

import numpy as np

from fedloom.metrics.score import ACCURACY, Score
from fedloom.reports.client_scores import ClientData, metric_by_client, scores_by_client
from fedloom.reports.colours import drawing_order
from fedloom.reports.page import svg
from fedloom.reports.page.curves import legend, whole
from fedloom.reports.page.facts import Facts
from fedloom.reports.page.html import Html, element, note, section, table

WORST = 10  # clients listed
NAMED_CLASSES = 3  # of a client, the most frequent ones
Scores = dict[str, list[float | None]]


def clients(facts: Facts) -> Html:
    """Scores of all clients and the worst ones, or why there are none."""
    title, of_classes = "Clients", facts.score is ACCURACY
    data = facts.clients if of_classes else None
    if isinstance(data, str):
        return section(
            title, "clients", note(f"The scores of single clients are not shown: {data}.")
        )
    found = {
        name: metric_by_client(run, facts.score.clients)
        if data is None
        else scores_by_client(run, data)
        for name, run in facts.first_runs.items()
    }
    scores = {name: each for name, each in found.items() if any(s is not None for s in each)}
    if not scores:
        return section(title, "clients", note("No run is finished and has scores of its clients."))
    seed = next(iter(facts.first_runs.values())).config.seed
    what = "the mean recall over the classes that a client has" if of_classes else facts.score.name
    return section(
        title,
        "clients",
        _chart(facts, scores),
        legend(facts, list(scores)),
        note(
            "Clients from the worst to the best, for each method by itself. The score is "
            f"{what}, of the model it ends with; seed {seed}."
        ),
        element("h3", "Clients that do worst"),
        _worst(facts, scores, data),
        note("By the mean over the methods shown."),
    )


def _chart(facts: Facts, scores: Scores) -> Html:
    longest, score = max(map(len, scores.values())), facts.score
    names = list(scores)
    order = [names[n] for n in drawing_order(facts.styles[name] for name in names)]
    ranked = {
        name: sorted(score.scale * value for value in scores[name] if value is not None)
        for name in order
    }
    every = [value for values in ranked.values() for value in values]
    heights = (0.0, 100.0) if score.is_share else svg.bounds(every)
    axes = svg.Axes((1.0, float(max(longest, 2))), heights)
    lines = [
        svg.line(axes, [(n + 1.0, y) for n, y in enumerate(ranked[name])], facts.styles[name])
        for name in order
    ]
    across = "clients, from the worst to the best"
    frame = svg.frame(axes, across, f"score{',' * score.is_share}{score.unit}", x_text=whole)
    tips = [(n + 1.0, _tip(ranked, n, score)) for n in svg.thinned(range(longest))]
    return svg.chart(axes, "Scores of clients, sorted", frame, *lines, svg.hover(axes, tips))


def _tip(ranked: dict[str, list[float]], place: int, score: Score) -> str:
    digits, unit = score.digits(1), score.unit
    known = [f"{v[place]:.{digits}f}{unit} {name}" for name, v in ranked.items() if place < len(v)]
    return "\n".join([f"client {place + 1} from the worst", *known])


def _worst(facts: Facts, scores: Scores, data: ClientData | None) -> Html:
    """The clients with the lowest scores; data: what they hold, where it is known by class."""
    means, score = {}, facts.score
    for client in range(min(map(len, scores.values()))):
        known = [each[client] for each in scores.values() if each[client] is not None]
        if known:
            means[client] = sum(s for s in known if s is not None) / len(known)
    worst = sorted(means, key=lambda client: means[client])[:WORST]
    held = {} if data is None else {c: _held(data, c) for c in worst}
    rows = [
        [client, *held.get(client, ()), *(_text(each[client], score) for each in scores.values())]
        for client in worst
    ]
    about = ["most of", "samples"] if held else []
    columns = ["client", *about, *(f"{name}{score.unit}" for name in scores)]
    return table(columns, rows, words=2 if held else 1)


def _text(value: float | None, score: Score) -> str | None:
    return None if value is None else score.text(value, 1)


def _held(data: ClientData, client: int) -> list[object]:
    return [_classes(data, client), int(data.counts[client].sum())]


def _classes(data: ClientData, client: int) -> str:
    """The classes that a client has most of."""
    held = data.counts[client]
    order = [c for c in np.argsort(-held, kind="stable") if held[c]]
    more = len(order) - NAMED_CLASSES
    names = ", ".join(data.classes[c] for c in order[:NAMED_CLASSES])
    return names + (f" and {more} more" if more > 0 else "")
