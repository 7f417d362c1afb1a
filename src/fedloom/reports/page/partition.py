"""Which client holds which classes."""

from __future__ import annotations

import numpy as np

from fedloom.data.partition import complete
from fedloom.data.partition_plot import RAMP
from fedloom.data.statistics import heterogeneity
from fedloom.reports.client_scores import ClientData
from fedloom.reports.page import svg
from fedloom.reports.page.differences import short
from fedloom.reports.page.facts import Facts
from fedloom.reports.page.html import Html, element, note, section
from fedloom.reports.page.numbers import several

MAX_CLIENTS, MAX_CLASSES = 120, 60  # drawn; of more clients every k-th, of more classes the sums
MAX_TIPS = 1500  # cells that can be pointed at
LEFT, TOP, BOTTOM, ROW = 130.0, 8.0, 40.0, 20.0


def partition(facts: Facts) -> Html:
    """The picture with its title, or why there is none."""
    run = next(iter(facts.first_runs.values()))
    split, data = complete(run.config.data.partition), facts.clients
    title = f"Who holds what: {split}"
    if isinstance(data, str):
        return section(title, "partition", note(f"The clients' data are not shown: {data}."))
    return section(
        title,
        "partition",
        _picture(data),
        note(_caption(data, run.config.seed, len({r.config.seed for r in facts.all_runs}))),
        note(_measures(data.counts)),
    )


def _caption(data: ClientData, seed: int, seeds: int) -> str:
    clients, classes = data.counts.shape
    step, block = -(-clients // MAX_CLIENTS), -(-classes // MAX_CLASSES)
    parts = [
        f"{several(clients, 'client')} by {several(classes, 'class', 'classes')}, "
        f"{int(data.counts.sum()):,} training samples. A stronger shade is more samples, on "
        f"a square-root scale; the strongest is {int(data.counts.max()):,} samples."
    ]
    if step > 1:
        parts.append(f"Shown: one client in {step}.")
    if block > 1:
        parts.append(f"A row is the sum of {block} classes.")
    if seeds > 1:
        parts.append(f"This is the split of seed {seed}; each seed has its own.")
    return " ".join(parts)


def _measures(counts: np.ndarray) -> str:
    found = heterogeneity(counts)
    return (
        f"Samples per client: {found.size.min:,.0f} to {found.size.max:,.0f}, "
        f"median {found.size.median:,.0f}. Classes per client: {found.classes_per_client.min:.0f} "
        f"to {found.classes_per_client.max:.0f}, median {found.classes_per_client.median:g}. "
        f"Clients with a single class: {found.one_class_clients:,}. Distance of a client's labels "
        f"from all labels (total variation, 0 to 1): {found.total_variation.mean:.2f} on average."
    )


def _picture(data: ClientData) -> Html:
    """Clients from left to right, classes from top to bottom."""
    block = -(-data.counts.shape[1] // MAX_CLASSES)
    shown = data.counts[:: -(-len(data.counts) // MAX_CLIENTS)]
    grid = np.add.reduceat(shown, np.arange(0, shown.shape[1], block), axis=1)
    names = list(data.classes)[::block]
    height = TOP + BOTTOM + ROW * grid.shape[1]
    axes = svg.Axes((0.0, float(len(grid))), (0.0, 1.0), height, LEFT)
    words = [
        svg.text(LEFT - 8, TOP + ROW * (n + 0.72), short(name, 18), "end")
        for n, name in enumerate(names)
    ]
    label = svg.text((LEFT + svg.WIDTH) / 2, height - 6, "clients", "middle", "label")
    step = -(-len(data.counts) // MAX_CLIENTS)
    pieces = [*words, _numbers(axes, len(grid), step), label, *_cells(axes, grid, names, step)]
    return svg.chart(axes, "Training samples, clients by classes", *pieces)


def _numbers(axes: svg.Axes, columns: int, step: int) -> Html:
    every = max(1, -(-columns // 12))
    places = range(0, columns, every)
    words = [
        svg.text(axes.at(n + 0.5, 0)[0], axes.height - BOTTOM + 16, n * step, "middle")
        for n in places
    ]
    return element("g", *words)


def _cells(axes: svg.Axes, grid: np.ndarray, names: list[str], step: int) -> list[Html]:
    """A cell for each client and class that has samples; many share one path per shade."""
    levels = np.ceil((len(RAMP) - 1) * np.sqrt(grid / max(int(grid.max()), 1))).astype(int)
    width = axes.at(1, 0)[0] - axes.at(0, 0)[0]
    if grid.size > MAX_TIPS:
        return [_shade(axes, levels, level, width) for level in range(1, len(RAMP))]
    cells = []
    for client, label in zip(*np.nonzero(grid), strict=True):
        tip = (
            f"client {client * step}\n{names[label]}: {several(int(grid[client, label]), 'sample')}"
        )
        cells.append(
            element(
                "path",
                d=_cell(axes, client, label, width),
                class_=f"s{levels[client, label]}",
                data_tip=tip,
            )
        )
    return cells


def _shade(axes: svg.Axes, levels: np.ndarray, level: int, width: float) -> Html:
    where = zip(*np.nonzero(levels == level), strict=True)
    shape = "".join(_cell(axes, client, label, width) for client, label in where)
    return element("path", d=shape, class_=f"s{level}")


def _cell(axes: svg.Axes, client: int, label: int, width: float) -> str:
    gap = 1.0 if width > 4 else 0.0
    x = axes.at(float(client), 0)[0]
    wide = width - gap
    return f"M{x:.1f} {TOP + ROW * label:g}h{wide:.2f}v{ROW - 1:g}h{-wide:.2f}z"
