"""`fedloom check`: everything that would be refused before round 0, all at once, without training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedloom.cli import options as o
from fedloom.cli.output import facts, out, print_json, sentences


@sentences
def check(config: Annotated[Path, typer.Argument(help="Settings in TOML.")], set_: o.Set = None, json_: o.Json = False) -> None:
    """Check a config file and say what it would run. Example: fedloom check my.toml --set rounds=5"""
    from fedloom.study.assemble import assemble
    from fedloom.study.config import load

    settings = load(o.gather(config, None, {}, set_), f"'{config}'")
    study = assemble(settings.model_copy(update={"engine": "inprocess"}))  # nothing is going to be played
    found = {
        "config": str(config),
        "method": settings.title,
        "model": f"{settings.model.name}, {sum(p.numel() for p in study.model.parameters()):,} parameters",
        "data": f"{study.dataset.name}, {len(study.dataset.train):,} training and {len(study.dataset.test):,} test samples",
        "clients": f"{len(study.clients):,}, {study.clients.sizes.min()} to {study.clients.sizes.max()} samples each",
        "rounds": settings.rounds,
    }
    print_json(found | {"ok": True}) if json_ else out.print(facts(found | {"verdict": "sound"}))
