"""What the tables of papers came to at small scale, read from docs/results."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docparts.markdown import table
from fedloom.cli.output import rounds_to
from fedloom.methods.registry import parse

INDICATORS = {
    "lambda_max": "largest eigenvalue",
    "H_T": "trace",
    "H_N": "H_N",
    "H_D": "H_D",
    "drift": "client drift",
    "cosine": "cosine",
}


def fedalign(root: Path) -> str:
    """Table 1: accuracy, and what the Hessian says."""
    found: dict[str, Any] = json.loads((root / "docs" / "results" / "fedalign-table1.json").read_text(encoding="utf-8"))
    rows = [f for f in found["figures"] if f["column"] == "accuracy"]
    first = rows[0]
    accuracy = table(
        ["method", "accuracy %", "by seed", "gain on FedAvg, seed by seed", "paper", "gain in the paper", "seconds a run"],
        [
            [
                f["row"],
                f"{f['mean']:.2f}",
                ", ".join(f"{y:.2f}" for y in f["ours"]),
                _spread([a - b for a, b in zip(f["ours"], first["ours"], strict=True)], "{:+.2f}"),
                f"{f['printed']['mean']:g}" if f["printed"] else "-",
                f"{f['printed']['mean'] - first['printed']['mean']:+.1f}" if f["printed"] else "-",
                f"{f['seconds']:.0f}",
            ]
            for f in rows
        ],
    )
    seen = found["analysis"]
    second = table(
        ["method", *INDICATORS.values()],
        [[name, *(_spread([s[what] for s in seen[name]], "{:.3g}") for what in INDICATORS)] for name in seen],
    )
    return f"{accuracy}\n\n{second}"


def fedmlb(root: Path) -> str:
    """All methods beside each other: the moving average at the end and halfway, and rounds to targets."""
    found: dict[str, Any] = json.loads((root / "docs" / "results" / "fedmlb-overview.json").read_text(encoding="utf-8"))
    columns: dict[str, dict[str, Any]] = {}
    for f in found["figures"]:
        columns.setdefault(f["column"], {})[f["row"]] = f
    end, half = columns.pop("end"), columns.pop("half")
    first = next(iter(end.values()))
    targets = {f"to {100 * _target(next(iter(by_row.values()))):.0f} %": by_row for by_row in columns.values()}
    heads = ["method", "accuracy %", "by seed", "gain on FedAvg, seed by seed", "halfway", *targets, "paper", "gain in the paper"]
    rows = [
        [
            name,
            f"{f['mean']:.2f}",
            ", ".join(f"{y:.2f}" for y in f["ours"]),
            _spread([a - b for a, b in zip(f["ours"], first["ours"], strict=True)], "{:+.2f}"),
            f"{half[name]['mean']:.2f}",
            *(rounds_to(by_row[name]["ours"], by_row[name]["rounds"]) for by_row in targets.values()),
            f"{f['printed']['mean']:.2f}",
            f"{f['printed']['mean'] - first['printed']['mean']:+.2f}",
        ]
        for name, f in end.items()
    ]
    return table(heads, rows)


def _target(figure: dict[str, Any]) -> float:
    """The accuracy that a figure counts the rounds to."""
    (word,) = parse(figure["measure"])
    return float(word.args["to"])


def _spread(values: Sequence[float], form: str) -> str:
    """Mean and, in brackets, the sample standard deviation over seeds, if there are several."""
    mean = form.format(statistics.fmean(values))
    return f"{mean} ({statistics.stdev(values):.2g})" if len(values) > 1 else mean
