"""One run from its first round, or its last checkpoint, to the end: train, evaluate, record."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fedloom.core.client import Broadcast, ClientTask, EvaluationTask
from fedloom.core.determinism import deterministic, one_thread
from fedloom.core.errors import RunError
from fedloom.core.evaluate import ClassCounts
from fedloom.core.exchange import ask_every_round, training_broadcast
from fedloom.core.params import sha256
from fedloom.core.round import rounds
from fedloom.core.round_report import RoundReport
from fedloom.core.server import Absent
from fedloom.core.simulation import init_state, resume_state
from fedloom.core.state import ClientStore, MemoryStore, ServerState
from fedloom.core.valid_replies import valid_replies
from fedloom.experiment.build import resolve_device
from fedloom.experiment.callbacks import (
    Callback,
    CallbackList,
    Message,
    RecordKeeper,
    RunStart,
    ignore,
)
from fedloom.experiment.low_loss_note import LowLossNote
from fedloom.experiment.prepare import PreparedRun, check_client
from fedloom.experiment.rejection_notes import RejectionNotes
from fedloom.experiment.stored_run import read_history, read_run
from fedloom.metrics.evaluate import global_scores, global_scores_on_own, personal_scores
from fedloom.metrics.records import ClientScores, History, RoundRecord, RunResult
from fedloom.metrics.totals import RunTotals
from fedloom.runs.folder import Restored, RunFolder

NO_TEST_SAMPLE = "it has no test sample"


class Interrupted(RunError):
    """The user asked to stop; the last complete round is saved."""


@dataclass(frozen=True)
class TrainedRun:
    """A finished run: its result, the final state of the server, and what the clients remember.

    path: its folder. records: of the rounds, if it has none.
    """

    result: RunResult
    state: ServerState
    store: ClientStore
    path: Path | None = None
    records: Sequence[RoundRecord] = ()

    @property
    def history(self) -> History:
        """The records of all rounds, read from the folder if there is one."""
        return History(self.records) if self.path is None else read_run(self.path).history


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
    kept = RecordKeeper()
    low_loss = LowLossNote(prepared.simulation.federation.method.loss_floor, warn)
    own: list[Callback] = [RejectionNotes(warn), low_loss, *([] if folder else [kept])]
    callback = CallbackList([*callbacks, *own])
    store: ClientStore = folder.store if folder else MemoryStore()
    with one_thread(), deterministic(resolve_device(prepared.config.device)):
        state = (
            resume_state(prepared.simulation, restored.state, warn)
            if restored
            else init_state(prepared.simulation, prepared.model, warn)
        )
        totals = _begin(prepared, folder, state, callback, warn)
        with _telling_of_a_stop(callback):
            state, totals = _run_rounds(prepared, state, store, totals, folder, callback, stop)
            result = _result(prepared, state, store, totals)
            if folder is not None:
                folder.finish(result.to_json())
    callback.on_weights(state.params)
    callback.on_end(result)
    return TrainedRun(result, state, store, folder.path if folder else None, kept.records)


def _warnings(prepared: PreparedRun, restored: Restored | None) -> Iterator[str]:
    """What the user should know before the run begins or resumes."""
    for warning in restored.notes_on(prepared.identity) if restored else ():
        yield f"note: {warning}"
    if prepared.engine_choice.warning:
        yield f"note: {prepared.engine_choice.warning}"
    yield from () if restored else prepared.notices


def _begin(
    prepared: PreparedRun,
    folder: RunFolder | None,
    state: ServerState,
    callback: Callback,
    warn: Message,
) -> RunTotals:
    """Tell callbacks where the run stands; the totals of the rounds that it has."""
    config, completed = prepared.config, state.round
    start = RunStart(
        config.title,
        config,
        len(prepared.clients),
        config.rounds,
        completed,
        earlier=tuple(read_history(folder, completed)) if folder else (),
        folder=folder.path if folder else None,
        warn=warn,
    )
    callback.on_start(start)
    return RunTotals.of(start.earlier, config.evaluate.target)


@contextmanager
def _telling_of_a_stop(callback: Callback) -> Iterator[None]:
    """Tell callbacks that the run has stopped before its end."""
    try:
        yield
    except BaseException as error:
        callback.on_stop(error)
        raise


def _run_rounds(
    prepared: PreparedRun,
    state: ServerState,
    store: ClientStore,
    totals: RunTotals,
    folder: RunFolder | None,
    callback: Callback,
    stop: Callable[[], bool],
) -> tuple[ServerState, RunTotals]:
    """Every round that is left; the final state, and the totals of all rounds."""
    for reached, record in _evaluated_rounds(prepared, state, store):
        state = reached
        totals = totals.plus(record)
        stop_requested = stop()  # asked once per round, so that a stop that is obeyed is also saved
        if folder is not None:
            folder.append_metrics(record.to_json())
            # a skipped round is always saved: a resumed run must not come to it again
            if _checkpoint_due(state, prepared) or stop_requested or record.skipped is not None:
                engine = prepared.engine_choice.engine
                folder.save(state, prepared.identity, engine=engine)
        callback.on_round(record)  # after the save: what the user is shown is safe
        if stop_requested and state.round < prepared.config.rounds:
            raise Interrupted(f"stopped after round {state.round} of {prepared.config.rounds}")
    return state, totals


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
        skipped=report.skipped,
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
        pieces, absent = _count_on_test_data(prepared, state)
        counts = ClassCounts.total([piece for piece in pieces if piece is not None])
        scores["accuracy"], scores["test_loss"] = counts.accuracy, counts.loss
        scores["global_model"] = (
            global_scores(counts, prepared.counts)
            if prepared.simulation.federation.own_test is None
            else global_scores_on_own(pieces, prepared.counts, absent)
        )
    if settings.personal_every and state.round % settings.personal_every == 0 and not last:
        personal = _personal_scores(prepared, state, store)
        scores["personal_models"] = None if personal is None else personal.spreads()
    return scores


def _count_on_test_data(
    prepared: PreparedRun, state: ServerState
) -> tuple[list[ClassCounts | None], dict[int, str]]:
    """The global model on the test data, in pieces that run wherever the clients run.

    Also, where clients have test data of their own, those without a piece, with the reason.
    """
    broadcast = Broadcast("evaluate", state.round, state.params)
    simulation = prepared.simulation
    tasks = (EvaluationTask(piece) for piece in range(simulation.federation.test_pieces))
    pieces = sorted(simulation.ask(broadcast, tasks), key=lambda piece: piece[0])
    absent = {number: piece.reason for number, piece in pieces if isinstance(piece, Absent)}
    if simulation.federation.own_test is not None:
        absent |= {
            number: NO_TEST_SAMPLE
            for number, piece in pieces
            if number not in absent and not piece.seen.any()
        }
    if len(absent) == len(pieces):
        client, reason = next(iter(absent.items()))
        raise RunError(f"no client could evaluate the model (client {client}: {reason})")
    return [None if number in absent else piece for number, piece in pieces], absent


def _personal_scores(
    prepared: PreparedRun, state: ServerState, store: ClientStore
) -> ClientScores | None:
    """The clients' own models on the test data; None if the method makes none or nobody asked."""
    method = prepared.simulation.federation.method
    if not (method.personal and prepared.config.evaluate.personal):
        return None
    broadcast = Broadcast("score", state.round, state.params, state.shared)
    tasks = (ClientTask(c, store.recall(c)) for c in range(len(prepared.clients)))
    hits, seen = (torch.zeros_like(prepared.counts, dtype=torch.float64) for _ in range(2))
    unscored: dict[int, str] = {}
    # into one table at once: many small tensors kept alive would fragment the heap
    for client, counts in prepared.simulation.ask(broadcast, tasks):
        if isinstance(counts, Absent):
            unscored[client] = counts.reason
        elif not counts.seen.any():
            unscored[client] = NO_TEST_SAMPLE
        else:
            hits[client], seen[client] = counts.hits, counts.seen
    if len(unscored) == len(hits):
        raise RunError(f"no client's own model could be scored (client 0: {unscored[0]})")
    if prepared.simulation.federation.own_test is None:  # all have the same test samples
        seen = seen.amax(0)
    return personal_scores(hits, seen, prepared.counts, unscored)


def _result(
    prepared: PreparedRun, state: ServerState, store: ClientStore, totals: RunTotals
) -> RunResult:
    config, last = prepared.config, totals.last_evaluated
    if totals.skipped == state.round:
        raise RunError(f"no round of the run counts; round {state.round}: {totals.last_skipped}")
    assert last is not None  # the last round is always evaluated
    assert last.accuracy is not None and last.global_model is not None
    return RunResult(
        method=config.title,
        rounds=state.round,
        accuracy=last.accuracy,
        test_loss=math.nan if last.test_loss is None else last.test_loss,
        seconds=round(totals.seconds, 3),
        weights_sha256=sha256(state.params),
        seed=config.seed,
        model=config.model.name,
        data=config.data.name,
        clients=len(prepared.clients),
        rejected=totals.rejected,
        skipped=totals.skipped,
        bytes_up=totals.bytes_up,
        bytes_down=totals.bytes_down,
        rounds_to_target=totals.rounds_to_target,
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
            simulation.federation, simulation.ask, state, folder.store, [client]
        )
        broadcast = training_broadcast(state, exchanged)
        task = ClientTask(client, folder.store.recall(client))
        reply = simulation.answer(broadcast, task)
    valid = valid_replies(simulation.federation, simulation.guard, prepared.model, state)
    return {
        "client": client,
        "round": state.round + 1,
        "samples": reply.samples,
        "steps": reply.steps,
        "train_loss": reply.loss,
        "problem": valid.problem(client, reply),
    }
