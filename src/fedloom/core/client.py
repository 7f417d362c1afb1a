"""The client's half of a round: load what was sent, run the phases, reply.

The server sends a Broadcast to all clients of a round and a Task for each answer that it wants.
`answer` is the single entry point through which every engine runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.evaluate import Evaluation, evaluate_model
from fedloom.core.federation import Batches, Federation
from fedloom.core.frozen_base import BASE, check_base
from fedloom.core.job import Job, ModelPool, Progress
from fedloom.core.method import Method, Outcome, Phase
from fedloom.core.params import Params, without
from fedloom.core.request import Broadcast, ClientTask, EvaluationTask, Task, Work
from fedloom.core.roles import change
from fedloom.core.server import Reply
from fedloom.core.solver import DescentResult, Objective, Solver

# The branch of the random key for each kind of work with a client.
_KEY_BRANCH: dict[Work, str] = {
    "train": "round",
    "exchange": "exchange",
    "exchange every round": "again",
    "personalise": "finale",
    "score": "finale",
}


def answer(
    federation: Federation, model_pool: ModelPool, sent: Broadcast, task: Task, progress: Progress
) -> Any:
    """Do the work that the broadcast asks for, and return the answer.

    progress: updated during the work, for error messages.
    """
    if BASE in sent.shared:
        check_base(sent.shared[BASE], model_pool.base)
    if isinstance(task, EvaluationTask):
        return evaluate(federation, model_pool, sent.params, task.piece)
    return _WORK[sent.work](federation, job_for(federation, model_pool, sent, task, progress))


def job_for(
    federation: Federation,
    model_pool: ModelPool,
    sent: Broadcast,
    task: Task,
    progress: Progress | None = None,
) -> Job:
    """A client's job: its own key, and its private tensors in place of the server's."""
    assert isinstance(task, ClientTask)
    memories = federation.keeper.recall(task.client, task.memories)
    return Job(
        client=task.client,
        round=sent.round,
        key=federation.key.fold(_KEY_BRANCH[sent.work], sent.round, "client", task.client),
        data=federation.clients[task.client],
        model_pool=model_pool,
        received={**sent.params, **memories.get("private", {}), **model_pool.frozen_weights},
        shared=sent.shared,
        memories=memories,
        classes=federation.classes,
        task=federation.task,
        secret=federation.secret,
        progress=progress or Progress(),
    )


def train(federation: Federation, job: Job) -> Reply:
    """One round of a client: run the phases, then build the reply."""
    method = federation.method
    outcome = run_phases(method.phases, job, federation.solver, "phase")
    private, kept = job.model_pool.names(method.private), job.model_pool.kept(method.private)
    final, delta = outcome.weights["model"], outcome.delta
    changes = {
        n: delta[n] if n in delta else change(final[n], t)
        for n, t in job.received.items()
        if n not in kept
    }
    memories = {slot: weights for slot, weights in outcome.weights.items() if slot != "model"}
    for _, descent in outcome.descents:
        memories |= descent.keep
    if private:
        memories["private"] = {n: final[n] for n in final if n in private}
    reply = reply_of(method, outcome, changes, memories)
    carried = federation.keeper.keep(job.client, job.round, reply.memories)
    return replace(reply, memories=carried)


def reply_of(
    method: Method, outcome: Outcome, change: Params, memories: dict[str, Params]
) -> Reply:
    """The reply with this change of the model, these memories, and what `method.after` adds."""
    job, descent = outcome.job, outcome.descent("model")
    kept = job.model_pool.kept(method.private)
    uploads, memories = {"model": without(change, kept)}, dict(memories)
    for extra in [after(outcome) for after in method.after]:
        for name, upload in extra.uploads.items():
            uploads[name] = without(upload, kept)
        if clash := memories.keys() & extra.memories.keys():
            raise UserError(
                f"two methods use the memory '{min(clash)}' and cannot be combined; keep one"
            )
        memories |= extra.memories
    return Reply(
        client=job.client,
        samples=len(job.data),
        seen=descent.seen,
        uploads=uploads,
        memories=memories,
        loss=descent.loss,
        steps=descent.steps,
    )


def exchange(federation: Federation, job: Job, every_round: bool) -> dict[str, Params]:
    """The client's answers to the exchanges before round 0, or to those of every round."""
    return {
        e.name: e.client(job, job.key.fold(e.name))
        for e in federation.method.prologue
        if e.every_round is every_round
    }


def personalise(federation: Federation, job: Job) -> Params:
    """A client's final weights: its evaluated slot, after the finale if the method has one.

    Without frozen ones, which every process has.
    """
    method = federation.method
    slot = method.evaluates
    if method.finale:
        return dict(run_phases(method.finale, job, federation.solver, "finale").weights[slot])
    own = {} if slot == "model" else job.memories.get(slot, {})
    return without({**job.received, **own}, job.model_pool.roles.frozen)


def score(federation: Federation, job: Job) -> Evaluation:
    """Score the client's own model on the test data; its metrics are computed here."""
    chain = job.model_pool.load("scored", personalise(federation, job))
    own = federation.own_test
    batches = federation.test if own is None else own[job.client]
    return _evaluated(federation, chain, batches).with_metrics(federation.metrics)


def evaluate(
    federation: Federation, model_pool: ModelPool, params: Params, piece: int
) -> Evaluation:
    """Score the server's model on one piece of the test data; metrics need all pieces."""
    return _evaluated(federation, model_pool.load("scored", params), federation.test_piece(piece))


def _evaluated(federation: Federation, chain: Chain, batches: Batches) -> Evaluation:
    with_predictions = bool(federation.metrics)
    return evaluate_model(chain, batches, federation.classes, federation.task, with_predictions)


_WORK: dict[Work, Callable[[Federation, Job], Any]] = {
    "train": train,
    "exchange": partial(exchange, every_round=False),
    "exchange every round": partial(exchange, every_round=True),
    "personalise": personalise,
    "score": score,
}


def run_phases(phases: Sequence[Phase], job: Job, solver: Solver, part: str) -> Outcome:
    """Run the phases in order; a phase may start from the weights of an earlier one.

    part: "phase" or "finale", which names the memories of these phases' solvers.
    """
    weights: dict[str, Params] = {}
    descents: list[tuple[str, DescentResult]] = []
    for number, phase in enumerate(phases):
        job.progress.phase, job.progress.step = number, 0
        model = job.model_pool.load("model", _initial_weights(phase, job, weights))
        job.model_pool.set_trainable(phase.trains)
        memory = f"solver of {part} {number}"
        objective = Objective(phase.total, phase.order, phase.mix, memory, phase.clip)
        phase_solver = phase.solver_for(solver)
        descent = phase_solver(model, objective, job, job.key.fold("phase", number))
        descents.append((phase.slot, descent))
        weights[phase.slot] = job.model_pool.take("model")
        weights |= {slot: {**weights[phase.slot], **w} for slot, w in descent.slots.items()}
    return Outcome(job, weights, tuple(descents))


def _initial_weights(phase: Phase, job: Job, trained: Mapping[str, Params]) -> Params:
    """Where a phase starts; trained: the slots of earlier phases."""
    source = phase.start or phase.slot
    if source in trained:
        return trained[source]
    if source in ("received", "model"):
        return job.received
    return {**job.received, **job.memories.get(source, {})}
