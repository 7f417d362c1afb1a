"""A temporary home with the tiny data set, in memory if possible; the user's is not touched."""

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
    """An empty folder, which is the working directory: commands write here by default."""
    folder = Path(tempfile.mkdtemp(dir=home))
    monkeypatch.chdir(folder)
    return folder
