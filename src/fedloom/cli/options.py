"""The flags that several commands share, and the settings they make together: preset, file, flags, --set, in this order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fedloom.settings.paper_table import Scale

ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="Settings in TOML.", show_default=False)
]
ScaleName = Annotated[
    str | None,
    typer.Option(
        "--scale",
        help="Of a table: small (minutes; default) or paper (its own settings).",
        show_default=False,
    ),
]
PresetName = Annotated[
    str | None,
    typer.Option("--preset", help="Named settings; see: fedloom presets.", show_default=False),
]
RowName = Annotated[
    str | None, typer.Option("--row", help="A row of a preset that is a table.", show_default=False)
]
ColumnName = Annotated[
    str | None, typer.Option("--column", help="Its column; default: the first.", show_default=False)
]
MethodName = Annotated[
    str | None,
    typer.Option(
        "--method",
        help="fedavg, 'fedprox(mu=0.1)+fedavgm', or file.py:function.",
        show_default=False,
    ),
]
ServerName = Annotated[
    str | None,
    typer.Option("--server", help="A server optimiser to join, e.g. fedadam.", show_default=False),
]
DataName = Annotated[
    str | None,
    typer.Option("--data", help="A data set; see: fedloom data list.", show_default=False),
]
ClientCount = Annotated[
    int | None, typer.Option("--clients", help="Number of clients.", show_default=False)
]
Partition = Annotated[
    str | None,
    typer.Option("--partition", help="E.g. 'dirichlet(alpha=0.1)' or iid.", show_default=False),
]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model", help="A model, 'resnet8(norm=group)', or file.py:function.", show_default=False
    ),
]
Rounds = Annotated[
    int | None, typer.Option("--rounds", help="Rounds of training.", show_default=False)
]
PerRound = Annotated[
    int | None, typer.Option("--per-round", help="Clients a round.", show_default=False)
]
Seed = Annotated[
    int | None, typer.Option("--seed", help="The one seed of the run.", show_default=False)
]
Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="Where clients are played: auto, inprocess, pool, vectorised or ray.",
        show_default=False,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        help="Processes of the pool or of Ray; 0: as many as cores.",
        show_default=False,
    ),
]
Device = Annotated[
    str | None, typer.Option("--device", help="auto, cpu, cuda or mps.", show_default=False)
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Any setting, e.g. --set train.lr=0.1 (repeatable).", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, for programs.")]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show where an error came from, traceback included.")
]

SCALES: tuple[Scale, Scale] = ("small", "paper")
FLAGS = {
    "method": "method",
    "data": "data.name",
    "clients": "data.clients",
    "partition": "data.partition",
    "model": "model",
    "rounds": "rounds",
    "per_round": "sample.per_round",
    "seed": "seed",
    "engine": "engine",
    "workers": "workers",
    "device": "device",
}


def gather(
    config: Path | None, preset: str | None, flags: Mapping[str, Any], sets: list[str] | None
) -> dict[str, Any]:
    """Raw settings of a command: a preset, a file over it, flags over that, and --set last."""
    return over(_settings(preset, flags) if preset else {}, config, flags, sets)


def over(
    raw: dict[str, Any], config: Path | None, flags: Mapping[str, Any], sets: list[str] | None
) -> dict[str, Any]:
    """Settings with a file, flags and --set over them."""
    from fedloom.core.spec import parse
    from fedloom.settings.config import DEFAULTS
    from fedloom.settings.overrides import (
        assignment,
        merged,
        method_table,
        normalised,
        overlay,
        read,
    )

    raw = normalised(raw, DEFAULTS)
    if config is not None:
        raw = merged(raw, normalised(read(config), DEFAULTS))
    given = [
        (FLAGS[name], value) for name, value in flags.items() if name in FLAGS and value is not None
    ]
    raw = overlay(raw, [*given, *(assignment(text) for text in sets or ())], DEFAULTS)
    if flags.get("server"):
        method, more = raw.get("method", DEFAULTS["method"]), method_table(parse(flags["server"]))
        raw["method"] = {**method, **more, "name": f"{method['name']}+{more['name']}"}
    return raw


def _settings(preset: str, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a preset; of a table those of the run in one row and column, the first column unless it is named."""
    from fedloom.core.errors import UserError
    from fedloom.settings.presets import preset as named

    found, row, column = named(preset), flags.get("row"), flags.get("column")
    if found.table is None:
        if row or column:
            raise UserError(
                f"preset '{preset}' is a single run without rows and columns; leave --row and --column out"
            )
        return found.settings
    if row is None and len(found.table.rows) == 1:
        row = found.table.rows[0].name
    if row is None:
        rows = ", ".join(r.name for r in found.table.rows)
        raise UserError(
            f"preset '{preset}' is a table; make all of it with: fedloom compare --preset {preset}, "
            f"or one run with: fedloom run --preset {preset} --row NAME (rows: {rows})"
        )
    scale = scale_of(flags)
    chosen = found.table.at(scale, [row], [column] if column else [])
    return chosen.run_settings(chosen.rows[0], chosen.columns[0], scale)


def scale_of(flags: Mapping[str, Any]) -> Scale:
    """--scale, small where it is left out."""
    from fedloom.core.errors import unknown_name

    asked = flags.get("scale") or "small"
    if asked not in SCALES:
        raise unknown_name("scale", asked, SCALES)
    return asked
