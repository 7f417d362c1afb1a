"""The tables of measurements, read from the results of the benchmarks."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

from docparts.markdown import table

Columns = dict[str, tuple[str, str]]  # heading: key of the measurement, format

ENGINES: Columns = {
    "wall": ("seconds", "{:.3f} s"),
    "CPU": ("cpu_seconds", "{:.3f} s"),
    "memory": ("memory_mib", "{:.0f} MiB"),
}
FIXED: Columns = {
    "fixed": ("fixed_seconds", "{:.2f} s"),
    "each round": ("round_seconds", "{:.2f} s"),
}
CROWD: Columns = {
    "peak": ("peak_mib", "{:.0f} MiB"),
    "at round 10": ("round_10_mib", "{:.0f} MiB"),
    "growth after that": ("growth", "{:+.1%}"),
    "first round finished after": ("first_round_seconds", "{:.1f} s"),
    "whole run": ("run_seconds", "{:.1f} s"),
}
PEERS: Columns = {
    "per round": ("seconds", "{:.3f} s"),
    "relative to our best": ("ratio", "{:.2f}"),
    "CPU per round": ("cpu_seconds", "{:.3f} s"),
    "memory": ("memory_mib", "{:.0f} MiB"),
    "besides the rounds": ("fixed", "{:.1f} s"),
}
DEPLOY: Columns = {
    "wall": ("seconds", "{:.2f} s"),
    "from the sites": ("mb_up", "{:.2f} MB"),
    "to the sites": ("mb_down", "{:.2f} MB"),
    "ours relative to it": ("ratio", "{:.2f}"),
}
DEPLOYED: Columns = {
    "rounds": ("rounds", "{}"),
    "weights equal": ("weights", "{}"),
    "clients' own scores equal": ("personal", "{}"),
    "from the sites": ("bytes_up", "{:,} bytes"),
    "to the sites": ("bytes_down", "{:,} bytes"),
    "each round": ("seconds", "{:.1f} s"),
    "sha256 of the weights": ("sha256", "`{:.12}`"),
}
STEPS: Columns = {  # {} is the base of a suite
    "per step": ("step_seconds", "{:.3f} s"),
    "relative to {}": ("ratio", "{:.2f}"),
    "limit": ("mark", "{:.2f}"),
    "memory": ("memory_mb", "{:.0f} MB"),
    "memory relative to {}": ("memory_ratio", "{:.2f}"),
    "MACs relative to {}": ("macs_ratio", "{:.2f}"),
    "additional forward passes": ("more_forward", "{}"),
    "additional backward passes": ("more_backward", "{}"),
}
SIZE: dict[str, list[tuple[str, str, str, str]]] = {  # label, key, format, limit
    "cohort": [
        *(
            (
                f"10M parameters, {clients} clients per round: peak memory",
                f"models of {clients} clients",
                "{:.1f} models",
                "",
            )
            for clients in (10, 50, 200)
        ),
        ("200 clients more than 10", "extra models of 200 clients", "{:.2f} models", "1"),
    ],
    "huge": [("100M parameters, 10 clients per round", "models", "{:.1f} models", "10")],
    "clients": [
        ("1,000,000 clients: first round after", "first_round_seconds", "{:.1f} s", "6 s"),
        ("the same in CPU time", "first_round_cpu_seconds", "{:.1f} s", ""),
        ("memory besides the data", "mib_besides_data", "{:.0f} MiB", "512 MiB"),
    ],
    "scaffold": [
        ("SCAFFOLD, 10M, 10 clients: written per round", "written_mib", "{:.0f} MiB", ""),
        ("relative to what changes", "written_of_changed", "{:.2f}", "1.2"),
    ],
    "pool": [
        ("10M, 10 clients: a round in-process", "inprocess_seconds", "{:.2f} s", ""),
        ("a round of the pool", "pool_seconds", "{:.2f} s", ""),
        ("pool relative to in-process", "pool_of_inprocess", "{:.2f}", "1"),
    ],
}
PARTS = ("step", "client", "round")  # what a count of transfers is for
BASES = {"fedavg": "FedAvg", "finetune": "fine-tuning"}
WORK = {"train": "", "personalise": ", personalising"}
PERSONAL_MODELS: Columns = {
    "during the rounds": ("rounds_mib", "{:.0f} MiB"),
    "peak while all are scored": ("scoring_mib", "{:.0f} MiB"),
    "result.json": ("result_mib", "{:.1f} MiB"),
}


def _results(root: Path, name: str) -> dict[str, Any]:
    file = root / "benchmarks" / "results" / f"{name}.json"
    results: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return results


def overhead(root: Path) -> str:
    """A round compared with a plain PyTorch loop."""
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
    return table(["one round", "plain PyTorch loop", "fedloom", "ratio", "pairs timed"], rows)


def engines(root: Path) -> str:
    """The cost of a round on every engine, and the ratios of wall time."""
    results = _results(root, "engines")
    parts = [
        _figures(f"{work.upper()}, {r['rounds']} rounds", r["contestants"], ENGINES)
        for work, r in results.items()
    ]
    names = list(dict.fromkeys(name for r in results.values() for name in r["ratios"]))
    rows = [
        [work.upper(), *(f"{r['ratios'][n]:.2f}" if n in r["ratios"] else "" for n in names)]
        for work, r in results.items()
    ]
    return "\n\n".join([*parts, table(["ratio", *names], rows)])


def fixed(root: Path) -> str:
    """The fixed cost of a run besides its rounds."""
    return _figures("time of", _results(root, "fixed"), FIXED)


def crowd(root: Path) -> str:
    """Memory of a run with very many clients."""
    return _figures("engine", _results(root, "crowd"), CROWD)


def crowd_own(root: Path) -> str:
    """Memory of runs with very many clients that have personal models."""
    sizes = _results(root, "crowd-own")["sizes"]
    rows = {f"{int(clients):,}": row for clients, row in sizes.items()}
    return _figures("clients", rows, PERSONAL_MODELS)


def growth(root: Path) -> str:
    """How the time of a round grows with each of three sizes."""
    rows = [
        [
            name,
            "; ".join(f"{x:,}: {1000 * y:.1f} ms" for x, y in r["points"]),
            f"{r['slope']:.2f}",
            f"{r['bare_slope']:.2f}" if "bare_slope" in r else "",
        ]
        for name, r in _results(root, "growth").items()
    ]
    return table(
        ["by", "size: time of a round", "slope at the end", "slope of the plain loop"], rows
    )


def size(root: Path) -> str:
    """Memory and bytes at scale, before they were worked on and now."""
    rows = [
        [
            label,
            *(
                pattern.format(r[when][key]) if key in r.get(when, {}) else ""
                for when in ("before", "now")
            ),
            limit,
        ]
        for part, r in _results(root, "size").items()
        for label, key, pattern, limit in SIZE[part]
    ]
    return table(["", "before", "now", "limit"], rows)


def peers(root: Path) -> str:
    """Other libraries compared with ours: a table for each workload."""
    return "\n\n".join(
        _figures(work.upper(), rows, PEERS) for work, rows in _results(root, "peers").items()
    )


def deploy(root: Path) -> str:
    """A round over Flower compared with in-process and with a plain Flower app."""
    results = _results(root, "deploy")
    rows = {
        name: {
            "seconds": row["seconds"],
            "mb_up": row["bytes_up"] / 1e6,
            "mb_down": row["bytes_down"] / 1e6,
            "ratio": results["ratios"].get(f"ours / {name}"),
        }
        for name, row in results["medians"].items()
    }
    return _figures("a round", rows, DEPLOY)


def deployed_methods(root: Path) -> str:
    """Methods over Flower compared with the same runs in-process."""
    return _figures("method", _results(root, "deploy-methods")["methods"], DEPLOYED)


def steps(root: Path) -> str:
    """A step of every method compared with a base: a table for each suite."""
    return "\n\n".join(_suite(suite) for suite in _results(root, "steps").values())


def transfers(root: Path) -> str:
    """Waits for a GPU and copies to or from it, at an earlier commit and now."""
    before, now = _results(root, "transfers-06d014d"), _results(root, "transfers")
    columns = [f"{kind} per {part}" for part in PARTS for kind in ("waits", "copies")]
    rows = [
        [
            name,
            *(
                f"{before[name][part][kind]:g} → {counts[part][kind]:g}"
                for part in PARTS
                for kind in ("waits", "copies")
            ),
        ]
        for name, counts in now.items()
    ]
    return table(["", *columns], rows)


def _suite(suite: dict[str, Any]) -> str:
    base, work = BASES[suite.get("base", "fedavg")], WORK[suite.get("work", "train")]
    rows = {
        name: row | {key: _by_block(value) for key, value in row.items() if isinstance(value, dict)}
        for name, row in suite["methods"].items()
    }
    measured = {key for row in rows.values() for key in row}
    columns = {
        heading.format(base): column for heading, column in STEPS.items() if column[0] in measured
    }
    return _figures(f"{suite['model']}, batch {suite['batch']}{work}", rows, columns)


def _by_block(passes: dict[str, float]) -> str:
    """Passes by block; consecutive blocks with the same number are merged."""
    texts = []
    for number, group in groupby(passes.items(), lambda item: f"{round(item[1], 1) + 0.0:+.1f}"):
        names = [name for name, _ in group]
        blocks = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        texts.append(f"{blocks} {number}")
    return ", ".join(texts)


def _figures(title: str, rows: dict[str, Any], columns: Columns) -> str:
    return table([title, *columns], ([name, *_cells(row, columns)] for name, row in rows.items()))


def _cells(row: dict[str, Any], columns: Columns) -> list[str]:
    if "not measured" in row:
        return [row["not measured"], *[""] * (len(columns) - 1)]
    return [
        form.format(row[key]) if row.get(key) is not None else "" for key, form in columns.values()
    ]
