"""One round of several clients side by side: a lane each, from the broadcast to the replies.

The draws are those of a client alone: every lane has its own key, order of samples and noise. Only the forward pass, the gradient
and the step are made for all lanes at once, by the same rule of descent, which works on stacked weights as on any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from fedloom.core.client import Broadcast, Federation, Task, job_for, reply_of
from fedloom.core.determinism import one_thread
from fedloom.core.job import Job, ModelPool
from fedloom.core.key import Key
from fedloom.core.method import Outcome
from fedloom.core.params import Params
from fedloom.core.server import Reply
from fedloom.core.solver import DescentResult, Gradient, Sgd, smallest_bound
from fedloom.engines.vmap_batches import LaneGroup, LaneObjective, Positions, Rows, clipped, feed


@dataclass(frozen=True)
class Lane:
    """A client: its job, the key of its phase, and the positions of its batches."""

    job: Job
    key: Key
    batches: Positions

    def trace(self, solver: Sgd, total: float, lr: float) -> DescentResult:
        """As the solver would have left it. total: the sum of the losses."""
        steps, samples = len(self.batches), sum(len(p) for p in self.batches)
        return DescentResult(
            steps,
            solver.seen(self.job, samples),
            total / max(steps, 1),
            solver.rule.effective_steps(steps) * lr,
        )


@contextmanager
def _without_onednn() -> Iterator[None]:
    """Grouped convolutions, which vmap makes of stacked ones, are slow in it for few channels."""
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


class Lanes:
    """Plays methods of one phase without private tensors, on descent by a rule that moves every weight by itself."""

    def __init__(self, federation: Federation) -> None:
        self.federation, self.phase = federation, federation.method.phases[0]
        self.solver = cast(Sgd, self.phase.solver_for(federation.solver))
        self.model_pool = ModelPool(federation.build)
        model = self.model_pool.load("model", self.model_pool.take("model"))
        self.model_pool.set_trainable(self.phase.trains)
        self.trained = [n for n, p in model.named_parameters() if p.requires_grad]
        self.objective = LaneObjective(model, self.phase.total)
        self.scratch: list[Tensor] = []

    def play(self, sent: Broadcast, tasks: Sequence[Task]) -> list[Reply]:
        """The clients' replies, those with most steps first; on one thread, so that one seed gives one result."""
        with one_thread(), _without_onednn():
            self.model_pool.load("model", sent.params)  # for the tensors that are not trained
            lanes = sorted(
                (self.lane(sent, task) for task in tasks), key=lambda lane: -len(lane.batches)
            )
            lr = self.solver.schedule.at(self.solver.lr, sent.round)
            weights, totals = self.descend(sent, lanes, lr)
            finals = [self.final(lane.job, weights, i) for i, lane in enumerate(lanes)]
            descents = [
                lane.trace(self.solver, total, lr)
                for lane, total in zip(lanes, totals, strict=True)
            ]
            outcomes = [
                Outcome(lane.job, w, (("model", t),))
                for lane, w, t in zip(lanes, finals, descents, strict=True)
            ]
            moved = changes(sent.params, weights, len(lanes))
            return [
                reply_of(self.federation.method, o, change, {})
                for o, change in zip(outcomes, moved, strict=True)
            ]

    def lane(self, sent: Broadcast, task: Task) -> Lane:
        """A client at the start of its phase."""
        job = job_for(self.federation, self.model_pool, sent, task)
        key = job.key.fold("phase", 0)
        return Lane(
            job,
            key,
            [p for group in self.solver.step_batches(job, self.phase.order, key) for p in group],
        )

    def descend(
        self, sent: Broadcast, lanes: Sequence[Lane], lr: float
    ) -> tuple[Params, list[float]]:
        """The final weights of all lanes, stacked, and the sum of the losses of each."""
        start = [sent.params[n] for n in self.trained]
        weights = self._stacked(start, len(lanes))
        totals, state = weights[0].new_zeros(len(lanes)), None
        crew = LaneGroup([lane.job for lane in lanes])
        batches = feed(
            crew.jobs,
            [lane.key for lane in lanes],
            [lane.batches for lane in lanes],
            weights[0].dtype,
        )
        for number, rows in enumerate(batches, 1):
            left = len(rows[0])  # lanes that have a batch; the others stay where they are
            moving, state = (
                [w[:left] for w in weights],
                None if state is None else [s[:left] for s in state],
            )
            here = moving if number > 1 else start  # the same for all
            state = self.solver.rule.step(
                moving, self._gradient(crew, here, rows, number, totals[:left]), lr, state
            )
        return dict(zip(self.trained, weights, strict=True)), totals.tolist()

    def _stacked(self, start: list[Tensor], lanes: int) -> list[Tensor]:
        """A copy of the weights for each lane, in memory that is kept: fresh pages cost more than the copy."""
        if not self.scratch or len(self.scratch[0]) < lanes:
            self.scratch = [t.new_empty(lanes, *t.shape) for t in start]
        weights = [s[:lanes] for s in self.scratch]
        torch._foreach_copy_(weights, [t.expand(lanes, *t.shape) for t in start])
        return weights

    def _gradient(
        self, crew: LaneGroup, weights: list[Tensor], rows: Rows, number: int, totals: Tensor
    ) -> Gradient:
        def gradient(n: int) -> list[Tensor]:
            grads, losses = self.objective.gradients(
                crew, dict(zip(self.trained, weights, strict=True)), rows, number
            )
            totals.add_(losses)
            return clipped(
                [grads[n] for n in self.trained], smallest_bound(self.solver.clip, self.phase.clip)
            )

        return gradient

    def final(self, job: Job, weights: Params, i: int) -> dict[str, Params]:
        """The weights of the i-th lane, where the method asks for them; copies, since theirs are overwritten soon."""
        if not self.federation.method.after:
            return {}
        return {"model": {**job.received, **{n: t[i].clone() for n, t in weights.items()}}}


def changes(sent: Params, weights: Params, lanes: int) -> list[Params]:
    """What has become of the server's weights in each lane."""
    stacked = [
        weights[n] - t if n in weights else (t - t).expand(lanes, *t.shape) for n, t in sent.items()
    ]
    return [
        dict(zip(sent, lane, strict=True))
        for lane in zip(*(t.unbind() for t in stacked), strict=True)
    ]
