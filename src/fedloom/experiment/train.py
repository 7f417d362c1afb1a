"""One run from its first round, or its last checkpoint, to the end: train, evaluate, record."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedloom.core.determinism import deterministic, one_thread
from fedloom.core.errors import RunError
from fedloom.core.exchange_in_round import ask_every_round, training_broadcast
from fedloom.core.params import sha256
from fedloom.core.request import ClientTask
from fedloom.core.round import rounds
from fedloom.core.round_report import RoundReport
from fedloom.core.simulation import init_state, resume_state
from fedloom.core.state import ClientStore, MemoryStore, ServerState
from fedloom.core.valid_replies import valid_replies
from fedloom.experiment.build import server_device
from fedloom.experiment.callbacks import (
    Callback,
    CallbackList,
    Message,
    RecordKeeper,
    RunStart,
    ignore,
)
from fedloom.experiment.evaluation import evaluate, score_personal_models
from fedloom.experiment.low_loss_note import LowLossNote
from fedloom.experiment.prepare import PreparedRun, checked_client
from fedloom.experiment.rejection_notes import RejectionNotes
from fedloom.experiment.stored_run import read_history, read_run
from fedloom.metrics.history import History
from fedloom.metrics.records import RoundRecord, RunResult
from fedloom.metrics.totals import RunTotals
from fedloom.runs.folder import RunFolder
from fedloom.runs.restored import Restored


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
    device, wanted = server_device(prepared.config), prepared.config.deterministic
    with one_thread(), deterministic(device, wanted):
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
                frozen = prepared.simulation.federation.frozen
                folder.save(state, prepared.identity, frozen, engine=engine)
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
        scores = evaluate(prepared, reached, store)
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
        personal_models=score_personal_models(prepared, state, store),
        identity=prepared.identity,
        metrics=last.metrics,
        task=None if config.task == "classification" else config.task,
    )


def replay_client(prepared: PreparedRun, folder: RunFolder, client: int) -> dict[str, Any]:
    """One client of the next round, alone: what it would reply. Nothing is kept."""
    client = checked_client(client, len(prepared.clients))
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
