"""A model of a finished run to take away, the server's or a client's own:

    NAME.safetensors   the weights, bit for bit those that were scored
    NAME.pt2           the model as a program for any number of samples; torch.export.load runs it without fedloom
    NAME.json          what it is: what it takes, how that is normalised, what it answers, and how it scores

NAME is global or client-7. No run stores its clients' final models: they are made again from the last checkpoint, with the keys of
the run, and scored again.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.determinism import deterministic, one_thread
from fedloom.core.errors import UserError
from fedloom.core.evaluate import ClassCounts
from fedloom.core.job import build_isolated
from fedloom.core.params import Params, sha256
from fedloom.experiment.build import build_federation, resolve_device
from fedloom.experiment.prepare import PreparedRun
from fedloom.experiment.reopen import ReopenedRun, reopened
from fedloom.experiment.stored_run import read_result
from fedloom.metrics.evaluate import score_clients
from fedloom.metrics.records import RunResult
from fedloom.runs.checkpoint import made_with
from fedloom.runs.durable_files import file_error, write_durably
from fedloom.runs.folder import RunFolder
from fedloom.runs.tensor_bytes import pack

Message = Callable[[str], None]


@dataclass(frozen=True)
class Exported:
    """The files, and what stands in the last of them."""

    files: tuple[Path, ...]
    facts: dict[str, Any]


def export(
    path: Path, client: int | None, out: Path, warn: Message, program: bool = True
) -> Exported:
    """Write the model of a client, or the server's, into a folder. tell hears what the user should know."""
    with RunFolder.read_only(path) as folder:
        result = read_result(folder)
    if result is None:
        raise UserError(
            f"{path} is not finished, so its models are not final; go on with `fedloom resume {path}`"
        )
    with (
        reopened(path, warn) as run,
        one_thread(),
        deterministic(resolve_device(run.prepared.config.device)),
    ):
        weights = _weights(run, client, warn)
        scored = run.count(weights)
        then = _accuracy_in_run(result, client)
        if then is not None and abs(scored.accuracy - then) > 1e-9:
            warn(
                f"note: the model scores {scored.accuracy:.4f} here and scored {then:.4f} in the run, "
                "which was made on another machine or with other code"
            )
        name = "global" if client is None else f"client-{client}"
        facts = _facts(run, client, weights, scored)
        data = {f"{name}.safetensors": pack(weights)}
        if program:
            data[f"{name}.pt2"] = _program(run.prepared, weights)
        data[f"{name}.json"] = json.dumps(facts, indent=1).encode() + b"\n"
    return Exported(tuple(_written(out, data)), facts)


def _written(out: Path, data: dict[str, bytes]) -> list[Path]:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise file_error(out, error, UserError) from error
    for name, content in data.items():
        write_durably(out / name, content)
    return [out / name for name in data]


def _weights(run: ReopenedRun, client: int | None, warn: Message) -> Params:
    """The global weights, or those with which the client was scored."""
    title = run.prepared.config.title
    if client is None:
        if run.personalised:
            warn(
                f"note: '{title}' gives every client a model of its own, and this is the global one; "
                "choose a client with --client"
            )
        return run.state.params
    weights = run.client_weights(client)
    if not run.personalised:
        warn(f"note: '{title}' does not personalise, so client {client} has the global model")
    return weights


def _accuracy_in_run(result: RunResult, client: int | None) -> float | None:
    """The accuracy that the run recorded; None if it was not measured."""
    if client is None or not result.personalised:
        return result.accuracy
    scores = result.personal_models
    return None if scores is None else sum(scores.correct[client]) / sum(scores.test_samples)


def _facts(
    run: ReopenedRun, client: int | None, weights: Params, scored: ClassCounts
) -> dict[str, Any]:
    prepared, config = run.prepared, run.prepared.config
    facts = {
        "method": config.title,
        "client": client,
        "rounds": run.state.round,
        "model": {"name": config.model.name, **config.model.args},
        "data": config.data.name,
        "input": _input(prepared),
        "classes": list(prepared.dataset.classes),
        "weights_sha256": sha256(weights),
        "accuracy": scored.accuracy,
        "made_with": made_with(),
    }
    if client is None:
        return facts
    counts = prepared.counts[client : client + 1]
    weighted, recall = score_clients(scored.recall, scored.seen, counts)
    return {
        **facts,
        "samples": len(prepared.clients[client]),
        "label_weighted_accuracy": float(weighted),
        "mean_class_recall": float(recall),
    }


def _input(prepared: PreparedRun) -> dict[str, Any]:
    """What the model takes; stored samples times scale plus shift, where there is such a step."""
    how = prepared.clients.normalise
    x, _ = prepared.simulation.federation.test[0]
    seen = {"shape": list(prepared.dataset.shape), "type": str(x.dtype).removeprefix("torch.")}
    if how.scale is None or how.shift is None:
        return seen
    return {**seen, "scale": how.scale.flatten().tolist(), "shift": how.shift.flatten().tolist()}


def _program(prepared: PreparedRun, weights: Params) -> bytes:
    """The model without the arrangements of a run, layout and compiler, as torch.export has it."""
    bare = prepared.config.model_copy(update={"layout": "contiguous", "compile": False})
    federation = build_federation(bare, prepared.dataset, prepared.clients)
    chain = build_isolated(federation.build)
    chain.load_state_dict(weights)
    chain.eval()
    x, _ = prepared.simulation.federation.test[0]
    return _traced(chain, x[:2], prepared.config.model.name)


def _traced(chain: Chain, x: Tensor, name: str) -> bytes:
    buffer = io.BytesIO()
    try:
        with torch.no_grad():
            traced = torch.export.export(
                chain, (x.contiguous(),), dynamic_shapes=({0: torch.export.Dim("batch")},)
            )
        torch.export.save(traced, buffer)
    except Exception as error:  # a forward that is fed with symbols can fail in any way
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"model '{name}' cannot be made a program ({why}); add --weights-only, and build it from its code"
        ) from error
    return buffer.getvalue()
