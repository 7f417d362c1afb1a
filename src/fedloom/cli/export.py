"""`fedloom export`: the model of a finished run, as files that can be used without fedloom."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedloom.cli import options as o
from fedloom.cli.output import facts, out, print_json, say, user_errors

FOLDER = "export"
SCORES = ("accuracy", "mean_class_recall", "label_weighted_accuracy")


@user_errors
def export(
    folder: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    client: Annotated[
        int | None,
        typer.Option(
            "--client",
            help="Export this client's model; default: the global model.",
            show_default=False,
        ),
    ] = None,
    out_: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for the files; default: export/ in the run's folder.",
            show_default=False,
        ),
    ] = None,
    weights_only: Annotated[
        bool, typer.Option("--weights-only", help="Do not write a program (.pt2).")
    ] = False,
    trust: o.Trust = False,
    json_: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Write a model as safetensors and as a torch.export program.

    A JSON file beside them says what the program takes and what it answers.
    Numbers of a regression are in the units of the data.

    Example: fedloom export runs/ditto-s0 --client 7
    """
    from fedloom.inspect.export import export as export_model

    o.trust_runs(trust, folder)
    exported = export_model(folder, client, out_ or folder / FOLDER, say, program=not weights_only)
    description = exported.description
    if json_:
        print_json({**description, "files": [str(file) for file in exported.files]})
        return
    model, method, rounds = (description[name] for name in ("model", "method", "rounds"))
    shown = {"model": f"{model['name']}, {method}, {rounds} rounds"}
    for score in SCORES:
        if score in description:
            name = description.get("score", score) if score == "accuracy" else score
            shown[name.replace("_", " ")] = f"{description[score]:.4f}"
    for number, file in enumerate(exported.files, 1):
        shown[f"file {number}"] = str(file)
    out.print(facts(shown))
