"""The options of `fedloom reproduce` that no other command has."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer


def _option(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, show_default=False, **more)


def _is_a_number(value: float | None) -> float | None:
    """Raise for nan, which compares with no time and would begin every run."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is not a number of hours.")
    return value


TableName = Annotated[
    str | None,
    typer.Argument(
        help="A paper's table such as fedalign/table1, a paper, or a claim such as "
        "fedmlb/over-fedavg; with --claims a paper.",
        show_default=False,
    ),
]
Rows = Annotated[str | None, _option("--rows", help="Only these rows, separated by commas.")]
Columns = Annotated[
    str | None, _option("--columns", help="Only these columns, separated by commas.")
]
Claims = Annotated[
    bool, typer.Option("--claims", help="List the papers' claims with our verdicts; runs nothing.")
]
SuiteName = Annotated[str | None, _option("--suite", help="The runs of this suite, such as mlb50.")]
GateName = Annotated[
    str | None,
    _option("--gate", help="Try the gate of this suite on a seed that is not reported."),
]
Seeds = Annotated[
    int | None,
    _option(
        "--seeds",
        min=1,
        max=1000,
        help="Number of seeds; default: 1 for a table, for a suite those fixed beforehand.",
    ),
]
OneSeed = Annotated[
    int | None,
    _option("--seed", help="Seed of a table's runs; of a suite, only this one of its seeds."),
]
Hours = Annotated[
    float | None,
    _option(
        "--hours",
        min=0,
        callback=_is_a_number,
        help="Begin only runs that should end within this many hours.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show the runs and how long they take; run nothing.")
]
Out = Annotated[
    Path | None,
    _option(
        "--out",
        help="Folder of the runs; default: runs/TABLE-SCALE, for suites runs/reproduce. "
        "Existing runs are resumed.",
    ),
]
Results = Annotated[
    Path | None,
    _option(
        "--results",
        help="Folder for the result file of each suite, with the settings and the log of each "
        "row in a folder beside it; default: OUT/results.",
    ),
]
Commit = Annotated[
    str | None,
    _option(
        "--commit",
        help="The commit that the runs were made with, for the result file; default: the "
        "present one, if the source is the same.",
    ),
]
