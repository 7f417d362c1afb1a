"""Checks of this machine: versions, devices, optional packages, and whether a seed reproduces a
result."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

import torch

from fedloom.data import listing
from fedloom.experiment.execute import execute
from fedloom.settings.config import load

EXTRAS = {
    "plots": "matplotlib",
    "images": "PIL",
    "tables": "pyarrow",
    "analysis": "scipy",
    "ray": "ray",
    "flower": "flwr",
    "tensorboard": "tensorboard",
    "mlflow": "mlflow",
    "wandb": "wandb",
    "privacy": "dp_accounting",
}
SHORT_RUN = {
    "rounds": 1,
    "model": "mlp",
    "data": {"clients": 50},
    "sample": {"per_round": 2},
    "evaluate": {"batch": 500},
}


def examine() -> dict[str, Any]:
    """What the machine has, and as `ok` whether both checks passed.

    folder_writable: of the current folder. reproducible: two short runs with the same seed end with
    the same weights, bit for bit.
    """
    writable = _is_writable(Path.cwd())
    reproducible = _is_reproducible()
    return {
        "fedloom": importlib.metadata.version("fedloom"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpu": f"{os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}",
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "extras": [extra for extra, package in EXTRAS.items() if _is_installed(package)],
        "data_folder": str(listing.home()),
        "folder_writable": writable,
        "reproducible": reproducible,
        "ok": reproducible and writable,
    }


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _is_reproducible() -> bool:
    first, second = (execute(load(SHORT_RUN)).result.weights_sha256 for _ in range(2))
    return first == second


def _is_writable(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
