"""A run under the lens: the server's curvature, alignment and drift of clients, how users fare, what leaked; on fixed data."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.determinism import deterministic, one_thread
from fedloom.core.errors import RunError, UserError, unknown_name
from fedloom.core.evaluate import ClassCounts, count_correct
from fedloom.core.job import build_isolated
from fedloom.core.key import Key
from fedloom.core.params import Params, sha256
from fedloom.diagnostics.alignment import HessianAlignment, hessian_alignment
from fedloom.diagnostics.curvature import (
    Batch,
    Eigenpairs,
    LossSurface,
    split_batches,
    top_eigenpairs,
)
from fedloom.diagnostics.drift import block_grams, cka_per_block, update_drifts
from fedloom.diagnostics.landscape import GRID_POINTS, SPAN, landscape
from fedloom.diagnostics.time_budget import OnProgress, TimeBudget
from fedloom.diagnostics.trace_estimation import (
    DiagonalEstimates,
    Estimate,
    estimate_diagonal,
    hutch_plus_plus,
)
from fedloom.experiment.build import resolve_device
from fedloom.experiment.reopen import ReopenedRun
from fedloom.inspect.analysis_files import Findings, plain
from fedloom.inspect.leakage import known, leaked
from fedloom.inspect.per_user import by_user
from fedloom.inspect.replay import Trained, cohort, replay, training_samples

PARTS = ("eigen", "trace", "diagonal", "pairs", "landscape", "drift", "local", "leak")
EIGENVALUES = 5
TOLERANCE = (
    1e-3  # relative, where the authors of FedAlign stop; the residuals tell what it comes to
)


@dataclass(frozen=True)
class AnalysisOptions:
    """What to analyse, and at what cost. clients: how many to replay, None for the round's own; minutes: None for no limit."""

    only: Sequence[str] = PARTS
    samples: int = 640
    probes: int = 100
    minutes: float | None = 10.0
    clients: int | None = None
    seed: int = 0
    double: bool = False

    def __post_init__(self) -> None:
        if not self.only:
            raise UserError(f"no part of an analysis is asked for; choose among {', '.join(PARTS)}")
        for name in self.only:
            if name not in PARTS:
                raise unknown_name("part of an analysis", name, PARTS)

    def any(self, *names: str) -> bool:
        """Whether one of these parts is wanted."""
        return bool({*names} & {*self.only})


def analyze(
    run: ReopenedRun, wish: AnalysisOptions, watch: OnProgress = lambda *seen: None
) -> Findings:
    """Everything wished for, or as much of it as there is time for."""
    with one_thread(), deterministic(resolve_device(run.prepared.config.device)):
        return _Analysis(run, wish, watch).work()


@dataclass
class _Analysis:
    """An analysis at work; what several parts need is made when the first asks for it."""

    run: ReopenedRun
    wish: AnalysisOptions
    watch: OnProgress
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def work(self) -> Findings:
        began, pace = time.monotonic(), self.pace
        loss, state = self.server.loss(), self.run.state
        if not np.isfinite(loss):
            raise RunError(
                f"the loss of the model after round {state.round} is {loss}, so it has no curvature; train with a lower rate"
            )
        parts = {
            "eigen": self.eigenvalues,
            "trace": self.traces,
            "diagonal": self.diagonal,
            "pairs": self.pairs,
            "landscape": self.landscape,
            "drift": self.drift,
            "local": self.local,
            "leak": self.leak,
        }
        found = {name: part() for name, part in parts.items() if name in self.wanted}
        seconds = round(time.monotonic() - began, 2)
        return Findings(
            plain(
                {**self.head(), "loss": loss, "cut": pace.truncated, "seconds": seconds, **found}
            ),
            self.arrays,
        )

    @property
    def wanted(self) -> set[str]:
        """The parts asked for; where all are, without what this run has not: users with test samples, averages of samples."""
        asked, dataset = {*self.wish.only}, self.run.prepared.dataset
        has = {"local": dataset.test.users is not None, "leak": known(self.run)}
        if asked == {*PARTS}:
            return {part for part in asked if has.get(part, True)}
        if "leak" in asked and not has["leak"]:
            title = self.run.prepared.config.title
            raise UserError(
                f"a run of '{title}' keeps no averages of samples, so what they show is not known; leave out 'leak'"
            )
        return asked

    def head(self) -> dict[str, Any]:
        config, state = self.run.prepared.config, self.run.state
        return {
            "method": config.title,
            "model": config.model.name,
            "round": state.round,
            "rounds": config.rounds,
            "weights_sha256": sha256(state.params),
            "parameters": sum(self.surface.sizes),
            "samples": sum(len(y) for _, y in self.batches),
            "wish": asdict(self.wish),
        }

    @cached_property
    def key(self) -> Key:
        """All draws hang here; the seed is the analysis's own, so that runs of different seeds are seen on the same data."""
        return Key.root(self.wish.seed).fold("analysis")

    @cached_property
    def pace(self) -> TimeBudget:
        """The parts that share the time; one for each client whose curvature is wanted."""
        wants = self.wish.any
        once = [
            wants("eigen", "landscape"),
            wants("trace", "diagonal"),
            wants("trace"),
            wants("landscape"),
            wants("drift"),
        ]
        return TimeBudget(
            self.wish.minutes,
            sum(once) + wants("pairs", "drift") + wants("pairs") * len(self.cohort),
            self.watch,
        )

    @cached_property
    def cohort(self) -> list[int]:
        return cohort(self.run, self.wish.clients, self.key.fold("clients"))

    @cached_property
    def clients(self) -> list[Trained]:
        return replay(self.run, self.cohort, self.pace.start_part("replay", len(self.cohort)))

    @cached_property
    def batches(self) -> list[Batch]:
        """The fixed data."""
        return split_batches(
            *training_samples(self.run.prepared, self.wish.samples, self.key.fold("samples"))
        )

    @cached_property
    def surface(self) -> LossSurface:
        """The loss of the model that was loaded last."""
        chain = build_isolated(self.run.prepared.simulation.federation.build)
        if not self.wish.double:
            return LossSurface(chain, self.batches)
        return LossSurface(
            chain.double(),
            [(x.double() if x.is_floating_point() else x, y) for x, y in self.batches],
        )

    def at(self, params: Params) -> LossSurface:
        """The surface around these weights."""
        self.surface.chain.load_state_dict(params)
        return self.surface

    @property
    def server(self) -> LossSurface:
        """The surface around the server's weights."""
        return self.at(self.run.state.params)

    @cached_property
    def eigen(self) -> Eigenpairs:
        return top_eigenpairs(
            self.server,
            EIGENVALUES,
            self.key.fold("lanczos"),
            TOLERANCE,
            self.pace.start_part("eigen", share=0.5),
        )

    @cached_property
    def probed(self) -> DiagonalEstimates:
        return self.probe(self.server, "probes", self.key.fold("server"))

    def probe(self, surface: LossSurface, name: str, key: Key) -> DiagonalEstimates:
        go = self.pace.start_part(name, self.wish.probes)
        return estimate_diagonal(
            surface.hessian_products,
            surface.weight_vector,
            surface.sizes,
            key,
            self.wish.probes,
            go,
        )

    def eigenvalues(self) -> dict[str, Any]:
        found = self.eigen
        self.arrays["eigenvectors"] = found.vectors.numpy()
        shown = {"values": found.values.tolist(), "residuals": found.residuals.tolist()}
        return {**shown, "largest_at_least": found.lower_bound, "products": found.products}

    def traces(self) -> dict[str, Any]:
        first, surface, probes = self.probed.trace, self.server, self.wish.probes
        go = self.pace.start_part("hutch++", 3 * (probes // 3))
        second = hutch_plus_plus(
            surface.hessian_products, surface.weight_vector, self.key.fold("hutch++"), probes, go
        )
        return {"hutchinson": _said(first), "hutch++": _said(second)}

    def diagonal(self) -> dict[str, Any]:
        """The true one in figures, itself among the arrays; and the authors' variant, a number a tensor."""
        found, tensors = self.probed.diagonal, self.probed.tensors
        self.arrays |= {"diagonal": found.value.numpy(), "diagonal_error": found.error.numpy()}
        squares, noise = (float(t.double().square().sum()) for t in (found.value, found.error))
        rows = zip(
            self.surface.weights, tensors.value.tolist(), tensors.error.tolist(), strict=True
        )
        return {
            "norm": squares**0.5,
            "noise": noise / squares if squares else 0.0,
            "least": float(found.value.min()),
            "largest": float(found.value.max()),
            "probes": found.probes,
            "per_tensor": {name: {"value": value, "error": error} for name, value, error in rows},
        }

    def pairs(self) -> dict[str, Any]:
        every = [
            self.probe(self.at(c.model), f"client {c.client}", self.key.fold("client", c.client))
            for c in self.clients
        ]
        return {
            "clients": [c.client for c in self.clients],
            "traces": [_said(p.trace) for p in every],
            "diagonal": _indicators(hessian_alignment([p.diagonal for p in every])),
            "per_tensor": _indicators(hessian_alignment([p.tensors for p in every])),
        }

    def landscape(self) -> dict[str, Any]:
        go, eigen = self.pace.start_part("landscape", GRID_POINTS**2), self.eigen
        if len(eigen.vectors) < 2:
            self.pace.truncated.append("landscape")
            return {"span": SPAN, "points": 0}
        found = landscape(self.server, eigen.vectors[:2], keep_going=go)
        self.arrays |= {"landscape_steps": found.steps, "landscape_loss": found.loss}
        return {
            "span": SPAN,
            "points": int(np.isfinite(found.loss).sum()),
            "lowest": float(np.nanmin(found.loss)),
            "highest": float(np.nanmax(found.loss)),
            "curvature": eigen.values[:2].tolist(),
        }

    def drift(self) -> dict[str, Any]:
        chain, clients = build_isolated(self.run.prepared.simulation.federation.build), self.clients
        go = self.pace.start_part("drift", len(clients))
        features, scored = self.seen(chain, self.run.state.params)
        far = update_drifts(
            [
                torch.cat([t.reshape(-1) for n, t in c.update.items() if n in self.surface.weights])
                for c in clients
            ]
        )
        rows = [
            {"client": c.client, "samples": c.samples, **asdict(d)}
            for c, d in zip(clients, far, strict=True)
        ]
        for row, client in zip(rows, clients, strict=True):
            if not go():
                break
            theirs, hits = self.seen(chain, client.model)
            row |= {**_scores(hits), "cka": cka_per_block(features, theirs)}
        return {"server": _scores(scored), "clients": rows}

    def local(self) -> dict[str, Any]:
        return by_user(self.run)

    def leak(self) -> dict[str, Any]:
        return leaked(self.run, self.key.fold("leak"))

    def seen(self, chain: Chain, params: Params) -> tuple[dict[str, Tensor], ClassCounts]:
        """The features of a model on the fixed data, and its hits on the test data."""
        chain.load_state_dict(params)
        federation = self.run.prepared.simulation.federation
        return block_grams(chain, self.batches), count_correct(
            chain, federation.test, federation.classes
        )


def _said(found: Estimate) -> dict[str, Any]:
    return {"value": float(found.value), "error": float(found.error), "probes": found.probes}


def _indicators(found: HessianAlignment) -> dict[str, Any]:
    """Under the paper's names: over the pairs, with its standard error, and over the full matrix as the authors have it."""
    return {"H_N": asdict(found.norm), "H_D": asdict(found.direction), "noise": found.noise}


def _scores(found: ClassCounts) -> dict[str, Any]:
    """Accuracy on the test data, in all and by class; null for a class that they lack."""
    seen = zip(found.recall.tolist(), found.seen.tolist(), strict=True)
    return {"accuracy": found.accuracy, "per_class": [round(r, 6) if n else None for r, n in seen]}
