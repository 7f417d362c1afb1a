"""`Run`: what an experiment has done, in memory or in its folder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedloom.api.inputs import Inputs
from fedloom.api.samples import as_model_takes_them, outputs_of
from fedloom.core import user_code
from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.params import Params
from fedloom.core.warn import warn_user
from fedloom.experiment.build import resolve_auto, server_device
from fedloom.experiment.callbacks import Callback
from fedloom.experiment.execute import execute
from fedloom.experiment.identity import check_same_data
from fedloom.experiment.prepare import PreparedRun, prepare
from fedloom.experiment.reopen import ReopenedRun, reopened
from fedloom.experiment.stored_run import StoredRun
from fedloom.experiment.train import TrainedRun
from fedloom.metrics.evaluate import metric_values, score_clients, task_score
from fedloom.metrics.history import History
from fedloom.metrics.records import RunResult
from fedloom.metrics.score import SCORES
from fedloom.runs.tensor_bytes import pack
from fedloom.settings.config import Config


def _is_integer(name: str) -> bool:
    """Whether a class name is an integer as it is usually written: 7 and -1, but not 07."""
    return bool(re.fullmatch("0|-?[1-9][0-9]{0,17}", name))


@dataclass(frozen=True)
class ClientModel:
    """The model that one client ends with, and its scores on the test data.

    model: the client's own where the method personalises, else the global one. accuracy: on all
    test data, or what is the score of another task. label_weighted_accuracy, mean_class_recall: on
    the classes the client has; None in other tasks. samples, counts: training samples of the
    client, in all and by class. metrics: on all test data, by name.
    """

    number: int
    model: nn.Module
    accuracy: float
    label_weighted_accuracy: float | None
    mean_class_recall: float | None
    samples: int
    counts: tuple[int, ...]
    metrics: Mapping[str, float | None] = field(default_factory=dict)


class Run:
    """A run, finished or not: its history and result, its models, and a way to continue it.

    Made by `Experiment.run` and `fedloom.open`.
    """

    def __init__(
        self, inputs: Inputs, stored: StoredRun, trained: TrainedRun | None = None
    ) -> None:
        self._inputs, self._stored, self._trained = inputs, stored, trained

    @classmethod
    def finished(cls, inputs: Inputs, trained: TrainedRun, path: Path | None) -> Run:
        """The run that training has just completed; in memory if there is no path."""
        # the settings as a folder stores them, so that runs in memory and in folders compare equal
        config = resolve_auto(inputs.config)
        result = trained.result
        stored = StoredRun(config, trained.history, result, path, result.identity, inputs.dataset)
        return cls(inputs, stored, trained if path is None else None)

    def __repr__(self) -> str:
        done = f"{len(self.history)} of {self.config.rounds} rounds"
        name = SCORES[self.config.task].name
        score = f", {name} {self.accuracy:.4f}" if self.history.accuracy else ""
        return f"<Run {self.config.title}, {done}{score}, in {self.folder or 'memory'}>"

    @property
    def config(self) -> Config:
        """The complete settings."""
        return self._stored.config

    @property
    def folder(self) -> Path | None:
        """Where the run is saved; None if it is only in memory."""
        return self._stored.path

    @property
    def stored(self) -> StoredRun:
        """The records of the run, as reports read them."""
        return self._stored

    @property
    def history(self) -> History:
        """A RoundRecord per round; `.to_pandas()` makes a table of them."""
        return self._stored.history

    @property
    def result(self) -> RunResult | None:
        """The summary; None while the run is not finished."""
        return self._stored.result

    @property
    def accuracy(self) -> float:
        """Of the global model in the last evaluation, between 0 and 1."""
        curve = self.history.accuracy
        if not curve:
            raise UserError(f"{self!r} has not been evaluated yet; call resume() to train it")
        return curve[max(curve)]

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the model's outputs."""
        return self._prepared.dataset.classes

    @cached_property
    def model(self) -> nn.Module:
        """The global model with its final weights, in evaluation mode.

        It takes what it was trained on: samples as passed from Python for float arrays, normalised
        images and encoded rows of tables otherwise. `predict` takes raw samples of any kind.
        """
        with self._reopened() as run:
            return self._module(run.model(run.state.params))

    def client(self, number: int) -> ClientModel:
        """The model that a client ends with, and its scores."""
        with self._reopened() as run:
            weights = run.client_weights(number)
            return self._client_model(run, int(number), weights)

    def predict(self, x: Any, client: int | None = None) -> np.ndarray:
        """What is predicted for each raw sample, by the global model or by a client's.

        x: samples in the form of the training data, an array or tensor with the samples along the
        first axis. Rows of a table have the columns of its file or DataFrame as they stand there,
        without the target and the client: a DataFrame with these names, or rows of values in this
        order, where None is a missing value. Returns class names, or integers if all class names
        are integers; for multilabel the probability of each label, for regression numbers, for
        next-token token numbers.
        """
        model = self.model if client is None else self.client(client).model
        task = self._prepared.simulation.federation.task
        with torch.inference_mode():
            outputs = outputs_of(model, self.normalise(x), self._prepared.dataset)
            values: np.ndarray = task.predictions(outputs).cpu().numpy()
        if not task.has_classes:
            return values.reshape(len(values)) if len(self.classes) == 1 else values
        predicted: np.ndarray = outputs.argmax(-1).cpu().numpy()
        if task.name == "next-token":
            return predicted
        names = np.array(self.classes)
        if all(map(_is_integer, self.classes)):
            names = names.astype(np.int64)
        labels: np.ndarray = names[predicted]
        return labels

    def normalise(self, x: Any) -> Tensor:
        """Raw samples as the model takes them, on its device."""
        return as_model_takes_them(x, self._prepared)

    def plot(self, path: str | Path | None = None) -> Any:
        """Accuracy by round as a matplotlib Figure, which a notebook shows; with a path, saved."""
        from fedloom.api.compare import compare

        return compare(self).plot(path)

    def report(self, path: str | Path) -> Path:
        """Write the report page of this run, one HTML file, and return its path.

        `fedloom.compare(...).report(path)` writes the page of several runs.
        """
        from fedloom.api.compare import compare

        return compare(self).report(path)

    def save(self, path: str | Path) -> Path:
        """Write the weights of `model` to a safetensors file, by their names in it.

        Returns the path of the file.
        """
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(pack(self.model.state_dict()))
        return target

    def resume(self, callbacks: Sequence[Callback] = (), engine: str | None = None) -> Run:
        """Train the rounds that are left and return the finished run; a finished run is returned.

        engine: where to run clients from now on, instead of where the run began.
        """
        if self.result is not None:
            return self
        path = self.folder
        assert path is not None  # a run in memory is always finished
        trained = execute(
            self.config,
            path,
            dataset=self._inputs.dataset,
            values=self._inputs.values,
            elsewhere=None if engine is None else {"engine": engine},
            callbacks=callbacks,
            warn=warn_user,
        )
        return Run.finished(self._inputs, trained, path)

    @cached_property
    def _prepared(self) -> PreparedRun:
        # weights in memory are where the server's process has them
        device = self.config.device if self._trained is None else str(server_device(self.config))
        config = self.config.model_copy(update={"engine": "inprocess", "device": device})
        prepared = prepare(config, self._inputs.dataset, values=self._inputs.values)
        check_same_data(self._stored.name, self._stored.identity, prepared.identity.data)
        return prepared

    @contextmanager
    def _reopened(self) -> Iterator[ReopenedRun]:
        """The run at its last checkpoint, prepared in this process."""
        if self._trained is not None:
            yield ReopenedRun(self._prepared, self._trained.state, self._trained.store)
            return
        assert self.folder is not None
        with reopened(self.folder, warn_user, self._inputs.dataset, self._inputs.values) as run:
            yield run

    def _module(self, chain: Chain) -> nn.Module:
        """The user's own module, where the chain is nothing but a wrapper around it."""
        wrapped = user_code.is_reference(self.config.model.name) and chain.names == ("model",)
        return chain.block("model") if wrapped else chain

    def _client_model(self, run: ReopenedRun, number: int, weights: Params) -> ClientModel:
        counts = run.prepared.counts[number : number + 1]
        found = run.evaluation(weights)
        weighted = recall = None
        if self.config.task == "classification":
            correct = found.counts
            weighted, recall = map(float, score_clients(correct.recall, correct.seen, counts))
        return ClientModel(
            number,
            self._module(run.model(weights)),
            task_score(self.config.task, found),
            weighted,
            recall,
            len(run.prepared.clients[number]),
            tuple(int(n) for n in counts[0]),
            metric_values(run.prepared.metrics, found),
        )
