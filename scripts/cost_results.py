"""Count the costs that papers make claims about, and write them as the result file of a suite.

    python scripts/cost_results.py

MACs, parameters, bytes and the peak memory of a step are counted by the code of `fedloom cost`,
exactly; methods that draw at random are averaged over DRAWS steps. Step times come from
benchmarks/results/steps.json: one figure per turn, if the benchmark has stored its turns.
"""

from __future__ import annotations

import json
import platform
from typing import Any

import torch
from earlier_results import RESULTS, ROOT, as_text

from fedloom.claims.commits import git
from fedloom.diagnostics.cost.count import Cost, count_cost
from fedloom.diagnostics.cost.measure import measure
from fedloom.inspect import cost_tables

TABLE = "fedalign/table5"
COST_TABLE = "fedalign/cost-table5"
DRAWS = 64
ROUNDS = 500  # of FedMix on CIFAR-10
IMAGE, CLASSES, BYTES = 3 * 32 * 32, 10, 4
TIMED = ("time-moon-3x", "time-fedalign", "time-gradaug", "time-fedprox")
QUIET = 0.5  # load average of other processes
STEPS = ROOT / "benchmarks" / "results" / "steps.json"


def figure(preset: str, row: str, column: str, metric: str, *values: float) -> dict[str, Any]:
    """A figure of the result file; several values are repetitions."""
    by_seed = {str(number): value for number, value in enumerate(values)}
    return {"preset": preset, "row": row, "column": column, "metric": metric, "by_seed": by_seed}


def table_figures(draws: int = DRAWS) -> list[dict[str, Any]]:
    """Forward MACs and stored parameters of every row of FedAlign's cost table."""
    table, figures = cost_tables.table(TABLE), []
    for row in table.rows:
        counted = cost_tables.count(table, row, "paper", draws).cost
        macs, stored = counted.macs("paper"), counted.stored("paper")
        figures.append(figure(COST_TABLE, row.name, "mflops", "macs", macs))
        figures.append(figure(COST_TABLE, row.name, "params_m", "stored_parameters", stored))
    return figures


def count(method: str, model: str) -> Cost:
    """The cost of a method on the model's usual input."""
    return count_cost(cost_tables.case_of(model, None, None).scene(method, 2))


def traffic_figures() -> list[dict[str, Any]]:
    """Bytes per client and round, both ways; and FedMix's averages beside its models."""
    column = "bytes_up_and_down"
    figures = []
    for method in ("fedavg", "fedgkd", "fedmlb"):
        counted = count(method, "resnet8")
        total = counted.bytes_up + counted.bytes_down
        figures.append(figure("cost", method, column, column, total))
    models = ROUNDS * count("fedmix", "vgg").bytes_up
    averages = BYTES * (IMAGE + CLASSES)  # one image and its label, sent once
    figures.append(figure("cost", "averages", "bytes", "bytes", averages))
    figures.append(figure("cost", "models", "bytes", "bytes", models))
    return figures


def memory_figures() -> list[dict[str, Any]]:
    """The peak of all tensors in a step on VGG at the paper's batch size."""
    case, column = cost_tables.case_of("vgg", None, None), "peak_bytes"
    return [
        figure("cost", method, column, column, measure(case.scene(method, 10), steps=1).peak)
        for method in ("fedavg", "fedmix")
    ]


def timed_steps() -> dict[str, Any]:
    """What the benchmark has stored of FedAlign's methods."""
    stored: dict[str, Any] = json.loads(STEPS.read_text(encoding="utf-8"))["fedalign"]
    return stored


def time_figures() -> list[dict[str, Any]]:
    """Seconds per step of FedAlign's methods on ResNet-56, by turn."""
    methods = timed_steps()["methods"]
    return [
        figure(TABLE, name, "step_seconds", "step_seconds", *turns(row))
        for name, row in methods.items()
    ]


def time_gate() -> dict[str, Any]:
    """Timed steps are a fair test only if the machine had nothing else to do."""
    load = timed_steps().get("load")
    if load is None:
        return {"met": None, "why": "the load of the machine was not recorded"}
    why = f"load {load:.1f} before the timing; at most {QUIET} is a quiet machine"
    return {"met": load <= QUIET, "why": why}


def turns(row: dict[str, Any]) -> list[float]:
    """The seconds of each turn; only their median, if that is all there is."""
    stored: list[float] = row.get("turn_seconds", [row["step_seconds"]])
    return stored


def main() -> None:
    """Count everything and write the file."""
    torch.set_num_threads(1)
    result = {
        "format": 1,
        "suite": "cost",
        "commit": git(ROOT, "rev-parse", "HEAD") or "",
        "scale": "the papers' models and inputs; traffic on ResNet-8, memory on VGG at batch 10",
        "extended": timed_steps().get("extended", False),
        "gate": {"met": True, "why": "counted, not measured"},
        "gate_by_claim": {f"fedalign/{name}": time_gate() for name in TIMED},
        "figures": [*table_figures(), *traffic_figures(), *memory_figures(), *time_figures()],
        "machine": {"torch": torch.__version__, "python": platform.python_version()},
        "runs": [],
    }
    (RESULTS / "cost.json").write_text(as_text(result), encoding="utf-8")


if __name__ == "__main__":
    main()
