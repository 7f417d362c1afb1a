"""What the tables of papers came to at small scale, read from docs/results."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from docparts.markdown import table
from fedloom.cli.output import rounds_to
from fedloom.core.spec import parse

INDICATORS = {
    "lambda_max": "largest eigenvalue",
    "H_T": "trace",
    "H_N": "H_N",
    "H_D": "H_D",
    "drift": "client drift",
    "cosine": "cosine",
}
Figure = dict[str, Any]
Cell = Callable[[str], str]  # of the row of that name
TITLES = {"fedavg": "FedAvg", "fedavg-ft": "FedAvg-FT"}


def fedalign(root: Path) -> str:
    """Table 1: accuracy, and what the Hessian says."""
    found = _found(root, "fedalign-table1")
    rows = _columns(found)["accuracy"]
    accuracy = _compared(
        rows,
        behind={"seconds a run": lambda name: f"{rows[name]['seconds']:.0f}"},
        paper="{:g}",
        gain="{:+.1f}",
    )
    seen = found["analysis"]
    second = table(
        ["method", *INDICATORS.values()],
        [
            [name, *(_spread([s[what] for s in seen[name]], "{:.3g}") for what in INDICATORS)]
            for name in seen
        ],
    )
    return f"{accuracy}\n\n{second}"


def fedmlb(what: str) -> Callable[[Path], str]:
    """Methods beside each other: the moving average at the end and halfway, and rounds to targets."""

    def shown(root: Path) -> str:
        columns = _columns(_found(root, f"fedmlb-{what}"))
        end, half = columns.pop("end"), columns.pop("half")
        more: dict[str, Cell] = {"halfway": lambda name: f"{half[name]['mean']:.2f}"}
        return _compared(
            end,
            before=more | {_head(by_row): partial(_rounds, by_row) for by_row in columns.values()},
        )

    return shown


def fedmix(data: str) -> Callable[[Path], str]:
    """All methods on a data set: accuracy, and rounds to a target."""

    def shown(root: Path) -> str:
        columns = _columns(_found(root, f"fedmix-{data}"))
        to, rows = columns["rounds"], columns["accuracy"]
        theirs = (
            {"rounds in the paper": lambda name: _printed(to[name], "{:g}")}
            if any(f["printed"] for f in to.values())
            else {}
        )
        return _compared(
            rows,
            before={_head(to): partial(_rounds, to)},
            behind=theirs,
            paper="{:.1f}",
            gain="{:+.1f}",
        )

    return shown


def swept(what: str) -> Callable[[Path], str]:
    """What one setting of FedMix does: accuracy of each row, by column."""

    def shown(root: Path) -> str:
        columns = _columns(_found(root, f"fedmix-{what}"))
        first = next(iter(columns.values()))
        heads = [f"{name}{of}" for name in columns for of in ("", ", paper")]
        lines = [
            [
                row,
                *(
                    x
                    for c in columns.values()
                    for x in (_spread(c[row]["ours"], "{:.2f}"), _printed(c[row], "{:.1f}"))
                ),
            ]
            for row in first
        ]
        return table(["method", *heads], lines)

    return shown


def fedafa(root: Path) -> str:
    """All methods on the long tail: the paper's score, the one weighted by labels, and the worst tenth of clients."""
    recall, weighted, worst = _columns(_found(root, "fedafa-table1")).values()
    more: dict[str, Cell] = {
        "worst tenth": lambda name: f"{worst[name]['mean']:.2f}",
        "weighted %": lambda name: f"{weighted[name]['mean']:.2f}",
    }
    return _compared(recall, before=more, base="fedavg-ft", score="recall %")


def _found(root: Path, name: str) -> dict[str, Any]:
    return dict(
        json.loads((root / "docs" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    )


def _columns(found: dict[str, Any]) -> dict[str, dict[str, Figure]]:
    """The figures by column and row."""
    columns: dict[str, dict[str, Figure]] = {}
    for f in found["figures"]:
        columns.setdefault(f["column"], {})[f["row"]] = f
    return columns


def _compared(
    rows: Mapping[str, Figure],
    before: Mapping[str, Cell] = MappingProxyType({}),
    behind: Mapping[str, Cell] = MappingProxyType({}),
    base: str = "fedavg",
    score: str = "accuracy %",
    paper: str = "{:.2f}",
    gain: str = "{:+.2f}",
) -> str:
    """Methods beside a base, ours and the paper's; further columns stand before the paper's or behind them."""
    first = rows[base]

    def line(name: str, f: Figure) -> list[str]:
        over = [a - b for a, b in zip(f["ours"], first["ours"], strict=True)]
        theirs = (
            f["printed"]["mean"] - first["printed"]["mean"]
            if f["printed"] and first["printed"]
            else None
        )
        return [
            name,
            f"{f['mean']:.2f}",
            ", ".join(f"{y:.2f}" for y in f["ours"]),
            _spread(over, "{:+.2f}"),
            *(cell(name) for cell in before.values()),
            _printed(f, paper),
            "-" if theirs is None else gain.format(theirs),
            *(cell(name) for cell in behind.values()),
        ]

    shown = TITLES[base]
    heads = [
        "method",
        score,
        "by seed",
        f"gain on {shown}, seed by seed",
        *before,
        "paper",
        "gain in the paper",
        *behind,
    ]
    return table(heads, [line(name, f) for name, f in rows.items()])


def _printed(figure: Figure, form: str) -> str:
    return form.format(figure["printed"]["mean"]) if figure["printed"] else "-"


def _rounds(by_row: Mapping[str, Figure], name: str) -> str:
    return rounds_to(by_row[name]["ours"], by_row[name]["rounds"])


def _head(by_row: Mapping[str, Figure]) -> str:
    """The heading of the rounds to a target."""
    (word,) = parse(next(iter(by_row.values()))["measure"])
    return f"to {100 * float(word.args['to']):.0f} %"


def _spread(values: Sequence[float], form: str) -> str:
    """Mean and, in brackets, the sample standard deviation over seeds, if there are several."""
    mean = form.format(statistics.fmean(values))
    return f"{mean} ({statistics.stdev(values):.2g})" if len(values) > 1 else mean
