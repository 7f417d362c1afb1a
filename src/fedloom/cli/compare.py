"""`fedloom compare`: methods against each other on the same clients, cohorts and batches, over several seeds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
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
    from fedloom.study import compare as room

    cells = room.plan(raw, methods, seeds, folder)
    todo = room.unfinished(cells)
    for number, group in enumerate(_groups(todo, jobs)):
        say(
            f"runs {number * jobs + 1} to {number * jobs + len(group)} of {len(todo)}: "
            + ", ".join(f"{c.method} seed {c.seed}" for c in group)
        )
        _run_all(group)
    rows, goal = room.rows(cells, target)
    picture = _draw(rows, folder / "curves.png", goal)
    if as_json:
        print_json({"target": goal, "rows": [r.describe() for r in rows], "curves": picture, "out": str(folder)})
    else:
        show(rows, goal, picture)


def _groups(cells: Sequence[Cell], jobs: int) -> list[Sequence[Cell]]:
    return [cells[i : i + jobs] for i in range(0, len(cells), jobs)]


def _run_all(group: Sequence[Cell]) -> None:
    """One run here; several as processes of their own, each on its own resume."""
    from fedloom.cli.run import finish
    from fedloom.core.errors import RunError
    from fedloom.study.compare import open_cell

    if len(group) == 1:
        with open_cell(group[0]) as folder:
            finish(group[0].config, folder, as_json=False, quiet=False)
        return
    for cell in group:
        with open_cell(cell):
            pass
    running = [
        (c, subprocess.Popen([sys.executable, "-m", "fedloom", "resume", str(c.path)], stdout=subprocess.DEVNULL)) for c in group
    ]
    failed = [cell for cell, process in running if process.wait() != 0]
    if failed:
        raise RunError(f"{len(failed)} runs failed, the first in '{failed[0].path}'; see it with: fedloom resume {failed[0].path}")


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
            sparkline([y for _, y in r.curve], min(every), max(every)),
        ]
        for r in rows
    ]
    columns = ["method", "accuracy %", "std", f"rounds to {100 * goal:.1f} %", "sent", "seconds", "accuracy by round"]
    out.print(table(columns, lines, right=(1, 2, 3, 4, 5)))
    if picture:
        out.print(f"curves: {picture}", highlight=False)
