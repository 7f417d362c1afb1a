"""Writes heartbeats.npz (signals of two channels) and scans.npz (volumes) into this folder.

    python docs/examples/signals_and_volumes.py
    fedloom data add heartbeats --from heartbeats.npz --option kind=signal
    fedloom run --data heartbeats --model cnn1d --partition user --clients 0 --rounds 5

The data are made up: the class of a heartbeat is its rate, that of a scan is where it is bright.
"""

import numpy as np

rng = np.random.default_rng(0)


def heartbeats(count: int = 600, length: int = 120) -> dict[str, np.ndarray]:
    """Two channels over time; `users` names the patient of each sample."""
    y = np.arange(count) % 3
    time = np.linspace(0, 2 * np.pi, length, endpoint=False)
    phase = rng.uniform(0, 2 * np.pi, (count, 1))
    wave = np.sin((2 + y)[:, None] * time + phase)
    x = np.stack([wave, wave**3], axis=1) + 0.5 * rng.normal(size=(count, 2, length))
    return {
        "x": (80 + 20 * x).astype(np.float32),
        "y": y,
        "users": np.array([f"patient{number}" for number in rng.integers(0, 12, count)]),
        "classes": np.array(["slow", "normal", "fast"]),
    }


def scans(count: int = 120, side: int = 12) -> dict[str, np.ndarray]:
    """Volumes of one channel, as bytes."""
    y = np.arange(count) % 2
    x = rng.integers(0, 60, (count, side, side, side))
    half = side // 2
    x[y == 0, :half] += 60
    x[y == 1, half:] += 60
    return {"x": x.astype(np.uint8), "y": y, "classes": np.array(["upper", "lower"])}


if __name__ == "__main__":
    np.savez("heartbeats.npz", **heartbeats())
    np.savez("scans.npz", **scans())
