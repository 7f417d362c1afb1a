"""Images of noise at three sites, and the settings with which every method is tried there.

The smallest run that exercises blocks, batch norm, augmentation and classes that a client has
seldom or not at all. Used by benchmarks.deploy_methods on Flower, and by the tests without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedloom.settings.config import Config, load

SITES = ("north", "south", "east")
METHODS = {
    "fedavg": "fedavg",
    "fedprox": "fedprox(mu=0.1)",
    "scaffold": "scaffold",
    "feddyn": "feddyn",
    "fedmlb": "fedmlb",
    "fedalign": "fedalign",
    "moon": "moon",
    "fedmix": "fedmix",
    "ditto": "ditto",
    "fedrep": "fedrep",
    "fedbn": "fedbn",
    "fedafa": "fedafa(epochs=1, batch=8)",
}


def write_images(
    folder: Path, shape: tuple[int, ...] = (3, 8, 8), train: int = 24, test: int = 12
) -> dict[str, Path]:
    """An archive for each site; the later the site, the more seldom are its low classes."""
    files = {}
    for number, site in enumerate(SITES):
        rng = np.random.default_rng(number)
        arrays: dict[str, Any] = {"classes": np.array(["a", "b", "c", "d"])}
        for split, count in (("train", train), ("test", test)):
            arrays[f"x_{split}"] = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
            arrays[f"y_{split}"] = np.maximum(rng.integers(0, 4, count), rng.integers(number + 1))
        files[site] = folder / f"{site}.npz"
        np.savez(files[site], **arrays)
    return files


def settings(method: str, rounds: int = 2) -> Config:
    """Two short rounds with all clients, scored on their own test samples."""
    return load(
        {
            "method": METHODS[method],
            "model": "resnet8(norm=batch, width=4)",
            "rounds": rounds,
            "sample": "all",
            "train": {"lr": 0.05, "batch": 8},
            "data": {"partition": "user", "clients": 0, "augment": ["pad-crop(padding=1)", "flip"]},
            "evaluate": {"on": "own"},
        }
    )
