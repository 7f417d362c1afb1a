"""`fedloom data ...`: add, list, check and look at data sets and their partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedloom.cli import options as o
from fedloom.cli.output import facts, out, print_json, table, user_errors

app = typer.Typer(help="Data sets: add, list, check, show, remove.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Name of the data set.")]


@app.command()
@user_errors
def add(
    name: Name,
    path: Annotated[Path, typer.Option("--from", help="File or folder to read.")],
    format_: Annotated[
        str, typer.Option("--format", help="auto, or one of the formats; wrong names list them.")
    ] = "auto",
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", help="Reader option, e.g. --option target=disease.", show_default=False
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Overwrite a data set of that name.")
    ] = False,
    json_: o.Json = False,
) -> None:
    """Read a data set once and keep it under a name. Example: fedloom data add heart --from heart/ --option target=disease"""
    from fedloom.data import store
    from fedloom.settings.overrides import assignment

    options = dict(assignment(text, "--option", "target=disease") for text in option or ())
    dataset = store.add(name, path, format_, options, replace=replace)
    _show_one(_described(dataset), json_)


@app.command(name="list")
@user_errors
def list_(json_: o.Json = False) -> None:
    """List the data sets there are. Example: fedloom data list"""
    from fedloom.data import store

    found = [_described(store.load(name)) for name in store.names()]
    if json_:
        print_json(found)
        return
    rows = [
        [
            d["name"],
            d["kind"],
            f"{d['train']:,}",
            f"{d['test']:,}",
            str(d["classes"]),
            d["shape"],
            str(d["users"] or ""),
        ]
        for d in found
    ]
    out.print(
        table(
            ["data", "kind", "train", "test", "classes", "shape", "users"], rows, right=(2, 3, 4, 6)
        )
    )


@app.command()
@user_errors
def check(name: Name, json_: o.Json = False) -> None:
    """Verify a data set: checksums, ranges, odd samples. Example: fedloom data check fashion-mnist"""
    from fedloom.data import store

    found = store.check(name)
    sound = not any(line.startswith("problem") for line in found)
    if json_:
        print_json({"name": name, "ok": sound, "found": found})
    else:
        out.print(
            "\n".join([*found, f"{name}: {'sound' if sound else 'not sound'}"]),
            markup=False,
            highlight=False,
        )
    if not sound:
        raise typer.Exit(1)


@app.command()
@user_errors
def remove(name: Name) -> None:
    """Forget a data set that was added. Example: fedloom data remove heart"""
    from fedloom.data import store

    store.remove(name)
    out.print(f"removed {name}", highlight=False)


@app.command()
@user_errors
def show(
    name: Annotated[
        str | None, typer.Argument(help="Name of the data set.", show_default=False)
    ] = None,
    config: o.ConfigFile = None,
    preset: o.PresetName = None,
    row: o.RowName = None,
    column: o.ColumnName = None,
    scale: o.ScaleName = None,
    clients: o.ClientCount = None,
    partition: o.Partition = None,
    seed: o.Seed = None,
    set_: o.Set = None,
    png: Annotated[
        Path | None, typer.Option("--png", help="Write the picture here.", show_default=False)
    ] = None,
    averages: Annotated[
        bool,
        typer.Option("--averages", help="Show averages of samples, as FedMix sends them, instead."),
    ] = False,
    json_: o.Json = False,
) -> None:
    """Picture of a partition, clients by classes, with figures. Example: fedloom data show --partition 'dirichlet(alpha=0.1)'"""
    flags = {
        "data": name,
        "clients": clients,
        "partition": partition,
        "seed": seed,
        "row": row,
        "column": column,
        "scale": scale,
    }
    (_averages if averages else _partition)(o.gather(config, preset, flags, set_), png, json_)


def _averages(raw: dict[str, Any], png: Path | None, json_: bool) -> None:
    from fedloom.data import averages_plot
    from fedloom.inspect.averages import averages_grid

    settings, shown = averages_grid(raw)
    if png is not None:
        averages_plot.save_png(shown, png, f"{settings.data.name}: averages of a client's samples")
    if json_:
        values = shown.images.flatten(2)
        figures = {
            "deviation": values.std(dim=2).tolist(),
            "clients": shown.rows,
            "averages_of": shown.columns,
        }
        print_json({"data": settings.data.name, **figures})
        return
    out.print(averages_plot.terminal(shown, out.color_system is not None))


def _partition(raw: dict[str, Any], png: Path | None, json_: bool) -> None:
    import dataclasses

    from fedloom.data import partition_plot
    from fedloom.data.statistics import heterogeneity
    from fedloom.experiment.prepare import partition_counts

    settings, counts = partition_counts(raw)
    figures = dataclasses.asdict(heterogeneity(counts))
    if png is not None:
        partition_plot.save_png(
            counts,
            png,
            f"{settings.data.name}: {settings.data.partition.name}, {len(counts)} clients",
        )
    if json_:
        print_json(
            {
                "data": settings.data.name,
                "partition": settings.data.partition.name,
                "counts": counts.tolist(),
                **figures,
            }
        )
        return
    out.print(partition_plot.terminal(counts))
    out.print(facts({k: _figure(v) for k, v in figures.items()}))


def _figure(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_figure(v)}" for k, v in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _described(dataset: Any) -> dict[str, Any]:
    return {
        "name": dataset.name,
        "kind": dataset.kind,
        "train": len(dataset.train),
        "test": len(dataset.test),
        "classes": len(dataset.classes),
        "shape": " x ".join(map(str, dataset.shape)),
        "users": len(dataset.users),
        **dataset.about,
    }


def _show_one(described: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(described)
    else:
        out.print(facts({name: value for name, value in described.items() if name != "columns"}))
