"""One run from its first round, or its last checkpoint, to the end: train, evaluate, record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from fedloom.core.client import TEST_PIECES, Broadcast, ClientTask, EvaluationTask
from fedloom.core.determinism import deterministic, one_thread
from fedloom.core.errors import RunError
from fedloom.core.evaluate import ClassCounts
from fedloom.core.exchange import ask_every_round, training_broadcast
from fedloom.core.params import sha256
from fedloom.core.round import expected_uploads, init_state, resume_state, rounds
from fedloom.core.round_report import RoundReport
from fedloom.core.state import ClientStore, MemoryStore, ServerState
from fedloom.experiment.build import resolve_device
from fedloom.experiment.callbacks import Callback, CallbackList, RunStart
from fedloom.experiment.prepare import PreparedRun, check_client
from fedloom.experiment.stored_run import read_history
from fedloom.metrics.curve import first_round
from fedloom.metrics.evaluate import global_scores, personal_scores
from fedloom.metrics.records import ClientScores, History, RoundRecord, RunResult
from fedloom.runs.folder import Restored, RunFolder

Message = Callable[[str], None]


class Interrupted(RunError):
    """The user asked to stop; the last complete round is saved."""


@dataclass(frozen=True)
class TrainedRun:
    """A finished run: its records, the final state of the server, and what the clients remember."""

    result: RunResult
    history: History
    state: ServerState
    store: ClientStore


def ignore(message: str) -> None:
    """For messages that nobody wants to see."""


def train(
    prepared: PreparedRun,
    folder: RunFolder | None = None,
    callbacks: Sequence[Callback] = (),
    stop: Callable[[], bool] = bool,
    warn: Message = ignore,
    inform: Message = ignore,
) -> TrainedRun:
    """Train to the last round. With a folder, resume from its last checkpoint and save as it goes.

    stop is asked after every round. warn gets what the user should know, inform what helps only
    someone who wonders why a run behaves as it does.
    """
    restored = folder.restore(prepared.state_problem) if folder else None
    for message in _warnings(prepared, restored):
        warn(message)
    if restored:
        identity = restored.manifest.identity.continued(prepared.identity, restored.state.round)
        prepared = replace(prepared, identity=identity)
    choice = prepared.engine_choice
    inform(f"engine: {choice.engine} ({choice.why})" if choice.why else f"engine: {choice.engine}")
    if (why_not := getattr(prepared.simulation.engine, "why_not", None)) is not None:
        warn(f"note: run in-process, since {why_not}")
    callback = CallbackList(callbacks)
    store: ClientStore = folder.store if folder else MemoryStore()
    with one_thread(), deterministic(resolve_device(prepared.config.device)):
        state = (
            resume_state(prepared.simulation, restored.state, warn)
            if restored
            else init_state(prepared.simulation, prepared.model, warn)
        )
        records = read_history(folder, state.round) if folder else History()
        callback.on_start(_start(prepared, state))
        state, history = _run_rounds(prepared, state, store, list(records), folder, callback, stop)
        result = _result(prepared, state, store, history)
    if folder is not None:
        folder.finish(result.to_json())
    callback.on_end(result)
    return TrainedRun(result, history, state, store)


def _warnings(prepared: PreparedRun, restored: Restored | None) -> Iterator[str]:
    """What the user should know before the run begins or resumes."""
    for warning in restored.notes_on(prepared.identity) if restored else ():
        yield f"note: {warning}"
    if prepared.engine_choice.warning:
        yield f"note: {prepared.engine_choice.warning}"
    yield from () if restored else prepared.notices


def _start(prepared: PreparedRun, state: ServerState) -> RunStart:
    config = prepared.config
    return RunStart(config.title, config, len(prepared.clients), config.rounds, state.round)


def _run_rounds(
    prepared: PreparedRun,
    state: ServerState,
    store: ClientStore,
    records: list[RoundRecord],
    folder: RunFolder | None,
    callback: Callback,
    stop: Callable[[], bool],
) -> tuple[ServerState, History]:
    """Every round that is left; the final state, and the records of all rounds."""
    for reached, record in _evaluated_rounds(prepared, state, store):
        state = reached
        records.append(record)
        stop_requested = stop()  # asked once per round, so that a stop that is obeyed is also saved
        if folder is not None:
            folder.append_metrics(record.to_json())
            if _checkpoint_due(state, prepared) or stop_requested:
                engine = prepared.engine_choice.engine
                folder.save(state, prepared.identity, engine=engine)
        callback.on_round(record)  # after the save: what the user is shown is safe
        if stop_requested and state.round < prepared.config.rounds:
            raise Interrupted(f"stopped after round {state.round} of {prepared.config.rounds}")
    return state, History(records)


def _checkpoint_due(state: ServerState, prepared: PreparedRun) -> bool:
    config = prepared.config
    return state.round % config.checkpoint_every == 0 or state.round == config.rounds


def _evaluated_rounds(
    prepared: PreparedRun, state: ServerState, store: ClientStore
) -> Iterator[tuple[ServerState, RoundRecord]]:
    """Rounds with their records, evaluated in the rounds that the settings name."""
    until, model = prepared.config.rounds, prepared.model
    for reached, report in rounds(prepared.simulation, state, store, until, model):
        started = time.perf_counter()
        scores = _evaluate(prepared, reached, store)
        if scores:
            scores["evaluation_seconds"] = round(time.perf_counter() - started, 4)
        yield reached, replace(_record(report), **scores)


def _record(report: RoundReport) -> RoundRecord:
    return RoundRecord(
        round=report.round + 1,
        participants=report.clients,
        rejected=report.rejected,
        train_loss=report.loss,
        steps=report.steps,
        bytes_up=report.bytes_up,
        bytes_down=report.bytes_down,
        seconds=round(report.seconds, 4),
    )


def _evaluate(prepared: PreparedRun, state: ServerState, store: ClientStore) -> dict[str, Any]:
    """The scores that the settings ask for after this round; personal models at the end belong to
    the result."""
    settings, last = prepared.config.evaluate, state.round == prepared.config.rounds
    scores: dict[str, Any] = {}
    if state.round % settings.every == 0 or last:
        counts = _count_on_test_data(prepared, state)
        scores["accuracy"], scores["test_loss"] = counts.accuracy, counts.loss
        scores["global_model"] = global_scores(counts, prepared.counts)
    if settings.personal_every and state.round % settings.personal_every == 0 and not last:
        personal = _personal_scores(prepared, state, store)
        scores["personal_models"] = None if personal is None else personal.spreads()
    return scores


def _count_on_test_data(prepared: PreparedRun, state: ServerState) -> ClassCounts:
    """The global model on the test data, in pieces that run wherever the clients run."""
    broadcast = Broadcast("evaluate", state.round, state.params)
    tasks = (EvaluationTask(piece) for piece in range(TEST_PIECES))
    pieces = prepared.simulation.engine.map(broadcast, tasks)
    return ClassCounts.total([piece for _, piece in sorted(pieces, key=lambda p: p[0])])


def _personal_scores(
    prepared: PreparedRun, state: ServerState, store: ClientStore
) -> ClientScores | None:
    """The clients' own models on the test data; None if the method makes none or nobody asked."""
    method = prepared.simulation.federation.method
    if not (method.personal and prepared.config.evaluate.personal):
        return None
    broadcast = Broadcast("score", state.round, state.params, state.shared)
    tasks = (ClientTask(c, store.recall(c)) for c in range(len(prepared.clients)))
    hits = seen = torch.zeros_like(prepared.counts, dtype=torch.float64)
    # into one table at once: many small tensors kept alive would fragment the heap
    for client, counts in prepared.simulation.engine.map(broadcast, tasks):
        hits[client], seen = counts.hits, counts.seen
    return personal_scores(hits, seen, prepared.counts)


def _result(
    prepared: PreparedRun, state: ServerState, store: ClientStore, history: History
) -> RunResult:
    config, curve = prepared.config, history.accuracy
    last = next(record for record in reversed(history) if record.accuracy is not None)
    assert last.accuracy is not None and last.global_model is not None
    target = config.evaluate.target
    return RunResult(
        method=config.title,
        rounds=state.round,
        accuracy=last.accuracy,
        test_loss=last.test_loss,
        seconds=round(history.total("seconds") + history.total("evaluation_seconds"), 3),
        weights_sha256=sha256(state.params),
        seed=config.seed,
        model=config.model.name,
        data=config.data.name,
        clients=len(prepared.clients),
        rejected=sum(len(record.rejected) for record in history),
        bytes_up=int(history.total("bytes_up")),
        bytes_down=int(history.total("bytes_down")),
        rounds_to_target=None if target is None else first_round(curve, target),
        personalised=prepared.simulation.federation.method.personal,
        global_model=last.global_model,
        personal_models=_personal_scores(prepared, state, store),
        identity=prepared.identity,
    )


def replay_client(prepared: PreparedRun, folder: RunFolder, client: int) -> dict[str, Any]:
    """One client of the next round, alone: what it would reply. Nothing is kept."""
    check_client(client, len(prepared.clients))
    restored = folder.restore(prepared.state_problem)
    simulation = prepared.simulation
    state = restored.state if restored else init_state(simulation, prepared.model)
    with one_thread():
        exchanged = ask_every_round(
            simulation.federation, simulation.engine.map, state, folder.store, [client]
        )
        broadcast = training_broadcast(state, exchanged)
        task = ClientTask(client, folder.store.recall(client))
        ((_, reply),) = simulation.engine.map(broadcast, [task])
    expected = expected_uploads(simulation.federation.method, prepared.model, state)
    return {
        "client": client,
        "round": state.round + 1,
        "samples": reply.samples,
        "steps": reply.steps,
        "train_loss": reply.loss,
        "problem": simulation.guard.problem(reply, expected),
    }
