"""A disk in memory, if available: these tests write durably about ten thousand times."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from runs import toy

MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def module_disk() -> Iterator[Path]:
    yield from _disk()


@pytest.fixture
def disk() -> Iterator[Path]:
    yield from _disk()


@pytest.fixture
def run(disk: Path) -> Path:
    """A toy run of five rounds, closed."""
    return toy.made(disk / "run", 5)


def _disk() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="fedloom-", dir=MEMORY if MEMORY.is_dir() else None))
    yield folder
    shutil.rmtree(folder)
