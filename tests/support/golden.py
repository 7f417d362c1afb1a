"""Golden numbers, from the authors' code or derived independently; see tests/golden."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

GOLDEN = Path(__file__).parents[1] / "golden"


def golden(name: str) -> dict[str, Tensor]:
    """The numeric arrays of a golden file, as tensors."""
    with np.load(GOLDEN / f"{name}.npz", allow_pickle=False) as file:
        return {
            k: torch.from_numpy(np.array(file[k]))
            for k in file.files
            if file[k].dtype.kind in "fib"
        }
