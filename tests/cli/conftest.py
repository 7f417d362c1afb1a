"""A disk in memory where there is one, with a home for data sets and the tiny one in it; the user's own home is left alone."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli import talk

MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module", autouse=True)
def home() -> Iterator[Path]:
    """The disk of a test file."""
    place = MEMORY if MEMORY.is_dir() else None
    with (
        tempfile.TemporaryDirectory(prefix="fedloom-", dir=place) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("FEDLOOM_HOME", f"{folder}/home")
        talk.fedloom("data", "add", "tiny", "--from", talk.write_tiny(Path(folder) / "tiny.npz"))
        yield Path(folder)


@pytest.fixture
def desk(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and the current one: what a command writes by default is written here."""
    folder = Path(tempfile.mkdtemp(dir=home))
    monkeypatch.chdir(folder)
    return folder
