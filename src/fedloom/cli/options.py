"""Options that several commands share, and the settings they make together.

Settings come from a preset, a file over it, flags over that, and --set last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedloom.engines.registry import CHOICES

if TYPE_CHECKING:
    from fedloom.settings.paper_table import Scale
    from fedloom.trackers.tracker import Tracker


def _option(*names: str, help: str) -> Any:
    return typer.Option(*names, help=help, show_default=False)


ConfigFile = Annotated[Path | None, _option("--config", help="Settings in a TOML file.")]
ScaleName = Annotated[
    str | None,
    _option(
        "--scale", help="Of a paper's table: small (minutes; default) or paper (its own settings)."
    ),
]
PresetName = Annotated[
    str | None, _option("--preset", help="Named settings; see: fedloom presets.")
]
RowName = Annotated[str | None, _option("--row", help="A row of a preset that is a table.")]
ColumnName = Annotated[str | None, _option("--column", help="Its column; default: the first.")]
MethodName = Annotated[
    str | None,
    _option("--method", help="fedavg, 'fedprox(mu=0.1)+fedavgm', or file.py:function."),
]
ServerName = Annotated[
    str | None, _option("--server", help="A server optimiser to add, such as fedadam.")
]
DataName = Annotated[str | None, _option("--data", help="A data set; see: fedloom data list.")]
ClientCount = Annotated[int | None, _option("--clients", help="Number of clients.")]
Partition = Annotated[
    str | None,
    _option("--partition", help="Split among clients, such as 'dirichlet(alpha=0.1)' or iid."),
]
ModelName = Annotated[
    str | None, _option("--model", help="A model, 'resnet8(norm=group)', or file.py:function.")
]
Rounds = Annotated[int | None, _option("--rounds", help="Rounds of training.")]
PerRound = Annotated[int | None, _option("--per-round", help="Clients per round.")]
Optimiser = Annotated[
    str | None, _option("--optimiser", help="Of local training: sgd, adam or adamw.")
]
LearningRate = Annotated[float | None, _option("--lr", help="Learning rate of local training.")]
BatchSize = Annotated[int | None, _option("--batch", help="Samples per batch.")]
Epochs = Annotated[int | None, _option("--epochs", help="Local epochs per round.")]
Seed = Annotated[
    int | None, _option("--seed", help="Seed; all randomness of a run derives from it.")
]
Engine = Annotated[
    str | None,
    _option("--engine", help=f"How clients are simulated: {', '.join(CHOICES)}."),
]
Workers = Annotated[
    int | None,
    _option(
        "--workers", help="Worker processes of the pool or of Ray; 0: one per core, or per GPU."
    ),
]
Device = Annotated[str | None, _option("--device", help="auto, cpu, cuda or mps.")]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Stop at the first client that fails or sends an invalid reply."),
]
Set = Annotated[
    list[str] | None,
    _option("--set", help="Any setting, for example --set train.momentum=0.9 (repeatable)."),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="NAME[=WHERE]",
        help="Also write the run to tensorboard, mlflow or wandb, as NAME or NAME=WHERE "
        "(repeatable).",
        show_default=False,
    ),
]
TrackClients = Annotated[
    bool, typer.Option("--track-clients", help="With --track: a score for each client at the end.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, for programs.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also say which engine was chosen, and why.")
]
Trust = Annotated[
    bool,
    typer.Option("--trust", help="Run the code that a settings file or a run folder names."),
]
RunFolders = Annotated[
    list[Path],
    typer.Argument(metavar="RUN...", help="Run folders, finished or not, or folders of such runs."),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]

SCALES: tuple[Scale, Scale] = ("small", "paper")
SETTINGS_FLAGS = (
    "method",
    "data",
    "clients",
    "partition",
    "model",
    "rounds",
    "per_round",
    "optimiser",
    "lr",
    "batch",
    "epochs",
    "seed",
    "engine",
    "workers",
    "device",
)


def gather(
    config: Path | None, preset: str | None, flags: Mapping[str, Any], sets: list[str] | None
) -> dict[str, Any]:
    """The settings of a command, not yet checked: preset, file, flags, --set, in this order."""
    return lay_over(_preset_settings(preset, flags) if preset else {}, config, flags, sets)


def gather_named(
    name: str | None, flags: Mapping[str, Any], sets: list[str] | None
) -> dict[str, Any]:
    """As `gather`, from one argument that is a TOML file or a preset."""
    from fedloom.settings.presets import names

    if name is None or name in names():
        return gather(None, name, flags, sets)
    is_file = name.endswith(".toml") or Path(name).exists()
    return gather(Path(name), None, flags, sets) if is_file else gather(None, name, flags, sets)


def lay_over(
    raw: dict[str, Any],
    config: Path | None,
    flags: Mapping[str, Any],
    sets: list[str] | None,
) -> dict[str, Any]:
    """Settings with a file, flags and --set over them.

    User code may run if it is named on the command line; code named in a file needs --trust.
    """
    from fedloom.core.spec import parse
    from fedloom.core.user_code import allow
    from fedloom.settings.config import DEFAULTS
    from fedloom.settings.overrides import (
        SHORT_NAMES,
        assignment,
        merged,
        method_table,
        normalised,
        overlay,
        read,
        references,
    )

    raw = normalised(raw, DEFAULTS)
    if config is not None:
        from_file = normalised(read(config), DEFAULTS)
        judge(references(from_file, DEFAULTS), config, bool(flags.get("trust")))
        raw = merged(raw, from_file)
    given = [(name, flags.get(name)) for name in SETTINGS_FLAGS]
    changes = [(SHORT_NAMES.get(name, name), value) for name, value in given if value is not None]
    if flags.get("strict"):
        changes.append(("guard.strict", True))
    changes += [assignment(text) for text in sets or ()]
    allow(references(overlay({}, changes, DEFAULTS), DEFAULTS))
    raw = overlay(raw, changes, DEFAULTS)
    if flags.get("server"):
        allow_typed(flags["server"])
        method, server = raw.get("method", DEFAULTS["method"]), method_table(parse(flags["server"]))
        raw["method"] = {**method, **server, "name": f"{method['name']}+{server['name']}"}
    return raw


def judge(references: Iterable[str], source: Path, trust: bool) -> None:
    """Allow the code that a file or a folder names if it is trusted; else remember its source."""
    from fedloom.core.user_code import allow, note_origin

    names = list(references)
    if trust:
        allow(names)
    note_origin(names, str(source))


def allow_typed(*texts: str | None) -> None:
    """Allow the code that methods or models on the command line name."""
    from fedloom.core.spec import parse
    from fedloom.core.user_code import allow

    allow(spec.name for text in texts if text for spec in parse(text))


def trust_runs(trust: bool, *folders: Path | None) -> None:
    """With --trust, allow the code that these run folders name."""
    from fedloom.experiment.stored_run import run_config

    for folder in folders:
        if trust and folder is not None:
            judge(run_config(folder).references, folder, trust)


def trackers(track: list[str] | None, clients: bool) -> list[Tracker]:
    """The trackers that --track names; an error if one of them cannot be used."""
    from fedloom.trackers.registry import build_all

    return build_all(track or [], clients)


def _preset_settings(name: str, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a preset; of a table, those of one row and column, the first column by default."""
    from fedloom.core.errors import UserError
    from fedloom.settings.presets import preset

    found, row, column = preset(name), flags.get("row"), flags.get("column")
    if found.table is None:
        if row or column:
            raise UserError(
                f"preset '{name}' is a single run without rows and columns; "
                "leave out --row and --column"
            )
        return found.settings
    if row is None and len(found.table.rows) == 1:
        row = found.table.rows[0].name
    if row is None:
        rows = ", ".join(r.name for r in found.table.rows)
        raise UserError(
            f"preset '{name}' is a table; run all of it with: fedloom reproduce {name}, "
            f"or one cell with: fedloom run --preset {name} --row NAME (rows: {rows})"
        )
    scale = scale_of(flags)
    chosen = found.table.at(scale, [row], [column] if column else [])
    return chosen.run_settings(chosen.rows[0], chosen.columns[0], scale)


def scale_of(flags: Mapping[str, Any]) -> Scale:
    """--scale, small by default."""
    from fedloom.core.errors import unknown_name

    scale = flags.get("scale") or "small"
    if scale not in SCALES:
        raise unknown_name("scale", scale, SCALES)
    return scale
