"""`fedloom report RUN...`: existing runs side by side, finished or not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedloom.cli import curve_options as c
from fedloom.cli import options as o
from fedloom.cli.comparison_view import Plots, show
from fedloom.cli.output import printable, say, user_errors

if TYPE_CHECKING:
    from fedloom.experiment.stored_run import StoredRun
    from fedloom.metrics.curve import CurveOptions


@user_errors
def report(
    folders: o.RunFolders,
    target: c.Target = None,
    at: c.At = None,
    ema: c.Ema = None,
    ema_start: c.EmaStart = None,
    client: Annotated[
        int | None,
        typer.Option("--client", help="Plot the classes of this client.", show_default=False),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            help="Plot accuracy against this setting, such as method.fedafa.lam.",
            show_default=False,
        ),
    ] = None,
    compute: Annotated[
        bool, typer.Option("--compute", help="Plot accuracy against compute, in MACs.")
    ] = False,
    out_: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for plots; without it none.", show_default=False),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            help="Write a page with everything known about the runs, a row per method over its "
            "seeds, into this file. It needs no other file and no network.",
            show_default=False,
        ),
    ] = None,
    md: Annotated[
        bool, typer.Option("--md", help="Print the table, a row per method, as Markdown.")
    ] = False,
    latex: Annotated[bool, typer.Option("--latex", help="The same as LaTeX (booktabs).")] = False,
    trust: o.Trust = False,
    json_: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Compare existing runs, finished or not.

    A folder of `compare` or `sweep` stands for all runs inside it.

    Example: fedloom report runs/fedavg-s0 runs/fedprox-s0 --html report.html
    """
    from fedloom.core.errors import UserError

    flags = locals()
    if sum((md, latex, json_)) > 1:
        raise UserError("--md, --latex and --json each fill stdout; choose one of them")
    options, wanted = c.options_from(flags), Plots(client, by, compute)
    if out_ is None and (flag := wanted.first_flag()) is not None:
        raise UserError(f"{flag} asks for a plot, and there is no folder for it; add --out FOLDER")
    from fedloom.runs.folder_layout import each_run

    o.trust_runs(trust, *each_run(folders))
    found = _read(folders)
    runs = list(found.values())
    if html is not None:
        from fedloom.reports.page.write import write_page

        say(f"page: {write_page(runs, options, html)}")
    if md or latex:
        _print_text(runs, options, latex)
    else:
        show("run", {str(path): [path] for path in found}, options, out_, json_, wanted)


def _read(folders: Sequence[Path]) -> dict[Path, StoredRun]:
    """The runs by their folder, with a note about each that is not finished.

    Of the runs inside a folder, those without an evaluation are left out.
    """
    from fedloom.experiment.stored_run import read_run
    from fedloom.runs.folder_layout import each_run

    runs = {path: read_run(path) for path in each_run(folders)}
    for path, run in list(runs.items()):
        if path not in folders and not run.history.accuracy:
            say(f"note: '{path}' has no evaluation yet and is left out")
            del runs[path]
        elif run.result is None and run.history:
            done = len(run.history)
            rounds = (
                "this is its first round" if done == 1 else f"these are its first {done} rounds"
            )
            say(f"note: '{path}' is not finished; {rounds}")
    return runs


def _print_text(runs: Sequence[StoredRun], options: CurveOptions, as_latex: bool) -> None:
    """The table as Markdown or LaTeX."""
    from fedloom.reports.by_method import by_method
    from fedloom.reports.comparison import compare_runs
    from fedloom.reports.table_text import latex, markdown

    comparison = compare_runs(by_method(runs), options)
    typer.echo(printable(latex(comparison) if as_latex else markdown(comparison)))
