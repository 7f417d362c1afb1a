"""`fedloom check`: report every problem of a config file at once, without training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedloom.cli import options as o
from fedloom.cli.output import facts, out, print_json, user_errors


@user_errors
def check(
    config: Annotated[Path, typer.Argument(help="Settings in TOML.")],
    set_: o.Set = None,
    trust: o.Trust = False,
    json_: o.Json = False,
) -> None:
    """Check a config file and show what it would run.

    Example: fedloom check my.toml --set rounds=5
    """
    from fedloom.experiment.prepare import prepare
    from fedloom.settings.config import load

    settings = load(o.gather(config, None, {"trust": trust}, set_), f"'{config}'")
    # No client is going to train, so no worker processes are needed.
    prepared = prepare(settings.model_copy(update={"engine": "inprocess"}))
    parameters = sum(p.numel() for p in prepared.model.parameters())
    dataset, sizes = prepared.dataset, prepared.clients.sizes
    test = len(dataset.test)
    train = int(sizes.sum()) if settings.data.validation else len(dataset.train)
    held_out = "validation" if settings.data.validation else "test"
    report = {
        "config": str(config),
        "method": settings.title,
        "model": f"{settings.model.name}, {parameters:,} parameters",
        "data": f"{dataset.name}, {train:,} training and {test:,} {held_out} samples",
        "clients": f"{len(prepared.clients):,}, {sizes.min()} to {sizes.max()} samples each",
        "rounds": settings.rounds,
    }
    if json_:
        print_json({**report, "ok": True})
    else:
        out.print(facts({**report, "result": "ok"}))
