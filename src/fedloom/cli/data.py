"""`fedloom data ...`: add, list, check, show and remove data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedloom.cli import options as o
from fedloom.cli.output import facts, out, print_json, say, table, user_errors

app = typer.Typer(help="Data sets: add, list, check, show, remove.", no_args_is_help=True)
OF_SIZES = ("clients", "samples", "size", "size_gini")  # statistics that need no classes
Name = Annotated[str, typer.Argument(help="Name of the data set.")]


@app.command()
@user_errors
def add(
    name: Name,
    path: Annotated[
        str,
        typer.Option(
            "--from", help="File or folder to read, or hf:NAME of a HuggingFace data set."
        ),
    ],
    format_: Annotated[
        str, typer.Option("--format", help="auto, or a format; a wrong name lists all formats.")
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
    """Read a data set, say what was understood, and store it under a name.

    Example: fedloom data add heart --from heart/ --option target=disease
    """
    from fedloom.data import listing, store
    from fedloom.data.dataset_summary import SUMMARISED, summary, summary_lines
    from fedloom.data.sources.checks import problems_and_notes
    from fedloom.settings.overrides import assignment

    options = dict(assignment(text, "--option", "target=disease") for text in option or ())
    dataset = store.add(
        name, path, format_, options, replace=replace, warn=lambda text: say(f"warning: {text}")
    )
    understood, remarks = summary(dataset), problems_and_notes(dataset)
    if json_:
        apart = _problems_and_notes_apart(remarks)
        print_json({**listing.describe(name), "understood": understood, **apart})
        return
    about = {field: text for field, text in dataset.about.items() if field not in SUMMARISED}
    out.print(facts({"name": name, **about, **summary_lines(understood)}), highlight=False)
    for line in remarks:
        if not line.startswith("warning: "):  # those went to stderr
            out.print(line, markup=False, highlight=False)


@app.command(name="list")
@user_errors
def list_(json_: o.Json = False) -> None:
    """List the data sets.

    Example: fedloom data list
    """
    from fedloom.data import listing, staging

    staging.clear_leftovers(listing.home())
    descriptions = listing.describe_all()
    if json_:
        print_json(descriptions)
        return
    rows = [
        [
            d["name"],
            d["kind"],
            f"{d['train']:,}",
            f"{d['test']:,}",
            _outputs(d),
            d["shape"],
            str(d["users"] or ""),
        ]
        for d in descriptions
        if "problem" not in d
    ]
    columns = ["data", "kind", "train", "test", "classes", "shape", "users"]
    out.print(table(columns, rows, right=(2, 3, 4, 6)))
    out.print(f"\nAlso: {listing.SYNTHETIC_HINT}", highlight=False)
    for d in descriptions:
        if "problem" in d:
            out.print(f"\nproblem: {d['problem']}", markup=False, highlight=False)


def _outputs(description: dict[str, Any]) -> str:
    """The number of classes, or of what else a model predicts."""
    count, task = description["classes"], description["task"]
    nouns = {"multilabel": "label", "regression": "number", "next-token": "token"}
    if task not in nouns:
        return str(count)
    return f"{count:,} {nouns[task]}{'s' if count > 1 else ''}"


@app.command()
@user_errors
def check(name: Name, json_: o.Json = False) -> None:
    """Verify checksums and values of a data set.

    Example: fedloom data check fashion-mnist
    """
    from fedloom.data import store

    lines = store.check(name)
    report = _problems_and_notes_apart(lines)
    problems = report["problems"]
    if json_:
        print_json({"name": name, "ok": not problems, **report})
    else:
        result = f"{name}: {'NOT ok, see above' if problems else 'ok'}"
        out.print("\n".join([*lines, result]), markup=False, highlight=False)
    if problems:
        raise typer.Exit(1)


def _problems_and_notes_apart(lines: list[str]) -> dict[str, list[str]]:
    """The lines of a check in three lists, without the word that each starts with."""
    apart = {"problems": "problem: ", "warnings": "warning: ", "notes": "note: "}
    return {
        name: [line.removeprefix(start) for line in lines if line.startswith(start)]
        for name, start in apart.items()
    }


@app.command()
@user_errors
def remove(name: Name) -> None:
    """Delete a data set that was added.

    Example: fedloom data remove heart
    """
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
        Path | None, typer.Option("--png", help="Save the plot as this file.", show_default=False)
    ] = None,
    averages: Annotated[
        bool,
        typer.Option("--averages", help="Show averages of samples instead, as FedMix sends them."),
    ] = False,
    json_: o.Json = False,
) -> None:
    """Plot a partition, clients by classes, with measures of its heterogeneity.

    Example: fedloom data show --partition 'dirichlet(alpha=0.1)'
    """
    flags = {
        "data": name,
        "clients": clients,
        "partition": partition,
        "seed": seed,
        "row": row,
        "column": column,
        "scale": scale,
    }
    raw = o.gather(config, preset, flags, set_)
    if averages:
        _show_averages(raw, png, json_)
    else:
        _show_partition(raw, png, json_)


def _show_averages(raw: dict[str, Any], png: Path | None, json_: bool) -> None:
    from fedloom.data import averages_plot
    from fedloom.inspect.averages import averages_grid

    settings, grid = averages_grid(raw)
    if png is not None:
        averages_plot.save_png(grid, png, f"{settings.data.name}: averages of a client's samples")
    if json_:
        report = {
            "data": settings.data.name,
            "pixel_std": grid.images.flatten(2).std(dim=2).tolist(),
            "clients": grid.rows,
            "averages_of": grid.columns,
        }
        print_json(report)
        return
    out.print(averages_plot.terminal(grid, out.color_system is not None))


def _show_partition(raw: dict[str, Any], png: Path | None, json_: bool) -> None:
    import dataclasses

    from fedloom.data import partition_plot
    from fedloom.data.partition import complete
    from fedloom.data.statistics import heterogeneity
    from fedloom.experiment.prepare import partition_counts

    settings, counts, classes = partition_counts(raw)
    data, partition = settings.data.name, settings.data.partition.name
    statistics = dataclasses.asdict(heterogeneity(counts))
    if settings.task != "classification":  # no sample has a class
        statistics = {name: statistics[name] for name in OF_SIZES}
    if png is not None:
        split = complete(settings.data.partition)
        partition_plot.save_png(counts, png, f"{data}: {split}, {len(counts)} clients", classes)
    if json_:
        report = {"data": data, "partition": partition, "counts": counts.tolist()}
        print_json({**report, **statistics})
        return
    out.print(partition_plot.terminal(counts))
    out.print(facts({name: _as_text(value) for name, value in statistics.items()}))


def _as_text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_as_text(item)}" for name, item in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)
