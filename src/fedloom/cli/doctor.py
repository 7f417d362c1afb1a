"""`fedloom doctor`: what this machine has, and whether it keeps the promises here."""

from __future__ import annotations

from typing import Annotated

import typer

from fedloom.cli import options as o
from fedloom.cli.output import facts, out, print_json, user_errors

Forget = Annotated[
    bool,
    typer.Option(
        "--forget-calibration",
        help="Throw away which engines were found fastest, and measure anew when needed.",
    ),
]


@user_errors
def doctor(forget_calibration: Forget = False, json_: o.Json = False) -> None:
    """Look at this machine: versions, devices, extras, and whether one seed gives one result. Example: fedloom doctor"""
    from fedloom.engines.calibrate import calibration_file, forget, stored_summaries
    from fedloom.inspect.catalogue import examine

    if forget_calibration:
        forget()
    found = {
        **examine(),
        "calibration": {"file": str(calibration_file()), "findings": stored_summaries()},
    }
    if json_:
        print_json(found)
    else:
        shown = {k: v for k, v in found.items() if k not in ("ok", "calibration")}
        shown["engines calibrated"] = (
            "\n".join([*stored_summaries(), f"kept in {calibration_file()}"])
            if stored_summaries()
            else "none yet"
        )
        out.print(facts(shown | {"verdict": "sound" if found["ok"] else "NOT sound, see above"}))
    if not found["ok"]:
        raise typer.Exit(1)
