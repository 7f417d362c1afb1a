"""One run from its first round, or from where it stopped, to its last: train, score, write down, keep safe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from fedloom.core.afresh import asked, training
from fedloom.core.client import PIECES, Broadcast, Task
from fedloom.core.errors import RunError
from fedloom.core.evaluate import Tally, own_summary, summary
from fedloom.core.exact import deterministic, one_thread
from fedloom.core.params import sha256
from fedloom.core.report import Report
from fedloom.core.round import begin, expected, go_on, rounds
from fedloom.core.state import ClientStore, MemoryStore, ServerState
from fedloom.study.assemble import Study
from fedloom.study.curve import first_round
from fedloom.study.folder import RunFolder
from fedloom.study.parts import device_of

Line = dict[str, Any]
Watch = Callable[[Line], None]
SPREADS = ("weighted", "recall")  # of the clients' own models, for a metrics line: no list of clients


class Stopped(RunError):
    """The user asked for a stop, and the last whole round is safe."""


def run(
    study: Study,
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
    for place in folder.edited(study.code) if folder else ():
        tell(f"note: '{place}' has been edited since the last checkpoint: the rounds before it were played by the code as it was")
    for notice in () if restored else study.notices:
        tell(notice)
    if study.choice.why:
        tell(f"engine: {study.choice.engine} ({study.choice.why})")
    if (why_not := getattr(study.loom.engine, "why_not", None)) is not None:
        tell(f"note: played in-process, since {why_not}")
    store: ClientStore = folder.store if folder else MemoryStore()
    with one_thread(), deterministic(device_of(study.config.device)):
        state = go_on(study.loom, restored.state, tell) if restored else begin(study.loom, study.model, tell)
        lines = folder.metrics() if folder else []
        state = _weave(study, state, store, lines, folder, watch, stop)
        result = _result(study, state, lines) | _personal(study, state, store)
    if folder is not None:
        folder.finish(result)
    return result


def _weave(
    study: Study,
    state: ServerState,
    store: ClientStore,
    lines: list[Line],
    folder: RunFolder | None,
    watch: Watch,
    stop: Callable[[], bool],
) -> ServerState:
    """Every round that is still to be done; the lines grow by one each."""
    for reached, line in _scored(study, state, store):
        state = reached
        lines.append(line)
        asked = stop()  # once a round: a stop that is heeded is also saved
        if folder is not None:
            folder.append_metrics(line)
            if _due(state, study) or asked:
                folder.save(state, engine=study.choice.engine, code=dict(study.code))
        watch(line)  # behind the save: what the user is shown is safe
        if asked and state.round < study.config.rounds:
            raise Stopped(f"stopped after round {state.round} of {study.config.rounds}")
    return state


def _due(state: ServerState, study: Study) -> bool:
    return state.round % study.config.checkpoint_every == 0 or state.round == study.config.rounds


def _scored(study: Study, state: ServerState, store: ClientStore) -> Iterator[tuple[ServerState, Line]]:
    """Rounds with their metrics lines, evaluated where the settings say so."""
    for reached, report in rounds(study.loom, state, store, study.config.rounds):
        line, started = _line(report), time.perf_counter()
        if found := _figures(study, reached, store):
            line |= {**found, "evaluation_seconds": round(time.perf_counter() - started, 4)}
        yield reached, line


def _figures(study: Study, state: ServerState, store: ClientStore) -> Line:
    """What the settings want to know of the models after this round; own models at the end are the result's business."""
    asked, last, found = study.config.evaluate, state.round == study.config.rounds, Line()
    if state.round % asked.every == 0 or last:
        found |= summary(_evaluated(study, state), study.counts.sum(0), study.counts)
    if asked.personal_every and state.round % asked.personal_every == 0 and not last:
        found |= {word: {name: own[name] for name in SPREADS} for word, own in _personal(study, state, store).items()}
    return found


def _evaluated(study: Study, state: ServerState) -> Tally:
    """The server's model on the test data, piece by piece wherever the clients are played."""
    pieces = study.loom.engine.map(Broadcast("evaluate", state.round, state.params), (Task(i) for i in range(PIECES)))
    return Tally.total([piece for _, piece in sorted(pieces, key=lambda p: p[0])])


def _line(report: Report) -> Line:
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


def _result(study: Study, state: ServerState, lines: list[Line]) -> Line:
    config, scored = study.config, [line for line in lines if "accuracy" in line]
    target, curve = config.evaluate.target, {line["round"]: line["accuracy"] for line in scored}
    return {
        "method": config.title,
        "rounds": state.round,
        "accuracy": scored[-1]["accuracy"],
        "loss": scored[-1]["loss"],
        "seconds": round(sum(line["seconds"] + line.get("evaluation_seconds", 0.0) for line in lines), 3),
        "weights_sha256": sha256(state.params),
        "seed": config.seed,
        "model": config.model.name,
        "data": config.data.name,
        "clients": len(study.clients),
        "refused": sum(len(line["refused"]) for line in lines),
        "bytes_up": sum(line["bytes_up"] for line in lines),
        "bytes_down": sum(line["bytes_down"] for line in lines),
        "rounds_to_target": None if target is None else first_round(curve, target),
        "own_models": study.loom.federation.method.personal,
        "global": {**scored[-1]["clients"], "per_class": scored[-1]["per_class"], "groups": scored[-1]["groups"]},
    }


def _personal(study: Study, state: ServerState, store: ClientStore) -> Line:
    """The clients' own models, scored on the test data, where the method makes some."""
    if not (study.loom.federation.method.personal and study.config.evaluate.personal):
        return {}
    sent = Broadcast("score", state.round, state.params, state.shared)
    tasks = (Task(c, store.recall(c)) for c in range(len(study.clients)))
    hits = seen = torch.zeros_like(study.counts, dtype=torch.float64)
    for client, found in study.loom.engine.map(sent, tasks):  # into one table: tallies that lie about would pin the heap
        hits[client], seen = found.hits, found.seen
    return {"personal": own_summary(hits, seen, study.counts.sum(0), study.counts)}


def play_one(study: Study, folder: RunFolder, client: int) -> Line:
    """One client of the next round, alone: what it would answer. Nothing is kept."""
    restored = folder.restore()
    state = restored.state if restored else begin(study.loom, study.model)
    loom = study.loom
    with one_thread():
        sent = training(state, asked(loom.federation, loom.engine.map, state, folder.store, [client]))
        ((_, reply),) = loom.engine.map(sent, [Task(client, folder.store.recall(client))])
    why = loom.guard.complaint(reply, expected(loom.federation.method, study.model, state))
    return {
        "client": client,
        "round": state.round + 1,
        "samples": reply.samples,
        "steps": reply.steps,
        "loss": reply.loss,
        "complaint": why,
    }
