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
from fedloom.core.client import Broadcast, ClientTask
from fedloom.core.determinism import deterministic, one_thread
from fedloom.core.errors import UserError
from fedloom.core.evaluate import ClassCounts, count_correct
from fedloom.core.job import build_isolated
from fedloom.core.params import Params, sha256
from fedloom.experiment.build import PreparedRun
from fedloom.experiment.parts import build_federation, resolve_device
from fedloom.inspect.reopen import Reopened, reopened
from fedloom.metrics.evaluate import client_scores
from fedloom.runs.checkpoint import made_with
from fedloom.runs.durable_files import failed, write_durably
from fedloom.runs.folder import RunFolder
from fedloom.runs.tensor_bytes import pack

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Exported:
    """The files, and what stands in the last of them."""

    files: tuple[Path, ...]
    facts: dict[str, Any]


def export(path: Path, client: int | None, out: Path, tell: Tell, program: bool = True) -> Exported:
    """Write the model of a client, or the server's, into a folder. tell hears what the user should know."""
    with RunFolder.read_only(path) as folder:
        result = folder.result()
    if result is None:
        raise UserError(
            f"{path} is not finished, so its models are not final; go on with `fedloom resume {path}`"
        )
    with (
        reopened(path, tell) as run,
        one_thread(),
        deterministic(resolve_device(run.prepared.config.device)),
    ):
        weights = _weights(run, client, tell)
        scored = _tally(run.prepared, weights)
        then = _in_the_run(result, client, run.prepared.simulation.federation.method.personal)
        if then is not None and abs(scored.accuracy - then) > 1e-9:
            tell(
                f"note: it scores {scored.accuracy:.4f} here, and {then:.4f} in the run, which another machine or code has made"
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
        raise failed(out, error, UserError) from error
    for name, content in data.items():
        write_durably(out / name, content)
    return [out / name for name in data]


def _weights(run: Reopened, client: int | None, tell: Tell) -> Params:
    """The server's, or those with which the client was scored."""
    prepared, state, title = run.prepared, run.state, run.prepared.config.title
    method, count = prepared.simulation.federation.method, len(prepared.clients)
    if client is not None and not 0 <= client < count:
        raise UserError(
            f"--client {client} is not one of the {count} clients; take a number from 0 to {count - 1}"
        )
    if client is None:
        if method.personal:
            tell(
                f"note: '{title}' gives every client a model of its own, and this is the server's; name a client with --client"
            )
        return state.params
    if not method.personal:
        tell(
            f"note: '{title}' makes no models for clients, so this is the server's, which client {client} has like all others"
        )
        return state.params
    sent = Broadcast("personalise", state.round, state.params, state.shared)
    ((_, weights),) = prepared.simulation.engine.map(
        sent, [ClientTask(client, run.store.recall(client))]
    )
    return {name: weights[name] for name in state.params}


def _loaded(chain: Chain, weights: Params) -> Chain:
    chain.load_state_dict(weights)
    return chain.eval()


def _tally(prepared: PreparedRun, weights: Params) -> ClassCounts:
    federation = prepared.simulation.federation
    return count_correct(
        _loaded(build_isolated(federation.build), weights), federation.test, federation.classes
    )


def _in_the_run(result: dict[str, Any], client: int | None, personal: bool) -> float | None:
    """The accuracy that the run has found; None where it has not asked."""
    if client is None or not personal:
        return float(result["accuracy"])
    own = result.get("personal")
    return None if own is None else sum(own["hits"][client]) / sum(own["seen"])


def _facts(
    run: Reopened, client: int | None, weights: Params, scored: ClassCounts
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
    weighted, recall = client_scores(
        scored.recall, scored.seen, prepared.counts[client : client + 1]
    )
    return {
        **facts,
        "samples": len(prepared.clients[client]),
        "weighted": float(weighted),
        "recall": float(recall),
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
    chain = _loaded(
        build_isolated(build_federation(bare, prepared.dataset, prepared.clients).build), weights
    )
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
