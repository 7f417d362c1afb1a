"""The client's half of a round: load what was sent, work through the phases, reply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.evaluate import Tally, tally
from fedloom.core.job import Bench, Data, Job, Where
from fedloom.core.key import Key
from fedloom.core.method import Method, Outcome, Phase
from fedloom.core.params import Params
from fedloom.core.server import Reply
from fedloom.core.solver import Goal, Solver, Trace

Work = Literal["train", "exchange", "again", "personalise", "score", "evaluate"]
PIECES = 16  # of the test data; always the same, so that every engine adds up in the same order
_BRANCH: dict[Work, str] = {
    "train": "round",
    "exchange": "exchange",
    "again": "again",
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
    mine: Mapping[str, Params] = field(default_factory=dict)


def answer(federation: Federation, bench: Bench, sent: Broadcast, task: Task, where: Where) -> Any:
    """What is answered to the broadcast: the one door through which every engine enters. where: kept up to date for an error."""
    if sent.work == "evaluate":
        return evaluate(federation, bench, sent.params, task.client)
    return _WORK[sent.work](federation, job_for(federation, bench, sent, task, where))


def job_for(federation: Federation, bench: Bench, sent: Broadcast, task: Task, where: Where | None = None) -> Job:
    """A client's job: its own key, and its private tensors in the place of the server's."""
    key = federation.key.fold(_BRANCH[sent.work], sent.round, "client", task.client)
    received = {**sent.params, **task.mine.get("private", {})}
    data, classes = federation.clients[task.client], federation.classes
    return Job(task.client, sent.round, key, data, bench, received, sent.shared, task.mine, classes, where or Where())


def train(federation: Federation, job: Job) -> Reply:
    """One round of a client: the phases, then what it sends and remembers."""
    method = federation.method
    outcome, private = work_through(method.phases, job, federation.solver, "phase"), job.bench.names(method.private)
    final, delta = outcome.weights["model"], outcome.delta
    change = {n: delta[n] if n in delta else final[n] - t for n, t in job.received.items() if n not in private}
    mine = {slot: w for slot, w in outcome.weights.items() if slot != "model"}
    mine |= {slot: memory for _, t in outcome.traces for slot, memory in t.keep.items()}
    mine |= {"private": {n: final[n] for n in final if n in private}} if private else {}
    return reply_of(method, outcome, change, mine)


def reply_of(method: Method, outcome: Outcome, change: Params, mine: dict[str, Params]) -> Reply:
    """The change of the shown weights and the memories so far, and what the method sends and remembers besides."""
    job, trace = outcome.job, outcome.trace("model")
    private, uploads, mine = job.bench.names(method.private), {"model": change}, dict(mine)
    for extra in [after(outcome) for after in method.after]:
        uploads |= {word: {n: t for n, t in p.items() if n not in private} for word, p in extra.uploads.items()}
        if clash := mine.keys() & extra.mine.keys():
            raise UserError(f"two methods remember under '{min(clash)}'; they do not join, name one of them")
        mine |= extra.mine
    return Reply(job.client, len(job.data), trace.seen, uploads, mine, trace.loss, trace.steps)


def exchange(federation: Federation, job: Job, again: bool) -> dict[str, Params]:
    """The client's answers to the questions before round 0, or to those of every round."""
    return {e.name: e.client(job, job.key.fold(e.name)) for e in federation.method.prologue if e.again is again}


def personalise(federation: Federation, job: Job) -> Params:
    """The weights a client ends up with: its slot, after the finale if the method has one."""
    method = federation.method
    slot = method.evaluates
    if method.finale:
        return dict(work_through(method.finale, job, federation.solver, "finale").weights[slot])
    return job.received if slot == "model" else {**job.received, **job.mine.get(slot, {})}


def score(federation: Federation, job: Job) -> Tally:
    """How the client's own model does on the test data."""
    chain = job.bench.load("scored", personalise(federation, job))
    return tally(chain, federation.test, federation.classes)


def evaluate(federation: Federation, bench: Bench, params: Params, piece: int) -> Tally:
    """How the server's model does on one piece of the test data."""
    count = len(federation.test)
    batches = federation.test[piece * count // PIECES : (piece + 1) * count // PIECES]
    return tally(bench.load("scored", params), batches, federation.classes)


_WORK: dict[Work, Callable[[Federation, Job], Any]] = {
    "train": train,
    "exchange": partial(exchange, again=False),
    "again": partial(exchange, again=True),
    "personalise": personalise,
    "score": score,
}


def work_through(phases: Sequence[Phase], job: Job, solver: Solver, part: str) -> Outcome:
    """Phase after phase; a later one may start from what an earlier one left. part: which phases of the method these are."""
    weights: dict[str, Params] = {}
    traces: list[tuple[str, Trace]] = []
    for number, phase in enumerate(phases):
        job.where.phase, job.where.step = number, 0
        model = job.bench.load("model", _start(phase, job, weights))
        job.bench.open(phase.trains)
        goal = Goal(phase.total, phase.order, phase.mix, f"solver of {part} {number}", phase.clip)
        trace = phase.by(solver)(model, goal, job, job.key.fold("phase", number))
        traces.append((phase.slot, trace))
        weights[phase.slot] = job.bench.read("model")
        weights |= {slot: {**weights[phase.slot], **w} for slot, w in trace.slots.items()}
    return Outcome(job, weights, tuple(traces))


def _start(phase: Phase, job: Job, done: Mapping[str, Params]) -> Params:
    source = phase.start or phase.slot
    if source in done:
        return done[source]
    if source in ("received", "model"):
        return job.received
    return {**job.received, **job.mine.get(source, {})}
