"""Every test runs on one thread and can import `support`."""

import sys
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import hypothesis
import pytest
import torch

sys.path.insert(
    0, str(Path(__file__).parent)
)  # importlib mode leaves the path alone, and tests share `support`

from fedloom.engines.forkserver import ForkServer
from support.skip_check import pytest_addoption, pytest_configure  # noqa: F401

# how long an example takes says something about the machine, not about the law that is tested
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

# doctests are looked for in every module; importing the first one changes fedloom, as its workers
# need it, and the second needs Flower's environment
collect_ignore = ["support/simulated_worker.py"]
if not find_spec("flwr"):
    collect_ignore.append("support/flower_in_memory.py")


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Where pools of tests get their workers: torch is imported for them once, not per pool."""
    with closing(ForkServer("fedloom.experiment.open_engine")) as made:
        yield made


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Results that are compared bit by bit are computed on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
