"""The Flower app of a deployment: one pyproject.toml that `flwr run` accepts, and no code.

Its entry points are modules of the installed fedloom, so nothing but settings travels to the
sites. `dependencies` is empty, and the SuperLink is started without installation at run time: an
environment that Flower builds for a run would shadow the installed package.

Flower's settings are strings, numbers and booleans in nested tables, and `flwr run -c` refuses a
name that is not there. So all settings of the run are written out; a list becomes text in TOML,
such as "[0.5, 0.5]".
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from fedloom import __version__
from fedloom.core.errors import UserError, shown_text
from fedloom.settings import toml
from fedloom.settings.config import Config, load

SERVER_APP = "fedloom.deploy.server_app:app"
CLIENT_APP = "fedloom.deploy.client_app:app"
RUN = "run"  # the name of the run folder, which is also the identity of the run
SUBMISSION = "submission"  # tells one attempt at a run from another
OWN_KEYS = (RUN, SUBMISSION)


def pyproject(name: str, config: Config) -> str:
    """The app's pyproject.toml."""
    components = {"serverapp": SERVER_APP, "clientapp": CLIENT_APP}
    settings = {RUN: name, SUBMISSION: "", **_scalars(config.model_dump(mode="json"))}
    project = {
        "name": "fedloom-deployment",
        "version": _plain_version(__version__),
        "description": f"The deployment '{name}' of fedloom: settings only, no code",
        "license": "Apache-2.0",
        "dependencies": [],
    }
    app = {"publisher": "fedloom", "components": components, "config": settings}
    header = "# Written by `fedloom deploy init`. It is sent to every site: put no secrets here.\n"
    return header + toml.dumps({"project": project, "tool": {"flwr": {"app": app}}})


def read_settings(run_config: Mapping[str, Any]) -> Config:
    """The settings of a run, from the flat table that Flower hands to an app."""
    nested: dict[str, Any] = {}
    for path, value in run_config.items():
        if path not in OWN_KEYS:
            *tables, last = path.split(".")
            at = nested
            for table in tables:
                at = at.setdefault(table, {})
            at[last] = _list_from_text(path, value)
    return load(nested, "the Flower app's settings")


def check_deployable(config: Config) -> None:
    """Raise for settings that cannot be used across sites."""
    if config.references:
        raise UserError(
            f"the settings name code of your own, '{shown_text(config.references[0])}', which "
            "sites do not have; deploy a method and a model of the package "
            "(see: fedloom methods, fedloom models)"
        )
    if config.task != "classification":
        raise UserError(
            f"sites train classes, and the task is {config.task}; "
            "set task=classification, or simulate the run"
        )


def _scalars(table: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without None, and with lists as text."""
    kept: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            kept[key] = _scalars(value)
        elif isinstance(value, (list, tuple)):
            kept[key] = toml.dumps({"list": value}).removeprefix("list = ").strip()
        elif value is not None:
            kept[key] = value
    return kept


def _list_from_text(path: str, value: Any) -> Any:
    """A value as it was before `_scalars`: no setting but a list begins with a bracket."""
    if not (isinstance(value, str) and value.startswith("[")):
        return value
    try:
        return tomllib.loads(f"list = {value}")["list"]
    except tomllib.TOMLDecodeError:
        raise UserError(f"{path} = '{shown_text(value)}' is not a list in TOML; fix it") from None


def _plain_version(version: str) -> str:
    """Flower wants three numbers.

    >>> _plain_version("0.1.0.dev3")
    '0.1.0'
    """
    return ".".join(version.split(".")[:3])
