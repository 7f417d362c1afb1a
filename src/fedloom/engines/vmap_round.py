"""One round of several clients at once: a lane for each, from the broadcast to the replies.

Random draws are those of a client run alone: every lane has its own key, order of samples and
noise. Only the forward pass, the gradient and the step are made for all lanes at once. The step is
that of the usual SGDRule, which works on stacked weights as on any others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from fedloom.core.client import job_for, reply_of
from fedloom.core.determinism import one_thread
from fedloom.core.federation import Federation
from fedloom.core.job import Job, ModelPool
from fedloom.core.key import Key
from fedloom.core.method import Outcome
from fedloom.core.params import Params
from fedloom.core.request import Broadcast, Task
from fedloom.core.roles import change
from fedloom.core.rule import Gradient
from fedloom.core.server import Reply
from fedloom.core.solver import DescentResult, Sgd, smallest_bound
from fedloom.engines.vmap_batches import (
    LaneGroup,
    LaneObjective,
    Positions,
    Rows,
    clipped,
    lane_batches,
)


@dataclass(frozen=True)
class Lane:
    """A client: its job, the key of its phase, and the positions of its batches."""

    job: Job
    key: Key
    batches: Positions

    def result(self, solver: Sgd, loss_sum: float, lr: float) -> DescentResult:
        """The result that the solver would have returned."""
        steps, samples = len(self.batches), sum(len(p) for p in self.batches)
        return DescentResult(
            steps,
            solver.seen(self.job, samples),
            loss_sum / max(steps, 1),
            solver.rule.effective_steps(steps) * lr,
        )


@contextmanager
def _without_onednn() -> Iterator[None]:
    """vmap turns stacked convolutions into grouped ones, which oneDNN does slowly."""
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


class VmapRound:
    """Runs methods of one phase without private tensors, on SGD."""

    def __init__(self, federation: Federation) -> None:
        self.federation, self.phase = federation, federation.method.phases[0]
        self.solver = cast(Sgd, self.phase.solver_for(federation.solver))
        self.model_pool = ModelPool(federation.build)
        model = self.model_pool.load("model", self.model_pool.take("model"))
        self.model_pool.set_trainable(self.phase.trains)
        self.trained = [n for n, p in model.named_parameters() if p.requires_grad]
        self.objective = LaneObjective(model, self.phase.total)
        self.scratch: list[Tensor] = []

    def run(self, sent: Broadcast, tasks: Sequence[Task]) -> list[Reply]:
        """The clients' replies, those with most steps first.

        On one thread, so that a seed has one result.
        """
        with one_thread(), _without_onednn():
            self.model_pool.load("model", sent.params)  # for the tensors that are not trained
            lanes = [self.lane(sent, task) for task in tasks]
            lanes.sort(key=lambda lane: -len(lane.batches))
            lr = self.solver.schedule.at(self.solver.lr, sent.round)
            weights, loss_sums = self.descend(sent, lanes, lr)
            updates = lane_updates(sent.params, weights, len(lanes))
            replies = []
            for i, lane in enumerate(lanes):
                result = lane.result(self.solver, loss_sums[i], lr)
                outcome = Outcome(
                    lane.job, self.final_weights(lane, weights, i), (("model", result),)
                )
                replies.append(reply_of(self.federation.method, outcome, updates[i], {}))
            return replies

    def lane(self, sent: Broadcast, task: Task) -> Lane:
        """A client at the start of its phase."""
        job = job_for(self.federation, self.model_pool, sent, task)
        key = job.key.fold("phase", 0)
        groups = self.solver.step_batches(job, self.phase.order, key)
        return Lane(job, key, [positions for group in groups for positions in group])

    def descend(
        self, sent: Broadcast, lanes: Sequence[Lane], lr: float
    ) -> tuple[Params, list[float]]:
        """The final weights of all lanes, stacked, and the sum of each lane's losses."""
        start = [sent.params[n] for n in self.trained]
        weights = self._stacked(start, len(lanes))
        loss_sums, state = weights[0].new_zeros(len(lanes)), None
        group = LaneGroup([lane.job for lane in lanes])
        keys, positions = [lane.key for lane in lanes], [lane.batches for lane in lanes]
        batches = lane_batches(group.jobs, keys, positions, weights[0].dtype)
        for number, rows in enumerate(batches, 1):
            active = len(rows[0])  # lanes that have a batch; the others keep their weights
            moving = [w[:active] for w in weights]
            state = None if state is None else [s[:active] for s in state]
            current = moving if number > 1 else start  # in step 1 the same for all lanes
            gradient = self._gradient(group, current, rows, number, loss_sums[:active])
            state = self.solver.rule.step(moving, gradient, lr, state)
        return dict(zip(self.trained, weights, strict=True)), loss_sums.tolist()

    def _stacked(self, start: list[Tensor], lanes: int) -> list[Tensor]:
        """A copy of the weights for each lane, in memory that is reused.

        Fresh pages would cost more than the copy.
        """
        if not self.scratch or len(self.scratch[0]) < lanes:
            self.scratch = [t.new_empty(lanes, *t.shape) for t in start]
        weights = [s[:lanes] for s in self.scratch]
        torch._foreach_copy_(weights, [t.expand(lanes, *t.shape) for t in start])
        return weights

    def _gradient(
        self, group: LaneGroup, weights: list[Tensor], rows: Rows, number: int, loss_sums: Tensor
    ) -> Gradient:
        """The gradient of all lanes as a function, for the rule; it also adds up the losses."""

        def gradient(n: int) -> list[Tensor]:
            named = dict(zip(self.trained, weights, strict=True))
            grads, losses = self.objective.gradients(group, named, rows, number)
            loss_sums.add_(losses)
            bound = smallest_bound(self.solver.clip, self.phase.clip)
            return clipped([grads[name] for name in self.trained], bound)

        return gradient

    def final_weights(self, lane: Lane, weights: Params, i: int) -> dict[str, Params]:
        """The weights of lane i, if the method uses them; copies, since `weights` is reused."""
        if not self.federation.method.after:
            return {}
        return {"model": {**lane.job.received, **{n: t[i].clone() for n, t in weights.items()}}}


def lane_updates(sent: Params, weights: Params, lanes: int) -> list[Params]:
    """The change of the server's weights in each lane."""
    stacked = [
        weights[n] - t if n in weights else change(t, t).expand(lanes, *t.shape)
        for n, t in sent.items()
    ]
    return [
        dict(zip(sent, lane, strict=True))
        for lane in zip(*(t.unbind() for t in stacked), strict=True)
    ]
