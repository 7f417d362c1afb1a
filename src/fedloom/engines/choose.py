"""Engine "auto": the engine that is expected to be the fastest for a run.

Small runs stay in-process. For larger ones a calibration (engines/calibrate.py) decides between the
vectorised engine and the fastest exact one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedloom.core.federation import Federation
from fedloom.engines.calibrate import Timing, calibrated

PARALLEL_MACS = 3e10  # a run of fewer multiply-accumulates (5 s on one core) is not worth workers
MARGIN = 0.8  # the vectorised engine is not bit-exact, so it must be faster by this factor
CALIBRATION_CLIENTS = 32  # at most
CALIBRATION_STEPS = 3  # per client, at most
CALIBRATION_MACS = 3e9  # per repetition, roughly at most


@dataclass(frozen=True)
class EngineChoice:
    """An engine by name. why: the reasons of "auto", for verbose output.

    warning: what the user must know, because it is not the engine that was asked for.
    """

    engine: str
    why: str = ""
    warning: str = ""


@dataclass(frozen=True)
class WorkEstimate:
    """How much work a run is.

    macs_per_step: multiply-accumulates of one gradient step, forward and backward. steps: of one
    client in one round. cohort: clients per round. facts: whatever else identifies this kind of
    run, by which its calibration is stored.
    """

    macs_per_step: float
    steps: int
    cohort: int
    rounds: int
    facts: Mapping[str, Any]

    @property
    def total_macs(self) -> float:
        return self.macs_per_step * self.steps * self.cohort * self.rounds


def fastest_engine(
    work: WorkEstimate, federation: Federation, rebuild: Callable[[str], Federation], workers: int
) -> EngineChoice:
    """The fastest engine for this work, with this number of workers; a GPU has one."""
    if work.total_macs <= PARALLEL_MACS:
        return EngineChoice("inprocess")
    facts = {**work.facts, "cohort": work.cohort, "steps": work.steps}
    affordable = int(CALIBRATION_MACS / (work.macs_per_step * CALIBRATION_STEPS))
    clients = max(1, min(work.cohort, CALIBRATION_CLIENTS, affordable))
    steps = min(work.steps, CALIBRATION_STEPS)
    timing = calibrated(facts, federation, rebuild("contiguous"), clients, steps)
    return _faster(timing, workers)


def _faster(timing: Timing | str, workers: int) -> EngineChoice:
    """The vectorised engine if it is clearly faster than the exact engine on all workers."""
    exact = "pool" if workers > 1 else "inprocess"
    if isinstance(timing, str):
        return EngineChoice(exact, f"not vectorised, since {timing}")
    figures = (
        f"calibrated: vectorised {timing.ratio:.2f} of in-process, "
        f"pool of {workers} {1 / workers:.2f}"
    )
    if timing.ratio > MARGIN / workers:
        return EngineChoice(exact, figures)
    return EngineChoice(
        "vectorised", f"{figures}; equal to the exact engines up to rounding, not the same bits"
    )
