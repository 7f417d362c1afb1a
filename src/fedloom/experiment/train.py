"""One run from its first round, or from where it stopped, to its last: train, score, write down, keep safe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
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
from fedloom.experiment.build import PreparedRun
from fedloom.experiment.parts import resolve_device
from fedloom.metrics.curve import first_round
from fedloom.metrics.evaluate import personal_summary, summary
from fedloom.runs.folder import RunFolder

Line = dict[str, Any]
Watch = Callable[[Line], None]
SPREADS = (
    "weighted",
    "recall",
)  # of the clients' own models, for a metrics line: no list of clients


class Interrupted(RunError):
    """The user asked for a stop, and the last whole round is safe."""


def run(
    prepared: PreparedRun,
    folder: RunFolder | None = None,
    watch: Watch = lambda line: None,
    stop: Callable[[], bool] = bool,
    tell: Callable[[str], None] = lambda warning: None,
) -> Line:
    """Run to the end and return the result; with a folder, go on from its last checkpoint and keep it safe.

    watch sees every round's metrics line. stop is asked after every round. tell hears what the user should know.
    """
    restored = folder.restore() if folder else None
    for warning in restored.warnings if restored else ():
        tell(f"note: {warning}")
    for place in folder.edited(prepared.code) if folder else ():
        tell(
            f"note: '{place}' has been edited since the last checkpoint: the rounds before it were played by the code as it was"
        )
    for notice in () if restored else prepared.notices:
        tell(notice)
    if prepared.choice.why:
        tell(f"engine: {prepared.choice.engine} ({prepared.choice.why})")
    if (why_not := getattr(prepared.simulation.engine, "why_not", None)) is not None:
        tell(f"note: played in-process, since {why_not}")
    store: ClientStore = folder.store if folder else MemoryStore()
    with one_thread(), deterministic(resolve_device(prepared.config.device)):
        state = (
            resume_state(prepared.simulation, restored.state, tell)
            if restored
            else init_state(prepared.simulation, prepared.model, tell)
        )
        lines = folder.metrics() if folder else []
        state = _run_rounds(prepared, state, store, lines, folder, watch, stop)
        result = _result(prepared, state, lines) | _personal(prepared, state, store)
    if folder is not None:
        folder.finish(result)
    return result


def _run_rounds(
    prepared: PreparedRun,
    state: ServerState,
    store: ClientStore,
    lines: list[Line],
    folder: RunFolder | None,
    watch: Watch,
    stop: Callable[[], bool],
) -> ServerState:
    """Every round that is still to be done; the lines grow by one each."""
    for reached, line in _scored(prepared, state, store):
        state = reached
        lines.append(line)
        ask_every_round = stop()  # once a round: a stop that is heeded is also saved
        if folder is not None:
            folder.append_metrics(line)
            if _due(state, prepared) or ask_every_round:
                folder.save(state, engine=prepared.choice.engine, code=dict(prepared.code))
        watch(line)  # behind the save: what the user is shown is safe
        if ask_every_round and state.round < prepared.config.rounds:
            raise Interrupted(f"stopped after round {state.round} of {prepared.config.rounds}")
    return state


def _due(state: ServerState, prepared: PreparedRun) -> bool:
    return (
        state.round % prepared.config.checkpoint_every == 0 or state.round == prepared.config.rounds
    )


def _scored(
    prepared: PreparedRun, state: ServerState, store: ClientStore
) -> Iterator[tuple[ServerState, Line]]:
    """Rounds with their metrics lines, evaluated where the settings say so."""
    for reached, report in rounds(prepared.simulation, state, store, prepared.config.rounds):
        line, started = _line(report), time.perf_counter()
        if found := _figures(prepared, reached, store):
            line |= {**found, "evaluation_seconds": round(time.perf_counter() - started, 4)}
        yield reached, line


def _figures(prepared: PreparedRun, state: ServerState, store: ClientStore) -> Line:
    """What the settings want to know of the models after this round; own models at the end are the result's business."""
    ask_every_round, last, found = (
        prepared.config.evaluate,
        state.round == prepared.config.rounds,
        Line(),
    )
    if state.round % ask_every_round.every == 0 or last:
        found |= summary(_evaluated(prepared, state), prepared.counts.sum(0), prepared.counts)
    if (
        ask_every_round.personal_every
        and state.round % ask_every_round.personal_every == 0
        and not last
    ):
        found |= {
            word: {name: own[name] for name in SPREADS}
            for word, own in _personal(prepared, state, store).items()
        }
    return found


def _evaluated(prepared: PreparedRun, state: ServerState) -> ClassCounts:
    """The server's model on the test data, piece by piece wherever the clients are played."""
    pieces = prepared.simulation.engine.map(
        Broadcast("evaluate", state.round, state.params),
        (EvaluationTask(i) for i in range(TEST_PIECES)),
    )
    return ClassCounts.total([piece for _, piece in sorted(pieces, key=lambda p: p[0])])


def _line(report: RoundReport) -> Line:
    return {
        "round": report.round + 1,
        "participants": list(report.clients),
        "refused": {str(c): why for c, why in report.refused.items()},
        "train_loss": report.loss,
        "steps": report.steps,
        "bytes_up": report.bytes_up,
        "bytes_down": report.bytes_down,
        "seconds": round(report.seconds, 4),
    }


def _result(prepared: PreparedRun, state: ServerState, lines: list[Line]) -> Line:
    config, scored = prepared.config, [line for line in lines if "accuracy" in line]
    target, curve = config.evaluate.target, {line["round"]: line["accuracy"] for line in scored}
    return {
        "method": config.title,
        "rounds": state.round,
        "accuracy": scored[-1]["accuracy"],
        "loss": scored[-1]["loss"],
        "seconds": round(
            sum(line["seconds"] + line.get("evaluation_seconds", 0.0) for line in lines), 3
        ),
        "weights_sha256": sha256(state.params),
        "seed": config.seed,
        "model": config.model.name,
        "data": config.data.name,
        "clients": len(prepared.clients),
        "refused": sum(len(line["refused"]) for line in lines),
        "bytes_up": sum(line["bytes_up"] for line in lines),
        "bytes_down": sum(line["bytes_down"] for line in lines),
        "rounds_to_target": None if target is None else first_round(curve, target),
        "own_models": prepared.simulation.federation.method.personal,
        "global": {
            **scored[-1]["clients"],
            "per_class": scored[-1]["per_class"],
            "groups": scored[-1]["groups"],
        },
    }


def _personal(prepared: PreparedRun, state: ServerState, store: ClientStore) -> Line:
    """The clients' own models, scored on the test data, where the method makes some."""
    if not (prepared.simulation.federation.method.personal and prepared.config.evaluate.personal):
        return {}
    sent = Broadcast("score", state.round, state.params, state.shared)
    tasks = (ClientTask(c, store.recall(c)) for c in range(len(prepared.clients)))
    hits = seen = torch.zeros_like(prepared.counts, dtype=torch.float64)
    for client, found in prepared.simulation.engine.map(
        sent, tasks
    ):  # into one table: tallies that lie about would pin the heap
        hits[client], seen = found.hits, found.seen
    return {"personal": personal_summary(hits, seen, prepared.counts.sum(0), prepared.counts)}


def replay_client(prepared: PreparedRun, folder: RunFolder, client: int) -> Line:
    """One client of the next round, alone: what it would answer. Nothing is kept."""
    restored = folder.restore()
    state = restored.state if restored else init_state(prepared.simulation, prepared.model)
    simulation = prepared.simulation
    with one_thread():
        sent = training_broadcast(
            state,
            ask_every_round(
                simulation.federation, simulation.engine.map, state, folder.store, [client]
            ),
        )
        ((_, reply),) = simulation.engine.map(
            sent, [ClientTask(client, folder.store.recall(client))]
        )
    why = simulation.guard.problem(
        reply, expected_uploads(simulation.federation.method, prepared.model, state)
    )
    return {
        "client": client,
        "round": state.round + 1,
        "samples": reply.samples,
        "steps": reply.steps,
        "loss": reply.loss,
        "complaint": why,
    }
