"""What every test stands on: one thread, and what is imported as `support`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(
    0, str(Path(__file__).parent)
)  # importlib mode leaves the path alone, and tests share `support`


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Numbers compared bit for bit come from one thread, whatever ran before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
