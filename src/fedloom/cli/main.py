"""The command line: one file per command. A command imports what it needs only when it runs, so
that --help is fast."""

from __future__ import annotations

from typing import Annotated

import typer

from fedloom import __version__
from fedloom.cli import (
    analyze,
    catalogue,
    check,
    compare,
    cost,
    data,
    demo,
    deploy,
    doctor,
    export,
    report,
    reproduce,
    run,
    sweep,
    tune,
    watch,
)
from fedloom.engines.malloc import keep_freed_memory

app = typer.Typer(
    name="fedloom",
    help="Federated learning on heterogeneous data. Start with: fedloom demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedloom {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


app.command()(demo.demo)
app.command()(run.run)
app.command()(run.resume)
app.command()(compare.compare)
app.command()(reproduce.reproduce)
app.command()(sweep.sweep)
app.command()(tune.tune)
app.command()(report.report)
app.command()(watch.watch)
app.command()(analyze.analyze)
app.command()(cost.cost)
app.command()(export.export)
app.command()(catalogue.methods)
app.command()(catalogue.models)
app.command()(catalogue.presets)
app.add_typer(data.app, name="data")
app.add_typer(deploy.app, name="deploy")
app.command()(check.check)
app.command()(doctor.doctor)


def main() -> None:
    """The entry point of the `fedloom` command."""
    keep_freed_memory()
    app()
