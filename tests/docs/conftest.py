"""Makes `reading` (this folder) and `docs` and `docparts` (scripts) importable by their names."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parents[2] / "scripts"), str(Path(__file__).parent)]
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with docs/examples in it, and an empty store of data sets."""
    shutil.copytree(
        EXAMPLES,
        tmp_path / "docs" / "examples",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDLOOM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("WANDB_MODE", "offline")
    return tmp_path
