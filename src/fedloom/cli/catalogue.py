"""`fedloom methods`, `fedloom models`, `fedloom presets`: what there is."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fedloom.cli import options as o
from fedloom.cli.output import out, print_json, sentences, table


@sentences
def methods(
    name: Annotated[str | None, typer.Argument(help="A method to read about.", show_default=False)] = None,
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
    rows = [[p["name"], p["type"], str(p.get("default", "required")), p["meaning"]] for p in described]
    return table(["parameter", "type", "default", "meaning"], rows)


@sentences
def models(
    name: Annotated[str | None, typer.Argument(help="A model to look into, block by block.", show_default=False)] = None,
    data: o.DataName = None,
    json_: o.Json = False,
) -> None:
    """List the models with blocks, parameters and multiply-accumulates of one forward pass. Example: fedloom models resnet56"""
    from fedloom.study.inventory import describe_model, describe_models

    described = [describe_model(name, data)] if name else describe_models(data)
    if json_:
        print_json(described)
    elif name:
        rows = [
            [b["name"], " x ".join(map(str, b["output"])), f"{b['parameters']:,}", f"{b['macs']:,}"] for b in described[0]["blocks"]
        ]
        total = ["", "all", f"{described[0]['parameters']:,}", f"{described[0]['macs']:,}"]
        out.print(table(["block", "output", "parameters", "MACs"], [*rows, total], title=_headline(described[0]), right=(2, 3)))
        out.print(_parameters(described[0]["arguments"]))
    else:
        rows = [[m["name"], m["input"], str(len(m["blocks"])), f"{m['parameters']:,}", f"{m['macs']:,}"] for m in described]
        out.print(table(["model", "input", "blocks", "parameters", "MACs"], rows, right=(2, 3, 4)))


def _headline(model: dict[str, Any]) -> str:
    return f"{model['name']} on {model['input']}"


@sentences
def presets(json_: o.Json = False) -> None:
    """List the presets. Example: fedloom run --preset shards"""
    from fedloom.study import presets as room

    found = [room.preset(n) for n in room.names()]
    if json_:
        print_json([{"name": p.name, "about": p.about, "settings": p.settings} for p in found])
    else:
        out.print(table(["preset", "about"], [[p.name, p.about] for p in found]))
