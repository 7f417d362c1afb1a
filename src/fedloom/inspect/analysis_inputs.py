"""What the parts of an analysis share: options, randomness, fixed data, time, and costly results.

Everything here is computed when a part first asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError, unknown_name
from fedloom.core.job import build_isolated
from fedloom.core.key import Key
from fedloom.core.params import Params
from fedloom.diagnostics.curvature import (
    Batch,
    Eigenpairs,
    LossSurface,
    split_batches,
    top_eigenpairs,
)
from fedloom.diagnostics.time_budget import OnProgress, TimeBudget
from fedloom.diagnostics.trace_estimation import DiagonalEstimates, estimate_diagonal
from fedloom.experiment.reopen import ReopenedRun
from fedloom.inspect.replay import ReplayedClient, choose_clients, replay, training_samples

PARTS = ("eigen", "trace", "diagonal", "pairs", "landscape", "drift", "local", "leak")
EIGENVALUES = 5
TOLERANCE = 1e-3  # relative, as in FedAlign's code; the residuals tell how accurate the result is


@dataclass(frozen=True)
class AnalysisOptions:
    """What to analyse, and at what cost.

    only     the parts
    samples  training samples on which all figures are computed
    probes   random probes for each trace and diagonal
    minutes  time for all parts; None is no limit
    clients  how many to replay; None replays the clients of the round
    seed     for samples and probes; independent of the run's seed, so that runs with different
             seeds are analysed on the same data
    double   curvature in float64
    """

    only: Sequence[str] = PARTS
    samples: int = 640
    probes: int = 100
    minutes: float | None = 10.0
    clients: int | None = None
    seed: int = 0
    double: bool = False

    def __post_init__(self) -> None:
        if not self.only:
            raise UserError(f"the analysis has no parts; choose from {', '.join(PARTS)}")
        for name in self.only:
            if name not in PARTS:
                raise unknown_name("part of an analysis", name, PARTS)

    def includes(self, *parts: str) -> bool:
        """Whether at least one of these parts was asked for."""
        return not set(parts).isdisjoint(self.only)


@dataclass
class AnalysisInputs:
    """A run, the options of an analysis, and what its parts share. watch: reports progress."""

    run: ReopenedRun
    options: AnalysisOptions
    watch: OnProgress

    @cached_property
    def key(self) -> Key:
        """The root of all randomness of the analysis."""
        return Key.root(self.options.seed).fold("analysis")

    @cached_property
    def budget(self) -> TimeBudget:
        """The time, shared by the steps that take long; one for each client's curvature."""
        includes = self.options.includes
        steps = [
            includes("eigen", "landscape"),  # eigenvalues
            includes("trace", "diagonal"),  # probes
            includes("trace"),  # Hutch++
            includes("landscape"),
            includes("drift"),
            includes("pairs", "drift"),  # replay
        ]
        clients = len(self.cohort)  # raises if there are not enough clients, whatever the parts
        client_steps = clients if includes("pairs") else 0
        return TimeBudget(self.options.minutes, sum(steps) + client_steps, self.watch)

    @cached_property
    def cohort(self) -> list[int]:
        """The clients to replay."""
        return choose_clients(self.run, self.options.clients, self.key.fold("clients"))

    @cached_property
    def clients(self) -> list[ReplayedClient]:
        """The clients after their round."""
        return replay(self.run, self.cohort, self.budget.start_part("replay", len(self.cohort)))

    @cached_property
    def batches(self) -> list[Batch]:
        """The training samples on which all figures are computed."""
        key = self.key.fold("samples")
        return split_batches(*training_samples(self.run.prepared, self.options.samples, key))

    def new_chain(self) -> Chain:
        """A model of the run, without its weights."""
        return build_isolated(self.run.prepared.simulation.federation.build)

    @cached_property
    def surface(self) -> LossSurface:
        """The loss surface; its model has the weights that were loaded last."""
        chain = self.new_chain()
        if not self.options.double:
            return LossSurface(chain, self.batches)
        batches = [(x.double() if x.is_floating_point() else x, y) for x, y in self.batches]
        return LossSurface(chain.double(), batches)

    def surface_at(self, params: Params) -> LossSurface:
        """The loss surface at these weights."""
        self.surface.chain.load_state_dict(params)
        return self.surface

    @property
    def global_surface(self) -> LossSurface:
        """The loss surface at the global weights."""
        return self.surface_at(self.run.state.params)

    @cached_property
    def eigenpairs(self) -> Eigenpairs:
        """The largest eigenvalues at the global weights."""
        surface, key = self.global_surface, self.key.fold("lanczos")
        keep_going = self.budget.start_part("eigen", share=0.5)
        return top_eigenpairs(surface, EIGENVALUES, key, TOLERANCE, keep_going)

    @cached_property
    def global_probes(self) -> DiagonalEstimates:
        """Trace and diagonal at the global weights."""
        return self.probe(self.global_surface, "probes", self.key.fold("server"))

    def probe(self, surface: LossSurface, step: str, key: Key) -> DiagonalEstimates:
        """Estimates of the trace and the diagonal of the Hessian, within the time of this step."""
        probes = self.options.probes
        keep_going = self.budget.start_part(step, probes)
        products, weights = surface.hessian_products, surface.weight_vector
        return estimate_diagonal(products, weights, surface.sizes, key, probes, keep_going)
