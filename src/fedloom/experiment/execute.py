"""A run from settings to result: every way to start or resume one goes through `execute`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedloom.core.errors import UserError
from fedloom.data.dataset import Dataset
from fedloom.experiment.build import NO_VALUES, Values, resolve_auto, server_device
from fedloom.experiment.callbacks import Callback, Message, check_callbacks, ignore
from fedloom.experiment.identity import check_same_data, stored_identity
from fedloom.experiment.open_engine import resume_config
from fedloom.experiment.prepare import prepare
from fedloom.experiment.reuse import check_same_rounds, copy_rounds
from fedloom.experiment.run_data import RemoteFederation
from fedloom.experiment.stored_run import run_config
from fedloom.experiment.train import TrainedRun, train
from fedloom.runs.folder import RunFolder
from fedloom.runs.folder_layout import CONFIG
from fedloom.settings.config import Config, load
from fedloom.settings.difference import first_difference

if TYPE_CHECKING:
    from fedloom.engines.forkserver import ForkServer


def execute(
    config: Config,
    path: Path | None = None,
    *,
    dataset: Dataset | None = None,
    values: Values = NO_VALUES,
    rounds_of: Path | None = None,
    elsewhere: Mapping[str, Any] | None = None,
    fork_server: ForkServer | None = None,
    callbacks: Sequence[Callback] = (),
    stop: Callable[[], bool] = bool,
    warn: Message = ignore,
    inform: Message = ignore,
    remote: RemoteFederation | None = None,
) -> TrainedRun:
    """Train to the last round; in memory if there is no path.

    A folder that holds this run is resumed from its last checkpoint; one that holds another run is
    an error. dataset, values: what was passed as Python objects. rounds_of: a finished run with the
    same rounds, which are copied. elsewhere: engine or workers to use instead of those in the
    settings, which exact engines allow without changing the result. remote: clients at sites, on an
    engine that is open. The rest is for `train`.
    """
    check_callbacks(callbacks)
    config = resolve_auto(config)
    resuming = path is not None and (path / CONFIG).exists()
    if rounds_of is not None:
        check_same_rounds(config, rounds_of)
    if path is not None and resuming:
        check_same_settings(path, config)
    running = config
    if path is not None and remote is None:
        running = resume_config(config, path)
    if elsewhere:
        running = load({**running.model_dump(mode="json"), **elsewhere})
    with prepare(running, dataset, None, fork_server, values, remote) as prepared:
        for other in filter(None, (path if resuming else None, rounds_of)):
            check_same_data(str(other), stored_identity(other), prepared.identity.data)
        if path is None:
            return train(prepared, None, callbacks, stop, warn, inform)
        with _open(path, config, running, resuming) as folder:
            if rounds_of is not None:
                copy_rounds(folder, rounds_of)
            return train(prepared, folder, callbacks, stop, warn, inform)


def check_same_settings(path: Path, config: Config) -> None:
    """Raise if a folder holds a run with other settings, or if they were edited since it began."""
    difference = first_difference(resolve_auto(run_config(path)), config)
    if difference is not None:
        raise UserError(
            f"'{path}' holds a run with other settings: {difference}; "
            "choose another folder, or delete it"
        )


def _open(path: Path, config: Config, running: Config, resuming: bool) -> RunFolder:
    device = server_device(running)
    return (
        RunFolder.open(path, device) if resuming else RunFolder.create(path, config.text(), device)
    )
