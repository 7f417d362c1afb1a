"""`fedloom compare`: methods against each other on the same clients, cohorts and batches, over several seeds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedloom.cli import options as o
from fedloom.cli.ahead import ahead
from fedloom.cli.output import megabytes, out, print_json, say, sentences, table
from fedloom.cli.tabulate import tabulate

if TYPE_CHECKING:
    from fedloom.engines.nursery import Nursery
    from fedloom.study.compare import Cell, Row
    from fedloom.study.presets.table import Table

Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Folder of the comparison, default runs/compare or runs/TABLE-SCALE; an unfinished one is gone on with.",
        show_default=False,
    ),
]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Runs at a time, one core each.")]
WorkOff = Callable[["Sequence[Cell]"], None]


@sentences
def compare(
    methods: Annotated[str | None, typer.Option("--methods", help="Methods, separated by commas.", show_default=False)] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Number of seeds, counted from --seed.")] = 1,
    config: o.ConfigFile = None,
    preset: o.PresetName = None,
    scale: o.ScaleName = None,
    rows: Annotated[
        str | None, typer.Option("--rows", help="Of a table: these rows, separated by commas.", show_default=False)
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", help="Of a table: these columns, separated by commas.", show_default=False)
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
    target: Annotated[
        float | None, typer.Option("--target", help="Accuracy to reach; default: the first method's last.", show_default=False)
    ] = None,
    jobs: Jobs = 1,
    out_: Out = None,
    json_: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Compare methods, or make a table of a paper. Example: fedloom compare --methods fedavg,fedprox --seeds 3 --rounds 20"""
    flags, every = dict(locals()), range(seed or 0, (seed or 0) + seeds)
    with working(jobs, engine) as work_off:
        study = _table(preset, flags)
        if study is None:
            raw, where = o.gather(config, preset, flags, set_), out_ or Path("runs/compare")
            weigh(raw, split(methods), every, target, work_off, where, json_)
        else:
            scale = o.scale_of(flags)
            where = out_ or Path("runs") / f"{study.name.replace('/', '-')}-{scale}"
            tabulate(study, scale, every, where, lambda raw: o.over(raw, config, flags, set_), work_off, json_)


def _table(preset: str | None, flags: dict[str, Any]) -> Table | None:
    """The part of a table that is asked for; None if the preset is no table."""
    from fedloom.core.errors import UserError
    from fedloom.study.presets import preset as named

    found = named(preset).table if preset else None
    own = ("methods", "target") if found else ("rows", "columns", "scale")
    for name in own:
        if flags[name] is not None:
            known = f"preset '{preset}' brings its rows; choose among them with --rows" if found else NO_TABLE
            raise UserError(f"--{name} {flags[name]}: {known}")
    return found and found.at(o.scale_of(flags), split(flags["rows"]), split(flags["columns"]))


NO_TABLE = "only a preset that is a table has rows, columns and scales, for example --preset fedalign/table1; leave it out"


def split(text: str | None) -> list[str]:
    """Names at the commas that are not inside parentheses."""
    import re

    return [m.strip() for m in re.split(r",(?![^()]*\))", text or "") if m.strip()]


def weigh(
    raw: dict[str, Any],
    methods: Sequence[str],
    seeds: Sequence[int],
    target: float | None,
    work_off: WorkOff,
    folder: Path,
    as_json: bool,
) -> None:
    """Run what is not done yet, then print the table and draw the curves."""
    from fedloom.core.errors import UserError
    from fedloom.study import compare as room

    if target is not None and not 0 < target < 1:
        raise UserError(f"--target {target} must lie between 0 and 1; it is an accuracy, for example 0.8")
    cells = room.plan(raw, methods, seeds, folder)
    work_off(cells)
    rows, goal = room.rows(cells, target)
    picture = _draw(rows, folder / "curves.png", goal)
    if as_json:
        print_json({"target": goal, "rows": [r.describe() for r in rows], "curves": picture, "out": str(folder)})
    else:
        show(rows, goal, picture)


@contextmanager
def working(jobs: int, engine: str | None = None) -> Iterator[WorkOff]:
    """What works cells off, so many at a time; those that run in this process have their workers from one nursery."""
    with ahead(engine if jobs == 1 else None) as nursery:
        yield lambda cells: _work_off(cells, jobs, nursery)


def _work_off(cells: Sequence[Cell], jobs: int, nursery: Nursery) -> None:
    """Run the cells that are not done yet, so many at a time."""
    from fedloom.study.compare import unfinished

    todo = unfinished(cells)
    if todo:
        say(f"{len(todo)} of {len(cells)} runs to do, {jobs} at a time")
        _run_here(todo, nursery) if jobs == 1 else _run_beside(todo, jobs)


def _run_here(cells: Sequence[Cell], nursery: Nursery) -> None:
    """One run after the other in this process."""
    from fedloom.cli.run import finish
    from fedloom.study.assemble import assemble
    from fedloom.study.compare import open_cell
    from fedloom.study.engines import going_on

    for cell in cells:
        with assemble(going_on(cell.config, cell.path), nursery=nursery) as study, open_cell(cell) as folder:
            finish(study, folder, as_json=False, title=cell.title)


def _run_beside(cells: Sequence[Cell], jobs: int) -> None:
    """So many runs at a time, each a process that resumes its own folder."""
    from fedloom.core.errors import RunError
    from fedloom.study.compare import open_cell
    from fedloom.study.engines import going_on

    def run(cell: Cell) -> int:
        free = going_on(cell.config, cell.path).engine == "auto"
        alone = ["--engine", "inprocess"] if free else []  # the cores are taken by the other runs
        command = [sys.executable, "-m", "fedloom", "resume", str(cell.path), *alone]
        return subprocess.run(command, stdout=subprocess.DEVNULL).returncode

    for cell in cells:
        open_cell(cell).close()
    pool = ThreadPoolExecutor(jobs)
    try:
        codes = list(pool.map(run, cells))
    finally:
        pool.shutdown(cancel_futures=True)
    failed = [cell for cell, code in zip(cells, codes, strict=True) if code]
    if failed:
        raise RunError(f"{len(failed)} runs did not finish, the first in '{failed[0].path}'; go on with the same command")


def _draw(rows: Sequence[Row], path: Path, goal: float) -> str | None:
    from fedloom.core.errors import UserError
    from fedloom.study.plot import curves

    try:
        curves(rows, path, "Test accuracy by round", goal)
    except UserError as missing:
        say(f"note: {missing}")
        return None
    return str(path)


def show(rows: Sequence[Row], goal: float, picture: str | None) -> None:
    """The table with a line of bars for every curve."""
    from fedloom.study.compare import LAST
    from fedloom.study.plot import sparkline

    every = [y for r in rows for _, y in r.curve]
    best = max(r.mean for r in rows)
    lines = [
        [
            f"[bold]{r.method}[/bold]" if r.mean == best else r.method,
            f"{100 * r.mean:.2f}",
            f"{100 * r.std:.2f}" if len(r.accuracies) > 1 else "-",
            f"{r.to_target:g}" if r.to_target is not None else f"{r.curve[-1][0]}+",
            megabytes(r.bytes),
            f"{r.seconds:.1f}",
            sparkline([y for _, y in r.curve], min(every), max(every), width=16),
        ]
        for r in rows
    ]
    columns = ["method", "accuracy %", "std", "to target", "sent", "seconds", "by round"]
    out.print(table(columns, lines, right=(1, 2, 3, 4, 5)))
    last = min(LAST, len(rows[0].curve))
    out.print(
        f"accuracy: mean of the last {last} evaluations; std: over seeds; to target: rounds to {100 * goal:.1f} %", highlight=False
    )
    if picture:
        out.print(f"curves: {picture}", highlight=False)
