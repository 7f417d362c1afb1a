"""`fedloom methods`, `fedloom models`, `fedloom presets`: what there is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedloom.cli import options as o
from fedloom.cli.output import facts, out, print_json, table, user_errors

if TYPE_CHECKING:
    from fedloom.settings.paper_table import Table
    from fedloom.settings.presets import Preset


@user_errors
def methods(
    name: Annotated[
        str | None, typer.Argument(help="A method to read about.", show_default=False)
    ] = None,
    json_: o.Json = False,
) -> None:
    """List the methods, or read about one. Example: fedloom methods fedprox"""
    from fedloom.methods import registry

    chosen = [registry.entry(name)] if name else [registry.entry(n) for n in registry.names()]
    if json_:
        print_json([e.describe() for e in chosen])
    elif name:
        out.print(chosen[0].text.strip(), markup=False, highlight=False)
        out.print(_parameters(chosen[0].describe()["parameters"]))
    else:
        rows = [[e.name, e.summary, e.paper] for e in chosen]
        out.print(table(["method", "what it does", "paper"], rows))
        out.print(
            "\njoin them with +: fedloom run --method 'fedprox(mu=0.1)+fedavgm'; read about one: fedloom methods fedprox",
            highlight=False,
        )


def _parameters(described: list[dict[str, Any]]) -> Any:
    rows = [
        [p["name"], p["type"], str(p.get("default", "required")), p["meaning"]] for p in described
    ]
    return table(["parameter", "type", "default", "meaning"], rows)


@user_errors
def models(
    name: Annotated[
        str | None, typer.Argument(help="A model to look into, block by block.", show_default=False)
    ] = None,
    data: o.DataName = None,
    json_: o.Json = False,
) -> None:
    """List the models with blocks, parameters and multiply-accumulates of one forward pass. Example: fedloom models resnet56"""
    from fedloom.inspect.catalogue import describe_model, describe_models

    described = [describe_model(name, data)] if name else describe_models(data)
    if json_:
        print_json(described)
    elif name:
        rows = [
            [b["name"], " x ".join(map(str, b["output"])), f"{b['parameters']:,}", f"{b['macs']:,}"]
            for b in described[0]["blocks"]
        ]
        total = ["", "all", f"{described[0]['parameters']:,}", f"{described[0]['macs']:,}"]
        out.print(
            table(
                ["block", "output", "parameters", "MACs"],
                [*rows, total],
                title=_headline(described[0]),
                right=(2, 3),
            )
        )
        out.print(_parameters(described[0]["arguments"]))
    else:
        rows = [
            [m["name"], m["input"], str(len(m["blocks"])), f"{m['parameters']:,}", f"{m['macs']:,}"]
            for m in described
        ]
        out.print(table(["model", "input", "blocks", "parameters", "MACs"], rows, right=(2, 3, 4)))


def _headline(model: dict[str, Any]) -> str:
    return f"{model['name']} on {model['input']}"


@user_errors
def presets(
    name: Annotated[
        str | None, typer.Argument(help="A preset to look into.", show_default=False)
    ] = None,
    json_: o.Json = False,
) -> None:
    """List the presets, or the rows and the printed numbers of a paper's table. Example: fedloom presets fedalign/table1"""
    from fedloom.settings import presets as room

    found = [room.preset(name)] if name else [room.preset(n) for n in room.names()]
    if json_:
        print_json([p.describe() for p in found])
    elif name is None:
        out.print(table(["preset", "about"], [[p.name, p.about] for p in found]))
    elif (prepared := found[0].table) is None:
        out.print(_as_toml(found[0]), markup=False, highlight=False)
    else:
        _show_table(prepared)


def _as_toml(preset: Preset) -> str:
    from fedloom.settings import toml

    return f"{preset.about}\n\n{toml.dumps(preset.settings)}"


def _show_table(prepared: Table) -> None:
    """Words, then the table as the paper prints it, then what its rows are in ours."""
    said = {
        "shows": prepared.about.shows,
        "paper": prepared.about.settings,
        "departures": prepared.about.departures,
        "small": prepared.about.reduced,
    }
    out.print(f"{prepared.name}: {prepared.about.title}", style="bold", highlight=False)
    out.print(facts({k: v for k, v in said.items() if v}))
    out.print(_as_printed(prepared))
    out.print(
        table(
            ["row", "settings", "note"],
            [[r.name, _inline(r.settings), r.note] for r in prepared.rows],
        )
    )


def _as_printed(prepared: Table) -> Any:
    """The paper's numbers, the longer side downwards, where a terminal has room."""
    columns = [c.name for c in prepared.columns]
    lines = [
        ["as printed", *columns],
        *([r.name, *(str(r.printed.get(c, "-")) for c in columns)] for r in prepared.rows),
    ]
    head, *body = zip(*lines, strict=True) if len(columns) > len(prepared.rows) else lines
    return table(head, body)


def _inline(settings: Mapping[str, Any], path: str = "") -> str:
    """Nested settings in a line, as --set takes them."""
    return ", ".join(
        _inline(value, f"{path}{name}.") if isinstance(value, Mapping) else f"{path}{name}={value}"
        for name, value in settings.items()
    )
