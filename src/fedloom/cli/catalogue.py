"""`fedloom methods`, `fedloom models`, `fedloom presets`: what is available.

The lists do not import torch, so that they appear at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedloom.cli import options as o
from fedloom.cli.output import facts, out, print_json, table, user_errors

if TYPE_CHECKING:
    from fedloom.settings.paper_table import Table
    from fedloom.settings.presets import Preset

METHODS_HINT = """
Combine methods with +: fedloom run --method 'fedprox(mu=0.1)+fedavgm'
Read about one: fedloom methods fedprox"""


@user_errors
def methods(
    name: Annotated[
        str | None, typer.Argument(help="A method to describe.", show_default=False)
    ] = None,
    json_: o.Json = False,
) -> None:
    """List the methods, or describe one.

    Example: fedloom methods fedprox
    """
    if name is None and not json_:
        _list_methods()
        return
    from fedloom.methods import registry  # imports torch, for the parameters of the methods

    o.allow_typed(name)
    names = registry.names() if name is None else [name]
    entries = [registry.entry(n) for n in names]
    if json_:
        print_json([entry.describe() for entry in entries])
    else:
        out.print(entries[0].text.strip(), markup=False, highlight=False)
        out.print(_parameter_table(entries[0].describe()["parameters"]))


def _list_methods() -> None:
    from fedloom.methods import listing

    rows = [[info.name, info.summary, info.paper] for info in listing.describe_all()]
    out.print(table(["method", "what it does", "paper"], rows))
    out.print(METHODS_HINT, highlight=False)


def _parameter_table(parameters: list[dict[str, Any]]) -> Any:
    rows = [
        [p["name"], p["type"], str(p.get("default", "required")), p["meaning"]] for p in parameters
    ]
    return table(["parameter", "type", "default", "meaning"], rows)


@user_errors
def models(
    name: Annotated[
        str | None, typer.Argument(help="A model to describe block by block.", show_default=False)
    ] = None,
    data: o.DataName = None,
    json_: o.Json = False,
) -> None:
    """List the models with blocks, parameters and multiply-accumulates (MACs) of a forward pass.

    Example: fedloom models resnet56
    """
    described = _described_models(name) if data is None else _models_on_data(name, data)
    if json_:
        print_json(described)
    elif name is None:
        _list_models(described)
    else:
        _show_model(described[0])


def _described_models(name: str | None) -> list[dict[str, Any]]:
    """One model or all, on the inputs they were designed for."""
    from fedloom.models import table as model_table

    return model_table.describe_all() if name is None else [model_table.describe(name)]


def _models_on_data(name: str | None, data: str) -> list[dict[str, Any]]:
    """One model or all, on the samples of a data set."""
    from fedloom.data import store
    from fedloom.models.describe import describe_model, describe_models

    dataset = store.load(data)
    on = (dataset.shape, len(dataset.classes))
    return describe_models(on) if name is None else [describe_model(name, on)]


def _list_models(described: list[dict[str, Any]]) -> None:
    rows = [
        [m["name"], m["input"], str(len(m["blocks"])), f"{m['parameters']:,}", f"{m['macs']:,}"]
        for m in described
    ]
    out.print(table(["model", "input", "blocks", "parameters", "MACs"], rows, right=(2, 3, 4)))


def _show_model(model: dict[str, Any]) -> None:
    rows = [
        [b["name"], " x ".join(map(str, b["output"])), f"{b['parameters']:,}", f"{b['macs']:,}"]
        for b in model["blocks"]
    ]
    total = ["", "all", f"{model['parameters']:,}", f"{model['macs']:,}"]
    title = f"{model['name']} on {model['input']}"
    columns = ["block", "output", "parameters", "MACs"]
    out.print(table(columns, [*rows, total], title=title, right=(2, 3)))
    out.print(_parameter_table(model["arguments"]))


@user_errors
def presets(
    name: Annotated[
        str | None, typer.Argument(help="A preset to describe.", show_default=False)
    ] = None,
    json_: o.Json = False,
) -> None:
    """List the presets, or show the rows and printed numbers of a paper's table.

    Example: fedloom presets fedalign/table1
    """
    from fedloom.settings import presets as stored

    names = stored.names() if name is None else [name]
    chosen = [stored.preset(n) for n in names]
    if json_:
        print_json([preset.describe() for preset in chosen])
    elif name is None:
        out.print(table(["preset", "about"], [[p.name, p.about] for p in chosen]))
    elif (paper_table := chosen[0].table) is None:
        out.print(_as_toml(chosen[0]), markup=False, highlight=False)
    else:
        _show_table(paper_table)


def _as_toml(preset: Preset) -> str:
    from fedloom.settings import toml

    return f"{preset.about}\n\n{toml.dumps(preset.settings)}"


def _show_table(paper_table: Table) -> None:
    """What the table is about, the paper's numbers, and the settings of its rows."""
    about = {
        "shows": paper_table.about.shows,
        "paper": paper_table.about.settings,
        "departures": paper_table.about.departures,
        "small": paper_table.about.reduced,
    }
    out.print(f"{paper_table.name}: {paper_table.about.title}", style="bold", highlight=False)
    out.print(facts({name: text for name, text in about.items() if text}))
    out.print(_printed_numbers(paper_table))
    rows = [[row.name, _inline(row.settings), row.note] for row in paper_table.rows]
    out.print(table(["row", "settings", "note"], rows))


def _printed_numbers(paper_table: Table) -> Any:
    """The numbers that the paper prints; the longer side runs downwards, to fit a terminal."""
    columns = [column.name for column in paper_table.columns]
    lines = [["as printed", *columns]]
    for row in paper_table.rows:
        lines.append([row.name, *(str(row.printed.get(column, "-")) for column in columns)])
    if len(columns) > len(paper_table.rows):
        lines = [list(line) for line in zip(*lines, strict=True)]
    return table(lines[0], lines[1:])


def _inline(settings: Mapping[str, Any], path: str = "") -> str:
    """Nested settings in one line, written as for --set."""
    parts = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            parts.append(_inline(value, f"{path}{name}."))
        else:
            parts.append(f"{path}{name}={value}")
    return ", ".join(parts)
