"""The tables that were run before the suites, read from docs/results, with paired intervals.

The sentences about a table are computed, too: which rows are above or below the base with an
interval of 95 % that excludes 0, and which are not decided.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from docparts.markdown import anchor, table, unbroken
from fedloom.claims.row_gains import RATIOS
from fedloom.claims.statistics import FEWEST_SEEDS
from fedloom.core.spec import parse
from fedloom.metrics.curve import rounds_to
from fedloom.metrics.paired import PairedDifference, paired_difference

INDICATORS = {
    "lambda_max": "largest eigenvalue",
    "H_T": "trace",
    "H_N": "H_N",
    "H_D": "H_D",
    "drift": "client drift",
    "cosine": "cosine",
}
ANALYSIS = "analysis"
Result = dict[str, Any]  # a cell of a table, as `fedloom reproduce --json` prints it
CellText = Callable[[str], str]  # from the name of a row to the text of its cell
TITLES = {"fedavg": "FedAvg", "fedavg-ft": "FedAvg-FT"}
EARLIER = {  # the page of each table and its heading there
    "fedalign-table1": ("fedalign.md", "Table 1, 8 rounds"),
    "fedmlb-overview": ("fedmlb.md", "10 classes"),
    "fedmlb-wider": ("fedmlb.md", "20 classes"),
    "fedmlb-servers": ("fedmlb.md", "20 classes with server methods"),
    "fedmix-cifar10": ("fedmix.md", "CIFAR-10"),
    "fedmix-cifar100": ("fedmix.md", "CIFAR-100"),
    "fedmix-handwriting": ("fedmix.md", "Handwriting"),
    "fedmix-shakespeare": ("fedmix.md", "Shakespeare"),
    "fedmix-lam": ("fedmix.md", "The mixup ratio"),
    "fedmix-size": ("fedmix.md", "Samples per average"),
    "fedmix-share": ("fedmix.md", "Clients per round"),
    "fedafa-table1": ("fedafa.md", "Table 1, 60 rounds"),
}


def earlier_link(name: str, page: str) -> str:
    """A link from a page to the section of a table."""
    owner, heading = EARLIER[name]
    return f"[{heading}]({'' if owner == page else owner}#{anchor(heading)})"


def fedalign(root: Path) -> str:
    """Table 1: accuracy, and the indicators from the Hessian."""
    stored = _load(root, "fedalign-table1")
    rows = _by_column(stored)["accuracy"]
    accuracy = _compared(
        rows,
        after={"seconds per run": lambda name: f"{rows[name]['seconds']:.0f}"},
        paper="{:g}",
        gain="{:+.1f}",
    )
    second_order = table(
        ["method", *INDICATORS.values()],
        [
            [name, *(_mean_and_std([run[key] for run in runs], "{:.3g}") for key in INDICATORS)]
            for name, runs in stored[ANALYSIS].items()
        ],
    )
    said = [_said({k: _by_seed(v) for k, v in rows.items()}, "fedavg", "accuracy")]
    for key, title in INDICATORS.items():
        by_row = {name: [run[key] for run in runs] for name, runs in stored[ANALYSIS].items()}
        is_ratio = key in RATIOS and min(min(values) for values in by_row.values()) > 0
        scaled = math.log if is_ratio else float
        values = {name: _numbered(list(map(scaled, of_row))) for name, of_row in by_row.items()}
        said.append(_said(values, "fedavg", f"{title}, as a ratio" if is_ratio else title))
    sentences = "\n".join(f"- {sentence}" for sentence in said)
    return (
        f"{accuracy}\n\n{second_order}\n\nDifferences from FedAvg, paired by seed:\n\n{sentences}"
    )


def fedmlb(part: str) -> Callable[[Path], str]:
    """The methods: moving average of the accuracy at the end and halfway, and rounds to targets."""

    def markdown(root: Path) -> str:
        columns = _by_column(_load(root, f"fedmlb-{part}"))
        end, half = columns.pop("end"), columns.pop("half")
        before: dict[str, CellText] = {"halfway": lambda name: f"{half[name]['mean']:.2f}"}
        before |= {_target(by_row): partial(_rounds, by_row) for by_row in columns.values()}
        return _compared(end, before=before)

    return markdown


def fedmix(data: str) -> Callable[[Path], str]:
    """All methods on a data set: accuracy, and rounds to a target."""

    def markdown(root: Path) -> str:
        columns = _by_column(_load(root, f"fedmix-{data}"))
        to_target = columns["rounds"]
        after: dict[str, CellText] = {}
        if any(result["printed"] for result in to_target.values()):
            after["rounds in the paper"] = lambda name: _printed(to_target[name], "{:g}")
        return _compared(
            columns["accuracy"],
            before={_target(to_target): partial(_rounds, to_target)},
            after=after,
            paper="{:.1f}",
            gain="{:+.1f}",
        )

    return markdown


def swept(setting: str) -> Callable[[Path], str]:
    """The effect of one setting of FedMix: the accuracy of each row, by column."""

    def markdown(root: Path) -> str:
        columns = _by_column(_load(root, f"fedmix-{setting}"))
        heads = [f"{name}{suffix}" for name in columns for suffix in ("", ", paper")]
        lines = []
        for row in next(iter(columns.values())):
            line = [row]
            for by_row in columns.values():
                line.append(_mean_and_std(by_row[row]["ours"], "{:.2f}"))
                line.append(_printed(by_row[row], "{:.1f}"))
            lines.append(line)
        return f"{table(['method', *heads], lines)}\n\nOne seed: nothing is decided by this table."

    return markdown


def fedafa(root: Path) -> str:
    """All methods on long-tailed data: the paper's score, its worst tenth, the weighted score."""
    recall, weighted, worst = _by_column(_load(root, "fedafa-table1")).values()
    before: dict[str, CellText] = {
        "worst tenth": lambda name: f"{worst[name]['mean']:.2f}",
        "weighted %": lambda name: f"{weighted[name]['mean']:.2f}",
    }
    return _compared(recall, before=before, base="fedavg-ft", score="recall %")


def _load(root: Path, name: str) -> dict[str, Any]:
    file = root / "docs" / "results" / f"{name}.json"
    return dict(json.loads(file.read_text(encoding="utf-8")))


def _by_column(stored: dict[str, Any]) -> dict[str, dict[str, Result]]:
    """The results by column and row."""
    columns: dict[str, dict[str, Result]] = {}
    for result in stored["figures"]:
        columns.setdefault(result["column"], {})[result["row"]] = result
    return columns


def _compared(
    rows: Mapping[str, Result],
    before: Mapping[str, CellText] = MappingProxyType({}),
    after: Mapping[str, CellText] = MappingProxyType({}),
    base: str = "fedavg",
    score: str = "accuracy %",
    paper: str = "{:.2f}",
    gain: str = "{:+.2f}",
) -> str:
    """Methods compared with a base, ours and the paper's.

    before, after: further columns, placed before or after the paper's.
    paper, gain: formats of the paper's numbers.
    """
    base_result = rows[base]

    def line(name: str, result: Result) -> list[str]:
        gain_over_base = paired_difference(_by_seed(result), _by_seed(base_result))
        return [
            name,
            f"{result['mean']:.2f}",
            ", ".join(f"{value:.2f}" for value in result["ours"]),
            "-" if name == base else _with_interval(gain_over_base),
            *(cell(name) for cell in before.values()),
            _printed(result, paper),
            _printed_gain(result, base_result, gain),
            *(cell(name) for cell in after.values()),
        ]

    heads = [
        "method",
        score,
        "by seed",
        f"gain over {TITLES[base]} [95 %]",
        *before,
        "paper",
        "gain in the paper",
        *after,
    ]
    text = table(heads, [line(name, result) for name, result in rows.items()])
    return f"{text}\n\n{_said({k: _by_seed(v) for k, v in rows.items()}, base, score)}"


def _by_seed(result: Result) -> dict[int, float]:
    return _numbered(result["ours"])


def _numbered(values: Sequence[float]) -> dict[int, float]:
    return dict(enumerate(values))


def _with_interval(found: PairedDifference | None) -> str:
    if found is None:
        return "-"
    if found.interval is None:
        return f"{found.mean:+.2f}"
    return unbroken(f"{found.mean:+.2f} [{found.interval[0]:+.2f}, {found.interval[1]:+.2f}]")


def _said(rows: Mapping[str, Mapping[int, float]], base: str, what: str) -> str:
    """Which rows are above and below the base, and which are not decided."""
    if len(rows[base]) < FEWEST_SEEDS:
        return "One seed: nothing is decided by this table."
    groups: dict[str, list[str]] = {"above": [], "below": [], "identical": [], "not decided": []}
    for name, values in rows.items():
        if name != base:
            groups[_place(values, rows[base])].append(name)
    words = [f"{place}: {', '.join(names)}" for place, names in groups.items() if names]
    return f"{_capital(what.removesuffix(' %'))}, compared with {TITLES[base]}: {'; '.join(words)}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _place(ours: Mapping[int, float], theirs: Mapping[int, float]) -> str:
    found = paired_difference(ours, theirs)
    assert found is not None  # they share their seeds
    if dict(ours) == dict(theirs):
        return "identical"
    if not found.excludes_zero:
        return "not decided"
    return "above" if found.mean > 0 else "below"


def _printed(result: Result, form: str) -> str:
    return form.format(result["printed"]["mean"]) if result["printed"] else "-"


def _printed_gain(result: Result, base: Result, form: str) -> str:
    if not (result["printed"] and base["printed"]):
        return "-"
    return form.format(result["printed"]["mean"] - base["printed"]["mean"])


def _rounds(by_row: Mapping[str, Result], name: str) -> str:
    return rounds_to(by_row[name]["ours"], by_row[name]["rounds"])


def _target(by_row: Mapping[str, Result]) -> str:
    """The heading of a column of rounds to a target."""
    (measure,) = parse(next(iter(by_row.values()))["measure"])
    return f"to {100 * float(measure.args['to']):.0f} %"


def _mean_and_std(values: Sequence[float], form: str) -> str:
    """The mean and, in brackets, the sample standard deviation over seeds, if there are several."""
    mean = form.format(statistics.fmean(values))
    return f"{mean} ({statistics.stdev(values):.2g})" if len(values) > 1 else mean
