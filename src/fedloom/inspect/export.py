"""Exports a model of a finished run, the global one or a client's:

    NAME.safetensors   the weights, bit-identical to those that were scored
    NAME.pt2           the model as a torch.export program for any batch size; torch.export.load
                       runs it without fedloom
    NAME.json          a description: what goes in and what comes out, classes and scores

NAME is global or, for example, client-7. No run stores its clients' final models: they are computed
again from the last checkpoint, with the keys of the run, and scored again.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedloom.core.determinism import deterministic, one_thread
from fedloom.core.errors import UserError
from fedloom.core.evaluate import Evaluation
from fedloom.core.job import build_isolated
from fedloom.core.params import Params, sha256
from fedloom.core.regular_files import check_folder
from fedloom.experiment.build import build_federation, resolve_device
from fedloom.experiment.prepare import PreparedRun
from fedloom.experiment.reopen import ReopenedRun, reopened
from fedloom.experiment.stored_run import read_result
from fedloom.inspect.model_interface import (
    describe_input,
    describe_output,
    in_units_of_the_data,
)
from fedloom.inspect.pickled_parts import pickled_parts
from fedloom.metrics.evaluate import metric_values, score_clients, task_score
from fedloom.metrics.records import RunResult
from fedloom.metrics.score import SCORES
from fedloom.runs.durable_files import file_error, write_durably
from fedloom.runs.folder import RunFolder
from fedloom.runs.tensor_bytes import pack

Message = Callable[[str], None]
EXPORTED = 0o666  # files to pass on: who may read them is left to the umask


@dataclass(frozen=True)
class Exported:
    """The files that were written, and the description in the last of them."""

    files: tuple[Path, ...]
    description: dict[str, Any]


def export(
    path: Path, client: int | None, out: Path, warn: Message, program: bool = True
) -> Exported:
    """Write the model of a client, or the global one if client is None, into the folder `out`.

    warn receives notes for the user. program=False leaves out the .pt2 file. A link in place of
    `out` is an error if it lies in the run's own folder, which may be someone else's.
    """
    if out.parent == path:
        _check_real_folder(out)
    with RunFolder.read_only(path) as folder:
        result = read_result(folder)
    if result is None:
        raise UserError(
            f"{path} is not finished, so its models are not final; "
            f"finish it with `fedloom resume {path}`"
        )
    with (
        reopened(path, warn) as run,
        one_thread(),
        deterministic(resolve_device(run.prepared.config.device)),
    ):
        weights = _weights(run, client, warn)
        found = run.evaluation(weights)
        as_in_run = run.evaluation_in_run(weights, client if run.personalised else None) or found
        score = task_score(run.prepared.config.task, as_in_run)
        _compare_score(score, _score_in_run(result, client), result, warn)
        name = "global" if client is None else f"client-{client}"
        description = _describe(run, client, weights, found)
        contents = {f"{name}.safetensors": pack(weights)}
        if program:
            contents[f"{name}.pt2"] = _program(run.prepared, weights)
            _warn_of_pickles(f"{name}.pt2", contents[f"{name}.pt2"], warn)
        contents[f"{name}.json"] = json.dumps(description, indent=1).encode() + b"\n"
    return Exported(tuple(_write_files(out, contents)), description)


def _check_real_folder(out: Path) -> None:
    try:
        check_folder(out)
    except OSError as error:
        raise file_error(out, error, UserError) from error


def _compare_score(now: float, in_run: float | None, result: RunResult, warn: Message) -> None:
    """Warn if the model does not score as it did in the run, on the same test data."""
    if in_run is not None and abs(now - in_run) > 1e-9:
        warn(
            f"note: the model's {result.score_name} is {now:.4f} here and was {in_run:.4f} in the "
            "run, which was made on another machine or with other code"
        )


def _warn_of_pickles(name: str, program: bytes, warn: Message) -> None:
    """Say so if torch has pickled a part of the program, as some versions do with constants."""
    if parts := pickled_parts(program):
        warn(
            f"note: {name} holds pickles, as torch {torch.__version__} writes them "
            f"({', '.join(parts)}), so load it only if you trust it; --weights-only leaves it out"
        )


def _write_files(out: Path, contents: dict[str, bytes]) -> list[Path]:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise file_error(out, error, UserError) from error
    for name, content in contents.items():
        write_durably(out / name, content, EXPORTED)
    return [out / name for name in contents]


def _weights(run: ReopenedRun, client: int | None, warn: Message) -> Params:
    """The global weights, or those with which the client was scored."""
    title = run.prepared.config.title
    if client is None:
        if run.personalised:
            warn(
                f"note: '{title}' gives every client its own model, and this is the global one; "
                "choose a client with --client"
            )
        return run.state.params
    weights = run.client_weights(client)
    if not run.personalised:
        warn(f"note: '{title}' does not personalise, so client {client} has the global model")
    return weights


def _score_in_run(result: RunResult, client: int | None) -> float | None:
    """The score that the run recorded; None if it was not measured."""
    if client is None or not result.personalised:
        return result.accuracy
    scores = result.personal_models
    if scores is None or client in scores.unscored:
        return None
    if result.task is not None:
        return scores.by_client[SCORES[result.task].metric][client]
    return sum(scores.correct[client]) / sum(scores.tested(client))


def _describe(
    run: ReopenedRun, client: int | None, weights: Params, found: Evaluation
) -> dict[str, Any]:
    """The content of NAME.json; a client's model is also scored on the client's own classes."""
    prepared, config = run.prepared, run.prepared.config
    description = {
        "method": config.title,
        "client": client,
        "rounds": run.state.round,
        "model": {"name": config.model.name, **config.model.args},
        "data": config.data.name,
        "input": describe_input(prepared),
        "output": describe_output(prepared),
        "classes": list(prepared.dataset.classes),
        "weights_sha256": sha256(weights),
        "accuracy": task_score(config.task, found),
        **_describe_metrics(prepared, found),
        **_describe_identity(prepared),
    }
    if client is None:
        return description
    description["training_samples"] = len(prepared.clients[client])
    if config.task != "classification":
        return description
    counts, class_counts = found.counts, prepared.counts[client : client + 1]
    weighted_accuracy, recall = score_clients(counts.recall, counts.seen, class_counts)
    return {
        **description,
        "label_weighted_accuracy": float(weighted_accuracy),
        "mean_class_recall": float(recall),
    }


def _describe_metrics(prepared: PreparedRun, found: Evaluation) -> dict[str, Any]:
    """Task and metrics, where there is more to say than the accuracy of a classifier."""
    task, metrics = prepared.config.task, metric_values(prepared.metrics, found)
    named = {} if task == "classification" else {"task": task, "score": SCORES[task].name}
    return {**named, **({"metrics": metrics} if metrics else {})}


def _describe_identity(prepared: PreparedRun) -> dict[str, Any]:
    """The checksum of the data that scored the model, and what computed it."""
    data = prepared.identity.data
    return {
        "data_sha256": None if data is None else data.content.sha256,
        "made_with": prepared.identity.to_json()["made_with"],
    }


def _program(prepared: PreparedRun, weights: Params) -> bytes:
    """The model as a program, without the memory layout and the compilation of the run."""
    plain = prepared.config.model_copy(update={"layout": "contiguous", "compile": False})
    federation = build_federation(plain, prepared.dataset, prepared.clients)
    chain = build_isolated(federation.build)
    chain.load_state_dict(weights)
    chain.eval()
    x, _ = prepared.simulation.federation.test[0]
    pair = torch.cat([x[:1], x[:1]])  # of one sample, torch would take the batch size for fixed
    model = in_units_of_the_data(chain, prepared)
    return _traced(model, pair, prepared.config.model.name)


def _traced(model: nn.Module, x: Tensor, name: str) -> bytes:
    """The model as torch.export saves it, for any batch size. x: samples to trace it with."""
    buffer = io.BytesIO()
    try:
        with torch.no_grad():
            traced = torch.export.export(
                model, (x.contiguous(),), dynamic_shapes=({0: torch.export.Dim("batch")},)
            )
        # Otherwise the file would hold the samples, pickled, and with them their whole batch.
        traced.example_inputs = None
        torch.export.save(traced, buffer)
    except Exception as error:  # tracing runs the user's forward, which can fail in any way
        message = str(error).strip()
        reason = message.splitlines()[0] if message else type(error).__name__
        raise UserError(
            f"model '{name}' cannot be exported as a program ({reason}); "
            "add --weights-only, and build the model from its code"
        ) from error
    return buffer.getvalue()
