"""Analyses a run at its last checkpoint, on fixed data and within a time budget.

The parts are the curvature of the global model's loss, alignment and drift of clients, accuracy by
user, and leakage of exchanged averages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

import numpy as np

from fedloom.core.determinism import deterministic, one_thread
from fedloom.core.errors import RunError, UserError
from fedloom.core.params import sha256
from fedloom.diagnostics.time_budget import OnProgress
from fedloom.experiment.build import resolve_device
from fedloom.experiment.reopen import ReopenedRun
from fedloom.inspect import curvature
from fedloom.inspect.analysis_files import AnalysisResult, json_safe
from fedloom.inspect.analysis_inputs import PARTS, AnalysisInputs, AnalysisOptions
from fedloom.inspect.client_drift import client_drift
from fedloom.inspect.leakage import has_averages, measure_leakage
from fedloom.inspect.per_user import accuracy_by_user

Part = Callable[[AnalysisInputs], AnalysisResult]


def _local(inputs: AnalysisInputs) -> AnalysisResult:
    return AnalysisResult(accuracy_by_user(inputs.run))


def _leak(inputs: AnalysisInputs) -> AnalysisResult:
    return AnalysisResult(measure_leakage(inputs.run, inputs.key.fold("leak")))


FUNCTIONS: Mapping[str, Part] = MappingProxyType(
    {
        "eigen": curvature.eigenvalues,
        "trace": curvature.traces,
        "diagonal": curvature.diagonal,
        "pairs": curvature.alignment,
        "landscape": curvature.loss_landscape,
        "drift": client_drift,
        "local": _local,
        "leak": _leak,
    }
)


def analyze(
    run: ReopenedRun, options: AnalysisOptions, watch: OnProgress = lambda *progress: None
) -> AnalysisResult:
    """Compute the parts asked for, or as much of them as there is time for.

    The figures name as `cut_short` what ran out of time.
    """
    config = run.prepared.config
    if config.task != "classification":
        raise UserError(
            f"the task of this run is {config.task}, and an analysis is of the cross-entropy of "
            "classes; analyse a run of task=classification"
        )
    with one_thread(), deterministic(resolve_device(config.device)):
        return _analyze(AnalysisInputs(run, options, watch))


def _analyze(inputs: AnalysisInputs) -> AnalysisResult:
    started, budget = time.monotonic(), inputs.budget
    loss = inputs.global_surface.loss()
    if not np.isfinite(loss):
        raise RunError(
            f"the loss of the model after round {inputs.run.state.round} is {loss}, so it has no "
            "curvature; train with a lower learning rate"
        )
    parts = _available_parts(inputs.run, inputs.options)
    results = {name: part(inputs) for name, part in FUNCTIONS.items() if name in parts}
    figures = {
        **_header(inputs),
        "loss": loss,
        "cut_short": budget.truncated,
        "seconds": round(time.monotonic() - started, 2),
        **{name: result.figures for name, result in results.items()},
    }
    arrays = {name: a for result in results.values() for name, a in result.arrays.items()}
    return AnalysisResult(json_safe(figures), arrays)


def _available_parts(run: ReopenedRun, options: AnalysisOptions) -> set[str]:
    """The parts asked for; if these are all, without those for which the run has no data."""
    asked = set(options.only)
    available = {"local": run.prepared.dataset.test.users is not None, "leak": has_averages(run)}
    if asked == set(PARTS):
        return {part for part in asked if available.get(part, True)}
    if "leak" in asked and not available["leak"]:
        raise UserError(
            f"a run of '{run.prepared.config.title}' exchanges no averages of samples, so there is "
            "no leakage to measure; leave out 'leak'"
        )
    return asked


def _header(inputs: AnalysisInputs) -> dict[str, Any]:
    config, state = inputs.run.prepared.config, inputs.run.state
    return {
        "method": config.title,
        "model": config.model.name,
        "round": state.round,
        "rounds": config.rounds,
        "weights_sha256": sha256(state.params),
        "parameters": sum(inputs.surface.sizes),
        "samples": sum(len(y) for _, y in inputs.batches),
        "options": asdict(inputs.options),
    }
