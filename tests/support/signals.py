"""Small synthetic signals and volumes: a class is a frequency, or the octant of a bright blob."""

import numpy as np

CLASSES = 3


def signals(samples: int = 48, channels: int = 2, length: int = 24, seed: int = 0):
    """(X, y) with X float64 (N,C,L): sines whose frequency is the class, with noise."""
    rng = np.random.default_rng(seed)
    y = np.arange(samples) % CLASSES
    time = np.linspace(0, 2 * np.pi, length, endpoint=False)
    phase = rng.uniform(0, 2 * np.pi, (samples, channels, 1))
    x = np.sin((1 + 2 * y)[:, None, None] * time + phase)
    return x + 0.3 * rng.normal(size=x.shape), y


def volumes(samples: int = 48, channels: int = 1, side: int = 8, seed: int = 0):
    """(X, y) with X float64 (N,C,D,H,W): noise, and a bright corner that tells the class."""
    rng = np.random.default_rng(seed)
    y = np.arange(samples) % CLASSES
    x = rng.normal(size=(samples, channels, side, side + 1, side))
    half = side // 2
    corners = [np.s_[:, :half], np.s_[:, half:, :half], np.s_[:, half:, half:]]
    for label, corner in enumerate(corners):
        for sample in np.flatnonzero(y == label):
            x[sample][corner] += 2
    return x, y
