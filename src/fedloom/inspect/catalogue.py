"""What there is and how it is: models with their cost, a partition's counts, and the health of this machine."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

import torch

from fedloom.core.errors import unknown_name
from fedloom.core.key import Key
from fedloom.core.spec import Spec, parameters
from fedloom.data import store
from fedloom.experiment.execute import execute
from fedloom.models import registry
from fedloom.models.summary import summary
from fedloom.settings.config import load

EXTRAS = {
    "plots": "matplotlib",
    "images": "PIL",
    "tables": "pyarrow",
    "ray": "ray",
    "flower": "flwr",
    "privacy": "dp_accounting",
}


def describe_models(data: str | None = None) -> list[dict[str, Any]]:
    """Every model on the shape it was made for, or on a data set it can take."""
    return [describe_model(name, data) for name in registry.MODELS]


def describe_model(name: str, data: str | None = None) -> dict[str, Any]:
    """Blocks, parameters and multiply-accumulates of one forward pass, counted on the model itself."""
    if name not in registry.MODELS:
        raise unknown_name("model", name, registry.MODELS, see="fedloom models")
    shape, classes = _shape_of(data) if data else registry.TYPICAL_INPUT[name]
    figures = summary(registry.build(Spec(name), shape, classes, Key.root(0), device="meta"), shape)
    skip = ("shape", "classes")
    return {
        "name": name,
        "input": f"{' x '.join(map(str, shape))}, {classes} classes",
        "parameters": figures.parameters,
        "macs": figures.macs,
        "blocks": [
            {"name": r.name, "output": list(r.output), "parameters": r.parameters, "macs": r.macs}
            for r in figures.blocks
        ],
        "arguments": [
            p.describe() for p in parameters(registry.MODELS[name]).values() if p.name not in skip
        ],
    }


def _shape_of(data: str) -> tuple[tuple[int, ...], int]:
    dataset = store.load(data)
    return dataset.shape, len(dataset.classes)


def examine() -> dict[str, Any]:
    """Versions, devices, extras, whether files can be written, and whether one seed gives one result here."""
    same = len({_short_run() for _ in range(2)}) == 1
    writable = _writable(Path.cwd())
    return {
        "fedloom": importlib.metadata.version("fedloom"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpu": f"{os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}",
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "extras": ", ".join(e for e, module in EXTRAS.items() if importlib.util.find_spec(module))
        or "none",
        "data": str(store.home()),
        "this folder can be written": writable,
        "one seed, one result": same,
        "ok": same and writable,
    }


def _short_run() -> str:
    settings = {
        "rounds": 1,
        "model": "mlp",
        "data": {"clients": 50},
        "sample": {"per_round": 2},
        "evaluate": {"batch": 500},
    }
    return execute(load(settings)).result.weights_sha256


def _writable(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
