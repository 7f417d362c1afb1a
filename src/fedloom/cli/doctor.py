"""`fedloom doctor`: what this machine has, and whether it keeps the promises here."""

from __future__ import annotations

import typer

from fedloom.cli import options as o
from fedloom.cli.output import facts, out, print_json, sentences


@sentences
def doctor(json_: o.Json = False) -> None:
    """Look at this machine: versions, devices, extras, and whether one seed gives one result. Example: fedloom doctor"""
    from fedloom.study.inventory import examine

    found = examine()
    if json_:
        print_json(found)
    else:
        out.print(
            facts({k: v for k, v in found.items() if k != "ok"} | {"verdict": "sound" if found["ok"] else "NOT sound, see above"})
        )
    if not found["ok"]:
        raise typer.Exit(1)
