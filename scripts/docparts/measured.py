"""What the benchmarks measured, read from their results."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

from docparts.markdown import table

Columns = dict[str, tuple[str, str]]  # heading: figure and format

ENGINES: Columns = {
    "wall": ("seconds", "{:.3f} s"),
    "CPU": ("cpu_seconds", "{:.3f} s"),
    "memory": ("memory_mib", "{:.0f} MiB"),
}
FIXED: Columns = {
    "fixed": ("fixed_seconds", "{:.2f} s"),
    "a further round": ("round_seconds", "{:.2f} s"),
}
CROWD: Columns = {
    "peak": ("peak_mib", "{:.0f} MiB"),
    "at round 10": ("round_10_mib", "{:.0f} MiB"),
    "growth from there on": ("growth", "{:+.1%}"),
    "first round done after": ("first_round_seconds", "{:.1f} s"),
    "whole run": ("run_seconds", "{:.1f} s"),
}
BESIDE: Columns = {
    "a round": ("seconds", "{:.3f} s"),
    "of our best": ("ratio", "{:.2f}"),
    "CPU a round": ("cpu_seconds", "{:.3f} s"),
    "memory": ("memory_mib", "{:.0f} MiB"),
    "beside the rounds": ("fixed", "{:.1f} s"),
}


STEPS: Columns = {  # of whom is told by the base of a study
    "a step": ("step_seconds", "{:.3f} s"),
    "of {}": ("ratio", "{:.2f}"),
    "mark": ("mark", "{:.2f}"),
    "memory": ("memory_mb", "{:.0f} MB"),
    "of {} memory": ("memory_ratio", "{:.2f}"),
    "of {} MACs": ("macs_ratio", "{:.2f}"),
    "passes forward beyond": ("more_forward", "{}"),
    "and backward": ("more_backward", "{}"),
}
WHOSE = {"fedavg": "FedAvg's", "finetune": "fine-tuning's"}
WORK = {"train": "", "personalise": ", personalising"}
OWN: Columns = {
    "in the rounds": ("rounds_mib", "{:.0f} MiB"),
    "most while all are scored": ("scoring_mib", "{:.0f} MiB"),
    "result.json": ("result_mib", "{:.1f} MiB"),
}


def _results(root: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (root / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8")
    )
    return found


def overhead(root: Path) -> str:
    """A round beside a bare loop."""
    rows = [
        [
            name,
            f"{r['bare_seconds']:.3f} s",
            f"{r['round_seconds']:.3f} s",
            f"{r['ratio']:.3f}",
            str(r["pairs"]),
        ]
        for name, r in _results(root, "overhead").items()
    ]
    return table(["one round", "bare PyTorch loop", "fedloom", "ratio", "pairs timed"], rows)


def engines(root: Path) -> str:
    """What a round takes on every engine, and the ratios of wall time."""
    found = _results(root, "engines")
    parts = [
        _figures(f"{work.upper()}, {r['rounds']} rounds", r["contestants"], ENGINES)
        for work, r in found.items()
    ]
    names = list(dict.fromkeys(name for r in found.values() for name in r["ratios"]))
    rows = [
        [work.upper(), *(f"{r['ratios'][n]:.2f}" if n in r["ratios"] else "" for n in names)]
        for work, r in found.items()
    ]
    return "\n\n".join([*parts, table(["ratio", *names], rows)])


def fixed(root: Path) -> str:
    """What a run takes besides its rounds."""
    return _figures("seconds of", _results(root, "fixed"), FIXED)


def crowd(root: Path) -> str:
    """The memory of a run with very many clients."""
    return _figures("engine", _results(root, "crowd"), CROWD)


def crowd_own(root: Path) -> str:
    """The memory of crowds with models of their own."""
    return _figures(
        "clients",
        {f"{int(n):,}": row for n, row in _results(root, "crowd-own")["sizes"].items()},
        OWN,
    )


def growth(root: Path) -> str:
    """How a round grows with each of three sizes."""
    rows = [
        [
            name,
            "; ".join(f"{x:,}: {1000 * y:.1f} ms" for x, y in r["points"]),
            f"{r['slope']:.2f}",
            f"{r['bare_slope']:.2f}" if "bare_slope" in r else "",
        ]
        for name, r in _results(root, "growth").items()
    ]
    return table(["with", "size: time of a round", "slope at the end", "of the bare loop"], rows)


def peers(root: Path) -> str:
    """Other libraries beside ours: a table for every workload."""
    return "\n\n".join(
        _figures(work.upper(), rows, BESIDE) for work, rows in _results(root, "peers").items()
    )


def steps(root: Path) -> str:
    """A step of every method beside that of a base: a table for every study, with the figures that it has."""
    return "\n\n".join(_steps(found) for found in _results(root, "steps").values())


def _steps(found: dict[str, Any]) -> str:
    whose, work = WHOSE[found.get("base", "fedavg")], WORK[found.get("work", "train")]
    rows = {
        name: row | {n: _by_block(p) for n, p in row.items() if isinstance(p, dict)}
        for name, row in found["methods"].items()
    }
    there = {
        h: column for h, column in STEPS.items() if any(column[0] in row for row in rows.values())
    }
    return _figures(
        f"{found['model']}, batch {found['batch']}{work}",
        rows,
        {h.format(whose): c for h, c in there.items()},
    )


def _by_block(passes: dict[str, float]) -> str:
    """Passes by block, neighbours that are alike together."""
    runs = [
        (number, [name for name, _ in run])
        for number, run in groupby(passes.items(), lambda p: f"{round(p[1], 1) + 0.0:+.1f}")
    ]
    return ", ".join(
        f"{' to '.join(dict.fromkeys((names[0], names[-1])))} {number}" for number, names in runs
    )


def _figures(title: str, rows: dict[str, Any], columns: Columns) -> str:
    return table([title, *columns], ([name, *_cells(row, columns)] for name, row in rows.items()))


def _cells(row: dict[str, Any], columns: Columns) -> list[str]:
    if "not measured" in row:
        return [row["not measured"], *[""] * (len(columns) - 1)]
    return [
        form.format(row[figure]) if row.get(figure) is not None else ""
        for figure, form in columns.values()
    ]
