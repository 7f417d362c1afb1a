"""`Experiment`: the settings of a run in Python, with methods, models and data as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedloom.api.inputs import Inputs, collect
from fedloom.core.spec import Spec
from fedloom.core.user_code import short_reference
from fedloom.core.warn import warn_user
from fedloom.experiment.execute import execute
from fedloom.experiment.prepare import prepare
from fedloom.settings.config import Config

if TYPE_CHECKING:
    from fedloom.api.run import Run
    from fedloom.experiment.callbacks import Callback


class Experiment:
    """One method on one model and one data set, split among clients, with one seed.

    method      a name such as "fedprox", "fedprox(mu=0.1)+fedavgm", a Method, or a function that
                returns one
    model       a registered name, an nn.Module, a class, a function of (shape, classes), or
                "file.py:function"
    data        a name, (X, y), a torch Dataset, a pandas DataFrame, a HuggingFace Dataset or
                DatasetDict, or a fedloom Dataset
    test        the test split, in the form of `data`; without it a fifth of the samples is held out
    client_ids  for (X, y): the client of each training sample; `partition` is then "user"
    target      for a DataFrame or a HuggingFace Dataset: the column with the labels (of a DataFrame
                also a list of columns); client: the column with the client ids
    kind        for (X, y): "signal", "volume", "image" or "table", where the shape leaves it open,
                or "text" for the token numbers of texts; channels="last" if the channels of signals
                or volumes are their last axis
    task        what is learned: "classification", "multilabel" (y of 0 and 1), "regression" (y of
                numbers) or "next-token"; see docs/tasks.md
    loss        a function of (outputs, targets) that returns their mean, instead of the task's
    metrics     names and functions of (predictions, targets), as a list or by name
    partition   how samples are split among `clients`, for example "dirichlet(alpha=0.1)"
    per_round   clients per round
    optimiser   of local training: "sgd", "adam" or "adamw"
    lr, batch, epochs   of local training; train={...} takes the rest, such as momentum or clip
    settings    everything else by its name: evaluate={"every": 5}, dtype="float64", ...

    >>> exp = Experiment("fedprox(mu=0.1)", "mlp", clients=50, per_round=2, rounds=1, seed=3)
    >>> exp.replace(rounds=2).config.rounds
    2
    """

    def __init__(
        self,
        method: Any = "fedavg",
        model: Any = None,
        data: Any = None,
        *,
        test: Any = None,
        client_ids: Sequence[Any] | None = None,
        target: str | Sequence[str] | None = None,
        client: str | None = None,
        kind: str | None = None,
        channels: str | None = None,
        task: str | None = None,
        loss: Any = None,
        metrics: Any = None,
        partition: str | None = None,
        clients: int | None = None,
        per_round: int | None = None,
        rounds: int | None = None,
        seed: int | None = None,
        optimiser: str | None = None,
        lr: float | None = None,
        batch: int | None = None,
        epochs: int | None = None,
        engine: str | None = None,
        workers: int | None = None,
        device: str | None = None,
        train: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        given = dict(locals())
        for name in ("self", "settings", "__class__"):
            given.pop(name, None)
        given |= settings  # afterwards: a wrong settings={...} is then refused like any other name
        self._given = {name: value for name, value in given.items() if value is not None}
        self._inputs = collect(self._given)

    @property
    def config(self) -> Config:
        """The complete, checked settings."""
        return self._inputs.config

    @property
    def inputs(self) -> Inputs:
        """The settings together with what was given as Python objects."""
        return self._inputs

    @property
    def label(self) -> str:
        """The method with its parameters, as a table names it."""
        return "+".join(
            str(Spec(short_reference(s.name), s.args)) for s in self.config.method_specs
        )

    def __repr__(self) -> str:
        config = self.config
        return f"<Experiment {config.title} on {config.data.name}, seed {config.seed}>"

    def replace(self, **changes: Any) -> Experiment:
        """The same experiment with other settings; None restores a default."""
        return Experiment(**{**self._given, **changes})

    def check(self) -> None:
        """Raise a UserError with everything that would keep this experiment from starting.

        Data are loaded and partitioned and the model is built; nothing is trained.
        """
        inputs = self._inputs
        config = self.config.model_copy(update={"engine": "inprocess"})
        prepare(config, inputs.dataset, values=inputs.values).close()

    def run(self, folder: str | Path | None = None, callbacks: Sequence[Callback] = ()) -> Run:
        """Train to the last round and return the run.

        With a folder the run is saved as it goes. If the folder already holds this experiment,
        training resumes from its last checkpoint, and a finished run is returned as it is.
        Without a folder everything stays in memory.
        """
        return run_inputs(self._inputs, None if folder is None else Path(folder), callbacks)


def run_inputs(inputs: Inputs, path: Path | None, callbacks: Sequence[Callback] = ()) -> Run:
    """Train to the last round with these inputs and return the run."""
    from fedloom.api.run import Run

    trained = execute(
        inputs.config,
        path,
        dataset=inputs.dataset,
        values=inputs.values,
        callbacks=callbacks,
        warn=warn_user,
    )
    return Run.finished(inputs, trained, path)
