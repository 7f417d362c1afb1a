"""`fedloom cost --paper-scale`: the papers' tables at their own scale, checked and estimated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedloom.cli.output import out, print_json, say, table

if TYPE_CHECKING:
    from fedloom.inspect.paper_scale import TableWork

COLUMNS = ("table", "cells", "runs", "steps", "MACs", "hours", "data")


def show_paper_scale(name: str | None, gpu: str, tflops: float | None, as_json: bool) -> None:
    """Check every cell of the tables without training, and print the hours of their commands.

    Raises a RunError with all cells that could not run.
    """
    from fedloom.core.errors import RunError
    from fedloom.diagnostics.cost.gpu import sustained_flops
    from fedloom.inspect import paper_scale

    flops = sustained_flops(gpu, tflops)
    counter, counted = paper_scale.CostCounter(), []
    chosen = paper_scale.tables(name)
    for number, paper_table in enumerate(chosen, 1):
        say(f"checking and counting {number} of {len(chosen)}: {paper_table.name}")
        if problems := paper_scale.problems(paper_table):
            raise RunError("\n".join(problems))
        counted.append(paper_scale.work(paper_table, counter))
    if as_json:
        print_json([{**w.describe(), "hours": round(w.hours(flops), 3)} for w in counted])
        return
    rows = [_cells(w, w.hours(flops)) for w in counted]
    out.print(table(COLUMNS, rows, right=(1, 2, 3, 4, 5)))
    _print_notes(counted, flops, "--tflops" if tflops is not None else gpu)


def _cells(work: TableWork, hours: float) -> list[str]:
    return [
        work.table,
        str(work.cells),
        str(work.runs),
        f"{work.steps:,}",
        f"{work.macs:.2e}",
        f"{hours:,.1f}",
        ", ".join(work.data),
    ]


def _print_notes(counted: Sequence[TableWork], flops: float, source: str) -> None:
    """What the hours mean, which data are missing here, and the command of each table."""
    from fedloom.data import listing
    from fedloom.diagnostics.cost.gpu import STEP_SECONDS
    from fedloom.inspect.paper_scale import SEEDS

    notes = [
        f"every cell can run; runs, steps, MACs: of one seed; hours: of the {SEEDS} seeds of the "
        f"commands, an estimate: {flops / 1e12:.2f} TFLOP/s ({source}), and no step below "
        f"{1000 * STEP_SECONDS:g} ms, since it waits for Python and kernel launches"
    ]
    needed = {name for w in counted for name in w.data}
    if missing := sorted(needed - set(listing.names())):
        hint = listing.ADD_HINT.replace("NAME", missing[0])
        notes.append(f"data sets that are not here yet: {', '.join(missing)}; {hint}")
    for note in [*notes, *(work.command for work in counted)]:
        out.print(note, markup=False, highlight=False, soft_wrap=True)
