"""How fast clients are side by side on a run's own work: a few of them are played both ways, and the finding is kept.

The choice of an engine may decide over the last bits of a result, and a clock is never the same twice. So the finding is written
down for the next run of the kind, and where it cannot be, nothing is found.
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

from fedloom.core.client import Broadcast, Federation, Task
from fedloom.core.determinism import deterministic, one_thread
from fedloom.core.errors import RunError, UserError
from fedloom.core.job import build_isolated
from fedloom.core.round import Engine, Simulation, init_state
from fedloom.core.sampler import everyone
from fedloom.core.solver import Sgd
from fedloom.engines.inprocess import InProcess
from fedloom.engines.vectorised import Vectorised
from fedloom.runs.durable_files import file_error, write_durably

FILE = "calibration.json"
TURNS = 3


@dataclass(frozen=True)
class Timing:
    """Seconds of the same clients one after the other, and side by side."""

    inprocess: float
    vectorised: float

    @property
    def ratio(self) -> float:
        """Side by side over one after the other."""
        return self.vectorised / self.inprocess


def calibrated(
    facts: Mapping[str, Any], one_by_one: Federation, beside: Federation, clients: int, steps: int
) -> Timing | str:
    """How this machine does on runs of which these are the facts, measured if need be; or why that is not known.

    The same federation twice, as either engine plays it.
    """
    label = json.dumps({**facts, "machine": machine()}, sort_keys=True)
    if label in (found := known()):
        return found[label]
    timing = measured(one_by_one, beside, clients, steps)
    if isinstance(timing, Timing) and not _kept({**found, label: timing}):
        return f"a calibration cannot be kept in {place()}"
    return timing


def measured(one_by_one: Federation, beside: Federation, clients: int, steps: int) -> Timing | str:
    """Both engines in turn on some clients of a few steps each, the quickest turn; or why these cannot go side by side."""
    few, tasks = _few(one_by_one, clients, steps), [Task(c) for c in range(clients)]
    exact, stacked = InProcess(few), Vectorised(_few(beside, clients, steps), InProcess(few))
    if stacked.why_not is not None:
        return stacked.why_not
    with one_thread(), deterministic(torch.device("cpu")):
        state = init_state(Simulation(few, everyone(), exact), build_isolated(few.build))
        sent = Broadcast("train", 0, state.params, state.shared)
        turns = [
            (_seconds(exact, sent, tasks), _seconds(stacked, sent, tasks)) for _ in range(TURNS)
        ]
    return Timing(
        *(min(seconds) for seconds in zip(*turns[1:], strict=True))
    )  # the first turn warms up


def _few(federation: Federation, clients: int, steps: int) -> Federation:
    """Some clients from all over, with a short way to go."""
    every, solver = len(federation.clients), federation.solver
    some = [federation.clients[i * every // clients] for i in range(clients)]
    return replace(
        federation,
        clients=some,
        solver=replace(solver, steps=steps) if isinstance(solver, Sgd) else solver,
    )


def _seconds(engine: Engine, sent: Broadcast, tasks: list[Task]) -> float:
    """Seconds of this process, whoever else is at work on the machine."""
    started = time.process_time()
    for _ in engine.map(sent, tasks):
        pass
    return time.process_time() - started


def machine() -> dict[str, Any]:
    """What a time depends on, beside the work."""
    return {"torch": torch.__version__, "cores": os.cpu_count(), "cpu": _cpu()}


def _cpu() -> str:
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(
            (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
            platform.machine(),
        )
    return platform.processor() or platform.machine()


def place() -> Path:
    """The file of the findings: in $XDG_CACHE_HOME/fedloom, else in ~/.cache/fedloom."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fedloom" / FILE


def known() -> dict[str, Timing]:
    """What was found so far, by the facts of the run; what cannot be read is not known."""
    with suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
        found = {
            label: Timing(**entry) for label, entry in json.loads(place().read_bytes()).items()
        }
        return {
            label: t
            for label, t in found.items()
            if all(math.isfinite(s) and s > 0 for s in (t.inprocess, t.vectorised))
        }
    return {}


def findings() -> list[str]:
    """What was found, in a line each."""
    return [
        f"{_named(json.loads(label))}: vectorised {timing.ratio:.2f} of in-process"
        for label, timing in known().items()
    ]


def _named(facts: Mapping[str, Any]) -> str:
    method, model = (facts[word]["name"] for word in ("method", "model"))
    return f"{method} on {model}, {facts['cohort']} clients a round, batches of {facts['batch']}"


def forget() -> None:
    """Throw away what was found."""
    try:
        place().unlink(missing_ok=True)
    except OSError as error:
        raise file_error(place(), error, UserError) from error


def _kept(found: Mapping[str, Timing]) -> bool:
    """Whether the findings could be written down."""
    with suppress(OSError, RunError):
        place().parent.mkdir(parents=True, exist_ok=True)
        write_durably(
            place(),
            json.dumps({label: asdict(t) for label, t in found.items()}, indent=1).encode() + b"\n",
        )
        return True
    return False
