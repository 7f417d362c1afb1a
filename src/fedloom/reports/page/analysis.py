"""Curvature and drift, of the runs that `fedloom analyze` has looked at.

The files may come from anyone: a figure that is missing or no number is shown as such.
"""

from __future__ import annotations

import json
import math
from typing import Any

from fedloom.core.regular_files import check_folder, read_regular
from fedloom.experiment.stored_run import StoredRun
from fedloom.reports.page.facts import Facts
from fedloom.reports.page.html import Html, element, joined, note, section, table
from fedloom.reports.page.results import named
from fedloom.runs.folder_layout import ANALYSIS

COLUMNS = (
    "method",
    "run",
    "round",
    "loss",
    "largest eigenvalue",
    "trace",
    "norm alignment H_N",
    "direction alignment H_D",
    "cosine to mean update",
    "distance to mean update",
)
EXPLANATION = (
    "At the last checkpoint of each run, on a fixed sample. Eigenvalues and trace are of the "
    "Hessian of the global model's loss: larger is sharper. H_N and H_D compare the curvature of "
    "clients (FedAlign). Cosine and distance compare each client's update with the mean update, "
    "averaged over clients: a low cosine is drift."
)


def analysis(facts: Facts) -> Html:
    """A row per analysed run."""
    rows, problems = [], []
    for name, group in facts.runs.items():
        for run in group:
            found = _read(run)
            if isinstance(found, str):
                problems.append(note(found))
            elif found is not None:
                rows.append([named(facts, name), run.name, *_figures(found)])
    title = "Curvature and drift"
    if not rows:
        hint = "None of the runs was analysed. To do so: "
        command = element("code", "fedloom analyze RUN --only eigen,trace,pairs,drift")
        return section(title, "curvature", *problems, note(hint, command))
    return section(title, "curvature", table(COLUMNS, rows, words=2), *problems, note(EXPLANATION))


def _read(run: StoredRun) -> dict[str, Any] | str | None:
    """The figures of an analysis; in words, why they cannot be read; None if there are none."""
    if run.path is None:
        return None
    place = run.path / ANALYSIS
    try:
        if not check_folder(place):
            return None
        found = json.loads(read_regular(place / "analysis.json"))
    except (OSError, ValueError, RecursionError) as problem:
        return f"The analysis of '{run.name}' cannot be read: {problem}."
    return found if isinstance(found, dict) else f"The analysis of '{run.name}' has no figures."


def _figures(found: dict[str, Any]) -> list[object]:
    values = _at(found, "eigen", "values")
    sizes = [abs(v) for v in values if _is_number(v)] if isinstance(values, list) else []
    return [
        _number(_at(found, "round")),
        _number(_at(found, "loss")),
        _number(max(sizes, default=None)),
        _estimate(_at(found, "trace", "hutch++")) or _estimate(_at(found, "trace", "hutchinson")),
        _number(_at(found, "pairs", "diagonal", "H_N", "mean_over_pairs")),
        _number(_at(found, "pairs", "diagonal", "H_D", "mean_over_pairs")),
        _number(_mean_over_clients(found, "cosine_to_mean")),
        _number(_mean_over_clients(found, "distance_to_mean")),
    ]


def _at(value: Any, *path: str) -> Any:
    """What a path leads to; None if it leads nowhere."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _is_number(value: Any) -> bool:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return known and abs(value) < 1e300 and math.isfinite(value)


def _number(value: Any) -> str | None:
    return f"{value:.4g}" if _is_number(value) else None


def _estimate(found: Any) -> Html | None:
    value, error = _at(found, "value"), _at(found, "standard_error")
    if not _is_number(value):
        return None
    return joined([f"{value:.4g}", f" ± {error:.2g}" if _is_number(error) else None])


def _mean_over_clients(found: dict[str, Any], name: str) -> float | None:
    clients = _at(found, "drift", "clients")
    rows = clients if isinstance(clients, list) else []
    values = [v for v in (_at(row, name) for row in rows) if _is_number(v)]
    return sum(values) / len(values) if values else None
