"""`fedloom doctor`: what this machine has, and whether results are reproducible on it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fedloom.cli import options as o
from fedloom.cli.output import facts, out, print_json, user_errors

ForgetCalibration = Annotated[
    bool,
    typer.Option(
        "--forget-calibration",
        help="Delete the stored measurements of the fastest engine; runs measure again if needed.",
    ),
]
LABELS = {
    "data_folder": "data sets in",
    "folder_writable": "current folder can be written",
    "reproducible": "same seed, same result",
}


@user_errors
def doctor(forget_calibration: ForgetCalibration = False, json_: o.Json = False) -> None:
    """Check this machine: versions, devices, extras, reproducibility.

    Example: fedloom doctor
    """
    from fedloom.engines.calibrate import calibration_file, forget, stored_summaries
    from fedloom.inspect.doctor import examine

    if forget_calibration:
        forget()
    report = examine()
    measured, file = stored_summaries(), str(calibration_file())
    if json_:
        print_json({**report, "calibration": {"file": file, "measurements": measured}})
    else:
        calibration = "\n".join([*measured, f"stored in {file}"]) if measured else "none yet"
        _show(report, calibration)
    if not report["ok"]:
        raise typer.Exit(1)


def _show(report: dict[str, Any], calibration: str) -> None:
    shown = {LABELS.get(name, name): value for name, value in report.items() if name != "ok"}
    shown["extras"] = ", ".join(report["extras"]) or "none"
    shown["engine calibration"] = calibration
    shown["result"] = "ok" if report["ok"] else "NOT ok, see above"
    out.print(facts(shown))
