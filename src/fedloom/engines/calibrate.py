"""Calibration: how fast the vectorised engine is on a run's own work, compared with in-process.

A few clients are run both ways. The choice of an engine may affect the last bits of a result, and
no two timings are equal, so the timing is stored and used for all later runs of the same kind. If
it cannot be stored, it is not used.
"""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fedloom.core.determinism import deterministic, one_thread
from fedloom.core.errors import RunError, UserError
from fedloom.core.federation import Federation
from fedloom.core.job import build_isolated
from fedloom.core.request import Broadcast, ClientTask
from fedloom.core.sampler import everyone
from fedloom.core.simulation import Engine, Simulation, init_state
from fedloom.core.solver import Sgd
from fedloom.engines.inprocess import InProcess
from fedloom.engines.vectorised import Vectorised
from fedloom.runs.durable_files import file_error, write_durably

FILE = "calibration.json"
REPETITIONS = 3  # the first one is a warm-up


@dataclass(frozen=True)
class Timing:
    """Seconds for the same clients on either engine."""

    inprocess: float
    vectorised: float

    @property
    def ratio(self) -> float:
        """Vectorised over in-process."""
        return self.vectorised / self.inprocess

    @property
    def is_valid(self) -> bool:
        return all(math.isfinite(s) and s > 0 for s in (self.inprocess, self.vectorised))


def calibrated(
    facts: Mapping[str, Any],
    federation: Federation,
    stackable: Federation,
    clients: int,
    steps: int,
) -> Timing | str:
    """The stored timing of runs with these facts on this machine, measured first if there is none.

    A string says why there is no timing. stackable: the federation for the vectorised engine.
    """
    label = json.dumps({**facts, "machine": machine()}, sort_keys=True)
    timings = stored_timings()
    if label in timings:
        return timings[label]
    timing = measure(federation, stackable, clients, steps)
    if isinstance(timing, Timing) and not _store({**timings, label: timing}):
        return f"a calibration cannot be stored in {calibration_file()}"
    return timing


def measure(
    federation: Federation, stackable: Federation, clients: int, steps: int
) -> Timing | str:
    """Time both engines on this number of clients and steps per client; the fastest repetition.

    A string says why the clients cannot be vectorised.
    """
    few, tasks = _shortened(federation, clients, steps), [ClientTask(c) for c in range(clients)]
    exact = InProcess(few)
    vectorised = Vectorised(_shortened(stackable, clients, steps), InProcess(few))
    if vectorised.why_not is not None:
        return vectorised.why_not
    model = build_isolated(few.build)
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    with one_thread(), deterministic(device):
        state = init_state(Simulation(few, everyone(), exact), model)
        sent = Broadcast("train", 0, state.params, state.shared)
        times = [
            (_seconds(exact, sent, tasks, device), _seconds(vectorised, sent, tasks, device))
            for _ in range(REPETITIONS)
        ]
    after_warmup = times[1:]
    return Timing(min(t for t, _ in after_warmup), min(t for _, t in after_warmup))


def _shortened(federation: Federation, clients: int, steps: int) -> Federation:
    """Some clients, spread over all of them, with few steps."""
    total, solver = len(federation.clients), federation.solver
    chosen = [federation.clients[i * total // clients] for i in range(clients)]
    if isinstance(solver, Sgd):
        solver = replace(solver, steps=steps)
    return replace(federation, clients=chosen, solver=solver)


def _seconds(
    engine: Engine, sent: Broadcast, tasks: list[ClientTask], device: torch.device
) -> float:
    """CPU time of this process, which other programs on the machine hardly affect.

    On another device, wall time until it has done all its work.
    """
    on_cpu = device.type == "cpu"
    clock = time.process_time if on_cpu else time.perf_counter
    started = clock()
    for _ in engine.map(sent, tasks):
        pass
    if not on_cpu:
        torch.accelerator.synchronize(device)
    return clock() - started


def machine() -> dict[str, Any]:
    """What a timing depends on, besides the work."""
    return {"torch": torch.__version__, "cores": os.cpu_count(), "cpu": _cpu_name()}


def _cpu_name() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
        return platform.machine()
    return platform.processor() or platform.machine()


def calibration_file() -> Path:
    """Where timings are stored: $XDG_CACHE_HOME/fedloom, by default ~/.cache/fedloom."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fedloom" / FILE


def stored_timings() -> dict[str, Timing]:
    """All stored timings, by the facts of the run as JSON. An unreadable file counts as empty."""
    with suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
        stored = json.loads(calibration_file().read_bytes())
        timings = {label: Timing(**entry) for label, entry in stored.items()}
        return {label: timing for label, timing in timings.items() if timing.is_valid}
    return {}


def stored_summaries() -> list[str]:
    """A line for each stored timing."""
    return [
        f"{_described(json.loads(label))}: vectorised {timing.ratio:.2f} of in-process"
        for label, timing in stored_timings().items()
    ]


def _described(facts: Mapping[str, Any]) -> str:
    method, model = facts["method"]["name"], facts["model"]["name"]
    return f"{method} on {model}, {facts['cohort']} clients per round, batches of {facts['batch']}"


def forget() -> None:
    """Delete all stored timings."""
    try:
        calibration_file().unlink(missing_ok=True)
    except OSError as error:
        raise file_error(calibration_file(), error, UserError) from error


def _store(timings: Mapping[str, Timing]) -> bool:
    """Write the timings; whether that was possible."""
    text = json.dumps({label: asdict(timing) for label, timing in timings.items()}, indent=1)
    with suppress(OSError, RunError):
        calibration_file().parent.mkdir(parents=True, exist_ok=True)
        write_durably(calibration_file(), text.encode() + b"\n")
        return True
    return False
