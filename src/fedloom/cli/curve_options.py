"""Options of `fedloom compare` that say how runs are read: targets, rounds, and a moving average."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fedloom.metrics.curve import CurveOptions

Target = Annotated[
    list[float] | None,
    typer.Option(
        "--target",
        help="Accuracy to reach (repeatable); default: the first method's last.",
        show_default=False,
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        "--at", help="Also the accuracies at these rounds, separated by commas.", show_default=False
    ),
]
Ema = Annotated[
    float | None,
    typer.Option(
        "--ema",
        help="Momentum of an exponential moving average over evaluations, e.g. 0.9, that accuracies and targets are read off; "
        "default: targets off each evaluation, accuracies as the mean of the last five.",
        show_default=False,
    ),
]
EmaStart = Annotated[
    str | None,
    typer.Option(
        "--ema-start",
        help="first (default): the first evaluation; debiased: 0, divided by 1 - momentum^k, as TensorBoard does.",
        show_default=False,
    ),
]


def reading_of(flags: dict[str, Any]) -> CurveOptions:
    """How the runs are to be read."""
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
            f"--ema {ema} must be at least 0 and below 1; it is a momentum, for example 0.9, and 0 does not smooth"
        )
    if start is not None and ema is None:
        raise UserError(
            f"--ema-start {start} is the start of a moving average; name its momentum too, for example --ema 0.9"
        )
    if start not in (None, *STARTS):
        raise unknown_name("--ema-start", start, STARTS)
    return CurveOptions(tuple(targets), tuple(_rounds(flags["at"])), ema, start or STARTS[0])


def _rounds(text: str | None) -> dict[int, None]:
    """The rounds of --at, each once."""
    from fedloom.core.errors import UserError

    wrong = [word for word in split(text) if not word.isdecimal() or int(word) < 1]
    if wrong or (text is not None and not split(text)):
        said = wrong[0] if wrong else text
        raise UserError(
            f"--at {text}: '{said}' is no round; write rounds from 1 on, separated by commas, for example --at 500,1000"
        )
    return dict.fromkeys(map(int, split(text)))


def split(text: str | None) -> list[str]:
    """Names at the commas that are not inside parentheses."""
    return [m.strip() for m in re.split(r",(?![^()]*\))", text or "") if m.strip()]
