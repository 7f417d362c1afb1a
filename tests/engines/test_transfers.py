"""How often every method may wait for a GPU, counted on a simulated one (benchmarks/transfers.py).

A step may not wait at all. A client waits for its mean loss and for the norms of what it sends.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedloom.methods.registry import names

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
ROWS = (*names(), "batch norm", "vectorised", "test batch")
# M2m and FedAFA draw targets and sources by the labels of a batch, on the host
WAITS_PER_STEP = {"m2m": 1, "fedafa": 1, "test batch": 1}
WAITS_PER_CLIENT = 5  # at most: a loss for each phase, an answer for each upload and memory
DEVICE_BITS = ("fedafa", "globalmixup", "scaffold")
QUICK = ("fedavg", "fedafa", "globalmixup", "batch norm", "vectorised")


def recorded(name: str) -> dict[str, Any]:
    counts: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return counts


def counted(rows: tuple[str, ...], folder: Path) -> dict[str, Any]:
    """The counts of these rows, in a process of its own: the device is registered once in one."""
    file = folder / "counts.json"
    command = [sys.executable, "-m", "benchmarks.transfers", "--only", ",".join(rows)]
    subprocess.run([*command, "--json", str(file)], cwd=ROOT, check=True, capture_output=True)
    counts: dict[str, Any] = json.loads(file.read_text())
    return counts


def test_backward_passes_run_in_the_calling_thread() -> None:
    """In another thread they may outlive the interpreter, which aborts the process at its end."""
    code = """
import threading, torch
from benchmarks.simulated_gpu import DEVICE, SimulatedGpu, register
register()
threads = []
with SimulatedGpu():
    x = torch.ones(3).to(DEVICE).requires_grad_()
    x.register_hook(lambda _: threads.append(threading.current_thread()))
    (x * x).sum().backward()
assert threads == [threading.main_thread()], threads
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def waits_of_one_step(counts: dict[str, Any]) -> float:
    return sum(float(counts[part]["waits"]) for part in ("step", "client", "round"))


@pytest.mark.parametrize("name", ["transfers", "transfers-06d014d"])
def test_every_method_is_counted(name: str) -> None:
    assert sorted(recorded(name)) == sorted(ROWS)


@pytest.mark.parametrize("row", ROWS)
def test_a_method_keeps_its_budget(row: str) -> None:
    now, before = recorded("transfers")[row], recorded("transfers-06d014d")[row]
    assert now["step"]["waits"] <= WAITS_PER_STEP.get(row, 0)
    assert now["client"]["waits"] <= WAITS_PER_CLIENT
    # a round of one client with one step, the least for which a wait pays that is made once
    assert waits_of_one_step(now) <= waits_of_one_step(before)


def assert_no_more_than_recorded(rows: tuple[str, ...], folder: Path) -> None:
    allowed = recorded("transfers")
    for row, counts in counted(rows, folder).items():
        for part, costs in counts.items():
            for kind, cost in costs.items():
                assert cost <= allowed[row][part][kind], (row, part, kind)


@pytest.mark.slow
def test_some_methods_cost_no_more_than_recorded(tmp_path: Path) -> None:
    assert_no_more_than_recorded(QUICK, tmp_path)


@pytest.mark.long
def test_all_methods_cost_no_more_than_recorded(tmp_path: Path) -> None:
    assert_no_more_than_recorded(ROWS, tmp_path)


def assert_same_bits(methods: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "benchmarks.device_bits", "--only", ",".join(methods)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("same bits") == len(methods)


def test_some_methods_have_the_same_bits_on_the_simulated_gpu() -> None:
    assert_same_bits(DEVICE_BITS)


@pytest.mark.long
def test_all_methods_have_the_same_bits_on_the_simulated_gpu() -> None:
    assert_same_bits(tuple(names()))
