"""Images at three sites, and the settings with which every method is tried there.

The smallest run that exercises blocks, batch norm, augmentation and classes that a client has
seldom. Used by benchmarks.deploy_methods on Flower, and by the tests without it.
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
    """An archive for each site: noise, brighter for some classes; later sites have fewer of a."""
    files = {}
    for number, site in enumerate(SITES):
        rng = np.random.default_rng(number)
        arrays: dict[str, Any] = {"classes": np.array(["a", "b", "c", "d"])}
        for split, count in (("train", train), ("test", test)):
            labels = np.maximum(rng.integers(0, 4, count), rng.integers(0, number + 1, count))
            pixels = rng.integers(0, 160, (count, *shape)) + 30 * labels.reshape(-1, 1, 1, 1)
            arrays[f"x_{split}"], arrays[f"y_{split}"] = pixels.astype(np.uint8), labels
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
