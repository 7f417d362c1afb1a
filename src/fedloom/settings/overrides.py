"""Settings before they are checked: read from TOML, merged, and overridden by `--set a.b=c`."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedloom.core.errors import UserError, shown_text
from fedloom.core.regular_files import open_regular
from fedloom.core.spec import Spec, literal, parse
from fedloom.core.user_code import VALUE_PREFIX, absolute_reference, is_reference
from fedloom.settings.plain_values import plain

SHORT_NAMES = {  # settings that have a flag, and an argument of Experiment, under a shorter name
    "data": "data.name",
    "clients": "data.clients",
    "partition": "data.partition",
    "per_round": "sample.per_round",
    "optimiser": "train.optimiser",
    "lr": "train.lr",
    "batch": "train.batch",
    "epochs": "train.epochs",
}
MAX_FILE = 1_000_000  # bytes
SPECS = ("method", "model", "sample", "partition")  # settings that are a name with arguments


def read(path: Path, from_run: bool = False) -> dict[str, Any]:
    """The raw settings of a TOML file.

    from_run: the file lies in a run folder, where a link or a pipe is an error.
    """
    file = f"config file '{shown_text(str(path))}'"
    try:
        return plain(tomllib.loads(_text(path, from_run)), file)
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(
            f"{file} does not exist; give the path of a TOML file, or see: fedloom presets"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{file} is not TOML: {shown_text(str(error))}; fix that line") from None
    except RecursionError:
        raise UserError(f"{file} is nested too deeply; no setting needs that") from None
    except (OSError, ValueError) as error:  # also an integer of thousands of digits
        raise UserError(
            f"{file} cannot be read: {shown_text(str(error))}; give a text file in TOML"
        ) from None


def _text(path: Path, from_run: bool) -> str:
    """The text of a file; no more of it is read than settings can need."""
    with os.fdopen(open_regular(path), "rb") if from_run else path.open("rb") as file:
        content = file.read(MAX_FILE + 1)
    if len(content) > MAX_FILE:
        raise ValueError(f"it has more than {MAX_FILE:,} bytes")
    return content.decode()


def overlay(
    raw: Mapping[str, Any], changes: Iterable[tuple[str, Any]], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings with each dotted path set to its value."""
    result = normalised(raw, defaults)
    for path, value in changes:
        at, steps = result, path.split(".")
        for step in steps[:-1]:
            below = at.setdefault(step, {})
            if not isinstance(below, dict):
                raise UserError(
                    f"--set {shown_text(path)}: '{shown_text(step)}' is a value, not a table; "
                    f"set {shown_text(step)}=VALUE instead"
                )
            at = below
        at[steps[-1]] = value
        result = normalised(result, defaults)
    return result


def assignment(text: str, flag: str = "--set", example: str = "train.lr=0.1") -> tuple[str, Any]:
    """The path and the value of `--set a.b=c`."""
    path, equals, value = text.partition("=")
    if not equals or not all(path.strip().split(".")):
        raise UserError(
            f"{flag} '{shown_text(text)}' is not of the form name=value; "
            f"for example {flag} {example}"
        )
    return path.strip(), literal(value.strip())


def normalised(raw: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with short forms written out as tables, so that --set can reach into them.

    A table without a name, such as sample = {per_round = 5}, gets the name of the default.
    """
    result = plain(raw)
    method = result.get("method")
    if isinstance(method, str):
        result["method"] = method_table(parse(method))
    elif isinstance(method, dict):
        result["method"] = {**defaults["method"], **method}
    if isinstance(result.get("loss"), str):
        result["loss"] = absolute_reference(result["loss"])
    if names := _metric_names(result):
        result["evaluate"]["metrics"] = [absolute_reference(name) for name in names]
    _write_out(result, "model", defaults["model"])
    _write_out(result, "sample", defaults["sample"])
    if isinstance(result.get("data"), dict):
        _write_out(result["data"], "partition", defaults["data"]["partition"])
    return plain(result)  # again, since short forms hold values too


def _metric_names(raw: Mapping[str, Any]) -> list[str]:
    """The metrics that settings name, separated by commas or as a list; none if they are wrong."""
    evaluate = raw.get("evaluate")
    given = evaluate.get("metrics") if isinstance(evaluate, Mapping) else None
    names = given.split(",") if isinstance(given, str) else given
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return []
    return [name.strip() for name in names]


def _write_out(table: dict[str, Any], key: str, default: Mapping[str, Any]) -> None:
    """Replace a spec in a table of settings by its long form, with absolute paths of user files."""
    value = table.get(key)
    if isinstance(value, str) and len(specs := parse(value)) == 1:
        table[key] = {"name": specs[0].name, **specs[0].args}
    elif isinstance(value, Mapping) and "name" not in value:
        table[key] = {**default, **value}
    if isinstance(table.get(key), dict) and isinstance(table[key]["name"], str):
        table[key]["name"] = absolute_reference(table[key]["name"])


def method_table(specs: Sequence[Spec]) -> dict[str, Any]:
    """Methods with their parameters as a table."""
    named = [Spec(absolute_reference(spec.name), spec.args) for spec in specs]
    parameters = {spec.name: dict(spec.args) for spec in named if spec.args}
    return {"name": "+".join(spec.name for spec in named), **parameters}


def references(raw: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    """The user-defined functions that settings, complete or not, name."""
    tables = normalised(raw, defaults)
    method, model = (tables.get(key) for key in ("method", "model"))
    texts = [table["name"] for table in (method, model) if isinstance(table, Mapping)]
    names = [spec.name for text in texts if isinstance(text, str) for spec in parse(text)]
    names += [loss] if isinstance(loss := tables.get("loss"), str) else []
    names += _metric_names(tables)
    return [name for name in names if is_reference(name) and not name.startswith(VALUE_PREFIX)]


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Settings over other settings, table by table; a spec with a name replaces the whole spec."""
    result = dict(under)
    for key, value in over.items():
        below = result.get(key)
        tables = isinstance(below, Mapping) and isinstance(value, Mapping)
        replaces = not tables or (key in SPECS and "name" in value)
        result[key] = value if replaces else merged(below or {}, value)
    return result
