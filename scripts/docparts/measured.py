"""What the benchmarks measured, read from their results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docparts.markdown import table


def _results(root: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def overhead(root: Path) -> str:
    """A round beside a bare loop."""
    rows = [
        [name, f"{r['bare_seconds']:.3f} s", f"{r['round_seconds']:.3f} s", f"{r['ratio']:.3f}", str(r["pairs"])]
        for name, r in _results(root, "overhead").items()
    ]
    return table(["one round", "bare PyTorch loop", "fedloom", "ratio", "pairs timed"], rows)


def engines(root: Path) -> str:
    """Seconds a round of every engine, and the ratios."""
    found = _results(root, "engines")
    names = list(next(iter(found.values()))["seconds"])
    rows = [[work.upper(), *(f"{r['seconds'][n]:.3f} s" for n in names), str(r["rounds"])] for work, r in found.items()]
    ratios = list(next(iter(found.values()))["ratios"])
    more = [[work.upper(), *(f"{r['ratios'][n]:.2f}" for n in ratios)] for work, r in found.items()]
    return table(["a round of", *names, "rounds timed"], rows) + "\n\n" + table(["ratio", *ratios], more)


def growth(root: Path) -> str:
    """How a round grows with each of three sizes."""
    rows = [
        [name, "; ".join(f"{x:,}: {1000 * y:.1f} ms" for x, y in r["points"]), f"{r['slope']:.2f}"]
        for name, r in _results(root, "growth").items()
    ]
    return table(["with", "size: time of a round", "slope at the end"], rows)
