"""Opens a run folder from Python: `fedloom.open`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedloom.api.inputs import DATA_OPTIONS, Inputs, collect
from fedloom.api.run import Run
from fedloom.core import user_code
from fedloom.core.errors import UserError
from fedloom.experiment.stored_run import read_run
from fedloom.settings.config import Config

OPTIONS = ("loss", "task", *DATA_OPTIONS)  # what describes objects that are passed again


def open_run(folder: str | Path, *, method: Any = None, model: Any = None, data: Any = None,
             metrics: Any = None, trust: bool = False, **data_options: Any) -> Run:  # fmt: skip
    """The run in a folder, finished or not. Nothing that it names is executed before it is needed.

    trust: whether the code that the run names as file.py:function may be executed, for its models
    and to resume it. It need not be given for code that was passed to an Experiment in this
    session.

    method, model, data, metrics: what the run was given as Python objects that have no importable
    name; they are needed only to resume it or to use its models. data_options: as for Experiment;
    loss too, if it was passed as an object. The task and all other settings are those in the
    folder.
    """
    _check_options(data_options)
    path = Path(folder)
    stored = read_run(path)
    if trust:
        user_code.allow(stored.config.references)
    objects = {"method": method, "model": model, "data": data, "metrics": metrics, **data_options}
    if data is not None:  # their form depends on the task
        objects.setdefault("task", stored.config.task)
    given = collect({name: value for name, value in objects.items() if value is not None})
    _check_same(stored.config, given, objects)
    stored = replace(stored, dataset=given.dataset)
    return Run(replace(given, raw=stored.config.model_dump(mode="json")), stored)


def _check_options(names: Iterable[str]) -> None:
    """Raise for a setting: it would be ignored, as a run keeps the settings of its folder."""
    for name in names:
        if name not in OPTIONS:
            raise UserError(
                f"{name}= cannot be given to fedloom.open: a run goes on with the settings in its "
                f"folder; for other settings begin a new run (choices: {', '.join(OPTIONS)})"
            )


def _check_same(config: Config, given: Inputs, objects: dict[str, Any]) -> None:
    """Raise if an object passed again is not the one that the run was made with."""
    pairs = {
        "method": (config.method["name"], given.config.method["name"]),
        "model": (config.model.name, given.config.model.name),
        "data": (config.data.name, given.config.data.name),
    }
    for name, (then, now) in pairs.items():
        if objects[name] is None or then == now:
            continue
        old, new = user_code.short_reference(then), user_code.short_reference(now)
        this = "another version of it" if old == new else f"'{new}'"
        options = (
            "; pass the same options with them, such as kind or test" if name == "data" else ""
        )
        raise UserError(f"the run was made with {name} '{old}', and this is {this}{options}")
