"""`fedloom compare`: methods against each other on the same clients, cohorts and batches, over several seeds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedloom.cli import options as o
from fedloom.cli.output import megabytes, out, print_json, say, sentences, table

if TYPE_CHECKING:
    from fedloom.study.compare import Cell, Row

Out = Annotated[Path, typer.Option("--out", help="Folder of the comparison; an unfinished one is gone on with.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Runs at a time, one core each.")]


@sentences
def compare(
    methods: Annotated[str, typer.Option("--methods", help="Methods, separated by commas.")],
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Number of seeds, counted from --seed.")] = 1,
    config: o.ConfigFile = None,
    preset: o.PresetName = None,
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
    out_: Out = Path("runs/compare"),
    json_: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Compare methods. Example: fedloom compare --methods fedavg,fedprox,scaffold --seeds 3 --rounds 20"""
    raw = o.gather(config, preset, locals(), set_)
    first = seed or 0
    weigh(raw, split_methods(methods), range(first, first + seeds), target, jobs, out_, json_)


def split_methods(text: str) -> list[str]:
    """Method names at the commas that are not inside parentheses."""
    import re

    return [m.strip() for m in re.split(r",(?![^()]*\))", text) if m.strip()]


def weigh(
    raw: dict[str, Any], methods: Sequence[str], seeds: Sequence[int], target: float | None, jobs: int, folder: Path, as_json: bool
) -> None:
    """Run what is not done yet, then print the table and draw the curves."""
    from fedloom.core.errors import UserError
    from fedloom.study import compare as room

    if target is not None and not 0 < target < 1:
        raise UserError(f"--target {target} must lie between 0 and 1; it is an accuracy, for example 0.8")
    cells = room.plan(raw, methods, seeds, folder)
    todo = room.unfinished(cells)
    if todo:
        say(f"{len(todo)} of {len(cells)} runs to do, {jobs} at a time")
        _run_here(todo) if jobs == 1 else _run_beside(todo, jobs)
    rows, goal = room.rows(cells, target)
    picture = _draw(rows, folder / "curves.png", goal)
    if as_json:
        print_json({"target": goal, "rows": [r.describe() for r in rows], "curves": picture, "out": str(folder)})
    else:
        show(rows, goal, picture)


def _run_here(cells: Sequence[Cell]) -> None:
    """One run after the other in this process."""
    from fedloom.cli.run import finish
    from fedloom.study.assemble import assemble
    from fedloom.study.compare import open_cell

    for cell in cells:
        with assemble(cell.config) as study, open_cell(cell) as folder:
            finish(study, folder, as_json=False, title=f"{cell.method} seed {cell.seed}")


def _run_beside(cells: Sequence[Cell], jobs: int) -> None:
    """So many runs at a time, each a process that resumes its own folder."""
    from fedloom.core.errors import RunError
    from fedloom.study.compare import open_cell

    def run(cell: Cell) -> int:
        alone = ["--engine", "inprocess"] if cell.config.engine == "auto" else []  # the cores are taken by the other runs
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
