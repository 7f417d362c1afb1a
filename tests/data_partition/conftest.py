"""What several tests of partitions and client data share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Golden = Callable[[str], dict[str, np.ndarray]]


@pytest.fixture(scope="session")
def golden() -> Golden:
    """Load golden arrays by 'paper/name'."""
    root = Path(__file__).parents[1] / "golden"

    def load(name: str) -> dict[str, np.ndarray]:
        with np.load(root / f"{name}.npz", allow_pickle=False) as file:
            return dict(file)

    return load
