"""Options of `compare` and `report` for accuracy curves: targets, rounds, and a moving average."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fedloom.metrics.curve import CurveOptions

Target = Annotated[
    list[float] | None,
    typer.Option(
        "--target",
        help="Accuracy to reach (repeatable); default: the final accuracy of the first row.",
        show_default=False,
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        "--at", help="Also the accuracies at these rounds, comma-separated.", show_default=False
    ),
]
Ema = Annotated[
    float | None,
    typer.Option(
        "--ema",
        help="Momentum per round of an exponential moving average, such as 0.9, from which "
        "accuracies and targets are taken. Default: the mean of the last five evaluations, and "
        "targets from the evaluations themselves.",
        show_default=False,
    ),
]
EmaStart = Annotated[
    str | None,
    typer.Option(
        "--ema-start",
        help="How the average starts. first (default): at the first evaluation; "
        "debiased: at 0, divided by 1 - momentum^round, as TensorBoard does.",
        show_default=False,
    ),
]


def options_from(flags: Mapping[str, Any]) -> CurveOptions:
    """The options that the flags describe; raises for values that make no sense."""
    from fedloom.core.errors import UserError, unknown_name
    from fedloom.metrics.curve import STARTS, CurveOptions

    targets, ema, start = dict.fromkeys(flags["target"] or ()), flags["ema"], flags["ema_start"]
    for target in targets:
        if not 0 < target < 1:
            raise UserError(
                f"--target {target} must lie between 0 and 1; it is an accuracy, for example 0.8"
            )
    if ema is not None and not 0 <= ema < 1:
        raise UserError(
            f"--ema {ema} must be at least 0 and below 1; it is a momentum, for example 0.9, "
            "and 0 does not smooth"
        )
    if start is not None and ema is None:
        raise UserError(
            f"--ema-start {start} needs a moving average; add its momentum, for example --ema 0.9"
        )
    if start not in (None, *STARTS):
        raise unknown_name("--ema-start", start, STARTS)
    return CurveOptions(tuple(targets), _rounds(flags["at"]), ema, start or STARTS[0])


def _rounds(text: str | None) -> tuple[int, ...]:
    """The rounds of --at, each once."""
    from fedloom.core.errors import UserError

    names = split(text)
    wrong = [name for name in names if not name.isdecimal() or int(name) < 1]
    if wrong or (text is not None and not names):
        raise UserError(
            f"--at {text}: '{wrong[0] if wrong else text}' is not a round; "
            "write rounds from 1 on, comma-separated, for example --at 500,1000"
        )
    return tuple(dict.fromkeys(map(int, names)))


def split(text: str | None) -> list[str]:
    """Names at the commas that are not inside parentheses."""
    return [name.strip() for name in re.split(r",(?![^()]*\))", text or "") if name.strip()]
