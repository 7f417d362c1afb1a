"""The parts of an analysis about curvature: eigenvalues, trace, diagonal, alignment, landscape.

All but the alignment, which compares clients, are at the global weights. Each part returns its
figures and arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedloom.diagnostics.alignment import AlignmentIndicator, HessianAlignment, hessian_alignment
from fedloom.diagnostics.landscape import GRID_POINTS, SPAN, landscape
from fedloom.diagnostics.trace_estimation import Estimate, hutch_plus_plus
from fedloom.inspect.analysis_files import AnalysisResult
from fedloom.inspect.analysis_inputs import AnalysisInputs


def eigenvalues(inputs: AnalysisInputs) -> AnalysisResult:
    """The largest eigenvalues of the Hessian.

    largest_at_least: a lower bound of the largest magnitude, known even if none has converged.
    """
    pairs = inputs.eigenpairs
    figures = {
        "values": pairs.values.tolist(),
        "residuals": pairs.residuals.tolist(),
        "largest_at_least": pairs.lower_bound,
        "hessian_products": pairs.products,
    }
    return AnalysisResult(figures, {"eigenvectors": pairs.vectors.numpy()})


def traces(inputs: AnalysisInputs) -> AnalysisResult:
    """The trace of the Hessian by two estimators."""
    hutchinson = inputs.global_probes.trace
    surface, probes = inputs.global_surface, inputs.options.probes
    keep_going = inputs.budget.start_part("hutch++", 3 * (probes // 3))
    key = inputs.key.fold("hutch++")
    hutch = hutch_plus_plus(
        surface.hessian_products, surface.weight_vector, key, probes, keep_going
    )
    return AnalysisResult({"hutchinson": _estimate(hutchinson), "hutch++": _estimate(hutch)})


def diagonal(inputs: AnalysisInputs) -> AnalysisResult:
    """The diagonal of the Hessian: a summary, its trace per tensor, and itself as an array.

    noise_share: of the squared norm, the part that is estimation error.
    """
    estimate, tensors = inputs.global_probes.diagonal, inputs.global_probes.tensors
    squared_norm, noise = (
        float(t.double().square().sum()) for t in (estimate.value, estimate.error)
    )
    per_tensor = zip(
        inputs.surface.weights, tensors.value.tolist(), tensors.error.tolist(), strict=True
    )
    figures = {
        "norm": squared_norm**0.5,
        "noise_share": noise / squared_norm if squared_norm else 0.0,
        "lowest": float(estimate.value.min()),
        "highest": float(estimate.value.max()),
        "probes": estimate.probes,
        "per_tensor": {
            name: {"value": value, "standard_error": error} for name, value, error in per_tensor
        },
    }
    arrays = {"diagonal": estimate.value.numpy(), "diagonal_error": estimate.error.numpy()}
    return AnalysisResult(figures, arrays)


def alignment(inputs: AnalysisInputs) -> AnalysisResult:
    """FedAlign's indicators H_N and H_D over the replayed clients, from two kinds of diagonals."""
    clients = inputs.clients
    estimates = []
    for c in clients:
        surface, key = inputs.surface_at(c.model), inputs.key.fold("client", c.client)
        estimates.append(inputs.probe(surface, f"client {c.client}", key))
    figures = {
        "clients": [c.client for c in clients],
        "traces": [_estimate(e.trace) for e in estimates],
        "diagonal": _indicators(hessian_alignment([e.diagonal for e in estimates])),
        "per_tensor": _indicators(hessian_alignment([e.tensors for e in estimates])),
    }
    return AnalysisResult(figures)


def loss_landscape(inputs: AnalysisInputs) -> AnalysisResult:
    """The loss on a grid along the first two eigenvectors; points: those that were evaluated."""
    keep_going = inputs.budget.start_part("landscape", GRID_POINTS**2)
    pairs = inputs.eigenpairs
    if len(pairs.vectors) < 2:
        inputs.budget.truncated.append("landscape")
        return AnalysisResult({"span": SPAN, "points": 0})
    grid = landscape(inputs.global_surface, pairs.vectors[:2], keep_going=keep_going)
    figures = {
        "span": SPAN,
        "points": int(np.isfinite(grid.loss).sum()),
        "lowest_loss": float(np.nanmin(grid.loss)),
        "highest_loss": float(np.nanmax(grid.loss)),
        "eigenvalues": pairs.values[:2].tolist(),
    }
    return AnalysisResult(figures, {"landscape_steps": grid.steps, "landscape_loss": grid.loss})


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {
        "value": float(estimate.value),
        "standard_error": float(estimate.error),
        "probes": estimate.probes,
    }


def _indicators(result: HessianAlignment) -> dict[str, Any]:
    """Under the paper's names. noise_shares: by client, of the squared norm of its diagonal."""
    return {
        "H_N": _indicator(result.norm),
        "H_D": _indicator(result.direction),
        "noise_shares": result.noise,
    }


def _indicator(indicator: AlignmentIndicator) -> dict[str, float]:
    """The mean over pairs with its standard error, and over the full matrix as in the paper."""
    return {
        "mean_over_pairs": indicator.pairs,
        "standard_error": indicator.error,
        "mean_over_matrix": indicator.full,
    }
