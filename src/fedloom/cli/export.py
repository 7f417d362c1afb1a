"""`fedloom export`: a model of a finished run as files that need no fedloom."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedloom.cli import options as o
from fedloom.cli.output import facts, out, print_json, say, user_errors

FOLDER = "export"


@user_errors
def export(
    folder: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    client: Annotated[
        int | None,
        typer.Option(
            "--client", help="The model of this client; default: the server's.", show_default=False
        ),
    ] = None,
    out_: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Where the files go; default: export in the folder.", show_default=False
        ),
    ] = None,
    weights_only: Annotated[
        bool, typer.Option("--weights-only", help="No program (.pt2) beside the weights.")
    ] = False,
    json_: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Write a model as safetensors and as a torch.export program. Example: fedloom export runs/ditto-s0 --client 7"""
    from fedloom.inspect.export import export as write

    done = write(folder, client, out_ or folder / FOLDER, say, program=not weights_only)
    if json_:
        print_json({**done.facts, "files": [str(file) for file in done.files]})
        return
    shown = {
        "model": f"{done.facts['model']['name']}, {done.facts['method']}, {done.facts['rounds']} rounds"
    }
    for name in ("accuracy", "recall", "weighted"):
        shown |= {name: f"{done.facts[name]:.4f}"} if name in done.facts else {}
    out.print(
        facts(shown | {f"file {number}": str(file) for number, file in enumerate(done.files, 1)})
    )
