"""`fedloom check`: everything that would be refused before round 0, all at once, without training."""

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
    json_: o.Json = False,
) -> None:
    """Check a config file and say what it would run. Example: fedloom check my.toml --set rounds=5"""
    from fedloom.experiment.prepare import prepare
    from fedloom.settings.config import load

    settings = load(o.gather(config, None, {}, set_), f"'{config}'")
    prepared = prepare(
        settings.model_copy(update={"engine": "inprocess"})
    )  # nothing is going to be played
    found = {
        "config": str(config),
        "method": settings.title,
        "model": f"{settings.model.name}, {sum(p.numel() for p in prepared.model.parameters()):,} parameters",
        "data": f"{prepared.dataset.name}, {len(prepared.dataset.train):,} training and {len(prepared.dataset.test):,} test samples",
        "clients": f"{len(prepared.clients):,}, {prepared.clients.sizes.min()} to {prepared.clients.sizes.max()} samples each",
        "rounds": settings.rounds,
    }
    print_json(found | {"ok": True}) if json_ else out.print(facts(found | {"verdict": "sound"}))
