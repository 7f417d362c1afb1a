"""The picture of curves: a moving average over the thin line of what it averages."""

from pathlib import Path

import numpy as np
from matplotlib.image import imread

from fedloom.study.compare import Row
from fedloom.study.curve import Reading
from fedloom.study.plot import curves

FLAT = tuple((r, 0.5) for r in range(1, 21))
SWINGS = tuple((r, 0.2 if r % 2 else 0.8) for r in range(1, 21))


def height_of_blue(path: Path, curve: tuple[tuple[int, float], ...]) -> float:
    """Share of the picture's height that the first row's colour spans beside the legend, whose line lies flat."""
    reading = Reading(targets=(0.1, 0.9), ema=0.9)
    curves([Row("fedavg", reading, (0.5,), curve, FLAT, (), ((None,), (None,)), 20, 0, 0.0)], path, "made")
    pixels = np.asarray(imread(path))
    blue = (pixels[..., 2] - pixels[..., 0] > 0.15)[:, : pixels.shape[1] // 2]
    rows = np.flatnonzero(blue.any(axis=1))
    return float(rows[-1] - rows[0]) / pixels.shape[0]


def test_what_is_averaged_is_drawn_beneath(tmp_path: Path) -> None:
    assert height_of_blue(tmp_path / "alone.png", FLAT) < 0.05
    assert height_of_blue(tmp_path / "both.png", SWINGS) > 0.4
