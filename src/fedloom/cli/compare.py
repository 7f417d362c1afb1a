"""`fedloom compare`: methods against each other on the same clients, cohorts and batches, over several seeds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedloom.cli import curve_options as r
from fedloom.cli import options as o
from fedloom.cli.comparison_view import Pictures, WorkOff, look, weigh
from fedloom.cli.output import say, user_errors
from fedloom.cli.paper_table_view import tabulate
from fedloom.cli.prefork import prefork

if TYPE_CHECKING:
    from fedloom.engines.forkserver import ForkServer
    from fedloom.reports.comparison import PlannedRun
    from fedloom.settings.paper_table import Table

Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Folder of the comparison, default runs/compare, runs/TABLE-SCALE, or none for FOLDERS; one that is there goes on.",
        show_default=False,
    ),
]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Runs at a time, one core each.")]


@user_errors
def compare(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Runs that are there, finished or not, instead of methods.", show_default=False
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option("--methods", help="Methods, separated by commas.", show_default=False),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Number of seeds, counted from the run's.")
    ] = 1,
    config: o.ConfigFile = None,
    preset: o.PresetName = None,
    scale: o.ScaleName = None,
    rows: Annotated[
        str | None,
        typer.Option(
            "--rows", help="Of a table: these rows, separated by commas.", show_default=False
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns", help="Of a table: these columns, separated by commas.", show_default=False
        ),
    ] = None,
    data: o.DataName = None,
    clients: o.ClientCount = None,
    partition: o.Partition = None,
    model: o.ModelName = None,
    rounds: o.Rounds = None,
    per_round: o.PerRound = None,
    seed: o.Seed = None,
    engine: o.Engine = None,
    workers: o.Workers = None,
    device: o.Device = None,
    set_: o.Set = None,
    target: r.Target = None,
    at: r.At = None,
    ema: r.Ema = None,
    ema_start: r.EmaStart = None,
    client: Annotated[
        int | None,
        typer.Option(
            "--client", help="Of FOLDERS: draw the classes of this client.", show_default=False
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            help="Of FOLDERS: draw them by this setting, e.g. method.fedafa.lam.",
            show_default=False,
        ),
    ] = None,
    compute: Annotated[
        bool,
        typer.Option(
            "--compute",
            help="Of FOLDERS: draw accuracy against computation, in MACs.",
            show_default=False,
        ),
    ] = False,
    jobs: Jobs = 1,
    out_: Out = None,
    json_: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Compare methods or runs, or make a paper's table. Example: fedloom compare --methods fedavg,fedprox --seeds 3 --rounds 20"""
    flags = {**locals(), "compute": compute or None}
    if folders:
        _check_runs_alone(flags)
        look(folders, r.reading_of(flags), out_, json_, Pictures(client, by, compute))
        return
    _check_given(
        flags,
        DRAWN,
        "it is for pictures of runs that are there; name their folders, or leave it out",
    )
    with scheduler(jobs, engine) as work_off:
        study = _table(preset, flags)
        if study is None:
            raw, where = o.gather(config, preset, flags, set_), out_ or Path("runs/compare")
            weigh(raw, r.split(methods), seeds, r.reading_of(flags), work_off, where, json_)
        else:
            scale = o.scale_of(flags)
            where = out_ or Path("runs") / f"{study.name.replace('/', '-')}-{scale}"
            tabulate(
                study,
                scale,
                seeds,
                where,
                lambda raw: o.over(raw, config, flags, set_),
                work_off,
                json_,
            )


NOT_OF_RUNS = (
    "methods",
    "config",
    "preset",
    "scale",
    "rows",
    "columns",
    "set_",
    "seeds",
    "jobs",
    *o.FLAGS,
)
DRAWN = ("client", "by", "compute")
NO_TABLE = "only a preset that is a table has rows, columns and scales, for example --preset fedalign/table1; leave it out"


def _check_runs_alone(flags: dict[str, Any]) -> None:
    """Refuse settings beside runs that have theirs."""
    numbers = {name: flags[name] if flags[name] > 1 else None for name in ("seeds", "jobs")}
    why = "the runs that are named have their settings; leave it out, or leave out the folders"
    _check_given(flags | numbers, NOT_OF_RUNS, why)
    if flags["out_"] is None:
        _check_given(
            flags,
            DRAWN,
            "it asks for a picture, and no folder is named for pictures; add --out FOLDER",
        )


def _check_given(flags: dict[str, Any], names: Sequence[str], why: str) -> None:
    """Refuse what is given and has no meaning here."""
    from fedloom.core.errors import UserError

    for name in names:
        if (value := flags.get(name)) not in (None, []):
            words = value if isinstance(value, list) else [] if value is True else [value]
            flag = f"--{name.strip('_').replace('_', '-')}"
            raise UserError(f"{' '.join([flag, *map(str, words)])}: {why}")


def _table(preset: str | None, flags: dict[str, Any]) -> Table | None:
    """The part of a table that is asked for; None if the preset is no table."""
    from fedloom.settings.presets import preset as named

    found = named(preset).table if preset else None
    if found is None:
        _check_given(flags, ("rows", "columns", "scale"), NO_TABLE)
        return None
    _check_given(
        flags, ("methods",), f"preset '{preset}' brings its rows; choose among them with --rows"
    )
    measures = f"preset '{preset}' brings what is read off its runs; choose among its columns with --columns"
    _check_given(flags, ("target", "at", "ema", "ema_start"), measures)
    return found.at(o.scale_of(flags), r.split(flags["rows"]), r.split(flags["columns"]))


@contextmanager
def scheduler(jobs: int, engine: str | None = None) -> Iterator[WorkOff]:
    """What works cells off, so many at a time; those that run in this process have their workers from one nursery."""
    with prefork(engine if jobs == 1 else None) as fork_server:
        yield lambda cells: _work_off(cells, jobs, fork_server)


def _work_off(cells: Sequence[PlannedRun], jobs: int, fork_server: ForkServer) -> None:
    """Run the cells that are not done yet, so many at a time."""
    from fedloom.reports.comparison import unfinished

    todo = unfinished(cells)
    if todo:
        say(f"{len(todo)} of {len(cells)} runs to do, {jobs} at a time")
        runs = [cell.path for cell in cells]
        _run_here(todo, runs, fork_server) if jobs == 1 else _run_beside(todo, runs, jobs)


def _run_here(cells: Sequence[PlannedRun], runs: Sequence[Path], fork_server: ForkServer) -> None:
    """One run after the other in this process."""
    from fedloom.cli.run import finish
    from fedloom.experiment.open_engine import resume_config
    from fedloom.experiment.prepare import prepare
    from fedloom.reports.comparison import open_planned

    for cell in cells:
        _take_over(cell, runs)
        with (
            prepare(resume_config(cell.config, cell.path), fork_server=fork_server) as study,
            open_planned(cell) as folder,
        ):
            finish(study, folder, as_json=False, title=cell.title)


def _take_over(cell: PlannedRun, runs: Sequence[Path]) -> None:
    """Give a run that has not begun the rounds of one that is finished, where they are the same."""
    from fedloom.experiment.reuse import copy_rounds, find_run_with_same_rounds
    from fedloom.reports.comparison import open_planned

    with open_planned(cell) as folder:
        if folder.restore() is None and (other := find_run_with_same_rounds(cell.config, runs)):
            copy_rounds(folder, other)
            say(f"{cell.title}: its rounds are those of '{other}', and are taken over")


def _run_beside(cells: Sequence[PlannedRun], runs: Sequence[Path], jobs: int) -> None:
    """So many runs at a time, each a process that resumes its own folder."""
    from fedloom.core.errors import RunError
    from fedloom.experiment.open_engine import resume_config
    from fedloom.reports.comparison import open_planned

    def run(cell: PlannedRun) -> int:
        _take_over(cell, runs)
        free = resume_config(cell.config, cell.path).engine == "auto"
        alone = ["--engine", "inprocess"] if free else []  # the cores are taken by the other runs
        command = [sys.executable, "-m", "fedloom", "resume", str(cell.path), *alone]
        return subprocess.run(command, stdout=subprocess.DEVNULL).returncode

    for cell in cells:
        open_planned(cell).close()
    pool = ThreadPoolExecutor(jobs)
    try:
        codes = list(pool.map(run, cells))
    finally:
        pool.shutdown(cancel_futures=True)
    failed = [cell for cell, code in zip(cells, codes, strict=True) if code]
    if failed:
        raise RunError(
            f"{len(failed)} runs did not finish, the first in '{failed[0].path}'; go on with the same command"
        )
