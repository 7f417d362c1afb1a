"""The client's half of a round: load what was sent, work through the phases, reply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.evaluate import ClassCounts, count_correct
from fedloom.core.job import Data, Job, ModelPool, Progress
from fedloom.core.key import Key
from fedloom.core.method import Method, Outcome, Phase
from fedloom.core.params import Params
from fedloom.core.server import Reply
from fedloom.core.solver import DescentResult, Objective, Solver

Work = Literal["train", "exchange", "exchange every round", "personalise", "score", "evaluate"]
TEST_PIECES = (
    16  # of the test data; always the same, so that every engine adds up in the same order
)
_BRANCH: dict[Work, str] = {
    "train": "round",
    "exchange": "exchange",
    "exchange every round": "again",
    "personalise": "finale",
    "score": "finale",
    "evaluate": "evaluate",
}  # of the key


@dataclass(frozen=True)
class Federation:
    """What a worker needs to play any client: the method, the model, the clients' data and the run's solver.

    test: the batches on which a client's own model is scored.
    """

    method: Method
    build: Callable[[], Chain]
    clients: Sequence[Data]
    solver: Solver
    key: Key
    test: Sequence[tuple[Tensor, Tensor]] = ()
    classes: int = 0


@dataclass(frozen=True)
class Broadcast:
    """What the server sends to every client of a round, and what it asks for."""

    work: Work
    round: int
    params: Params
    shared: Mapping[str, Params] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """One client to be asked, with what it remembers; for the work "evaluate", a piece of the test data instead."""

    client: int
    memories: Mapping[str, Params] = field(default_factory=dict)


def answer(
    federation: Federation, model_pool: ModelPool, sent: Broadcast, task: Task, progress: Progress
) -> Any:
    """What is answered to the broadcast: the one door through which every engine enters. progress: kept up to date for an error."""
    if sent.work == "evaluate":
        return evaluate(federation, model_pool, sent.params, task.client)
    return _WORK[sent.work](federation, job_for(federation, model_pool, sent, task, progress))


def job_for(
    federation: Federation,
    model_pool: ModelPool,
    sent: Broadcast,
    task: Task,
    progress: Progress | None = None,
) -> Job:
    """A client's job: its own key, and its private tensors in the place of the server's."""
    key = federation.key.fold(_BRANCH[sent.work], sent.round, "client", task.client)
    received = {**sent.params, **task.memories.get("private", {})}
    data, classes = federation.clients[task.client], federation.classes
    return Job(
        task.client,
        sent.round,
        key,
        data,
        model_pool,
        received,
        sent.shared,
        task.memories,
        classes,
        progress or Progress(),
    )


def train(federation: Federation, job: Job) -> Reply:
    """One round of a client: the phases, then what it sends and remembers."""
    method = federation.method
    outcome, private = (
        run_phases(method.phases, job, federation.solver, "phase"),
        job.model_pool.names(method.private),
    )
    final, delta = outcome.weights["model"], outcome.delta
    change = {
        n: delta[n] if n in delta else final[n] - t
        for n, t in job.received.items()
        if n not in private
    }
    memories = {slot: w for slot, w in outcome.weights.items() if slot != "model"}
    memories |= {slot: memory for _, t in outcome.descents for slot, memory in t.keep.items()}
    memories |= {"private": {n: final[n] for n in final if n in private}} if private else {}
    return reply_of(method, outcome, change, memories)


def reply_of(
    method: Method, outcome: Outcome, change: Params, memories: dict[str, Params]
) -> Reply:
    """The change of the shown weights and the memories so far, and what the method sends and remembers besides."""
    job, trace = outcome.job, outcome.descent("model")
    private, uploads, memories = (
        job.model_pool.names(method.private),
        {"model": change},
        dict(memories),
    )
    for extra in [after(outcome) for after in method.after]:
        uploads |= {
            word: {n: t for n, t in p.items() if n not in private}
            for word, p in extra.uploads.items()
        }
        if clash := memories.keys() & extra.memories.keys():
            raise UserError(
                f"two methods remember under '{min(clash)}'; they do not join, name one of them"
            )
        memories |= extra.memories
    return Reply(job.client, len(job.data), trace.seen, uploads, memories, trace.loss, trace.steps)


def exchange(federation: Federation, job: Job, every_round: bool) -> dict[str, Params]:
    """The client's answers to the questions before round 0, or to those of every round."""
    return {
        e.name: e.client(job, job.key.fold(e.name))
        for e in federation.method.prologue
        if e.every_round is every_round
    }


def personalise(federation: Federation, job: Job) -> Params:
    """The weights a client ends up with: its slot, after the finale if the method has one."""
    method = federation.method
    slot = method.evaluates
    if method.finale:
        return dict(run_phases(method.finale, job, federation.solver, "finale").weights[slot])
    return job.received if slot == "model" else {**job.received, **job.memories.get(slot, {})}


def score(federation: Federation, job: Job) -> ClassCounts:
    """How the client's own model does on the test data."""
    chain = job.model_pool.load("scored", personalise(federation, job))
    return count_correct(chain, federation.test, federation.classes)


def evaluate(
    federation: Federation, model_pool: ModelPool, params: Params, piece: int
) -> ClassCounts:
    """How the server's model does on one piece of the test data."""
    count = len(federation.test)
    batches = federation.test[piece * count // TEST_PIECES : (piece + 1) * count // TEST_PIECES]
    return count_correct(model_pool.load("scored", params), batches, federation.classes)


_WORK: dict[Work, Callable[[Federation, Job], Any]] = {
    "train": train,
    "exchange": partial(exchange, every_round=False),
    "exchange every round": partial(exchange, every_round=True),
    "personalise": personalise,
    "score": score,
}


def run_phases(phases: Sequence[Phase], job: Job, solver: Solver, part: str) -> Outcome:
    """Phase after phase; a later one may start from what an earlier one left. part: which phases of the method these are."""
    weights: dict[str, Params] = {}
    descents: list[tuple[str, DescentResult]] = []
    for number, phase in enumerate(phases):
        job.progress.phase, job.progress.step = number, 0
        model = job.model_pool.load("model", _start(phase, job, weights))
        job.model_pool.set_trainable(phase.trains)
        objective = Objective(
            phase.total, phase.order, phase.mix, f"solver of {part} {number}", phase.clip
        )
        trace = phase.solver_for(solver)(model, objective, job, job.key.fold("phase", number))
        descents.append((phase.slot, trace))
        weights[phase.slot] = job.model_pool.take("model")
        weights |= {slot: {**weights[phase.slot], **w} for slot, w in trace.slots.items()}
    return Outcome(job, weights, tuple(descents))


def _start(phase: Phase, job: Job, done: Mapping[str, Params]) -> Params:
    source = phase.start or phase.slot
    if source in done:
        return done[source]
    if source in ("received", "model"):
        return job.received
    return {**job.received, **job.memories.get(source, {})}
