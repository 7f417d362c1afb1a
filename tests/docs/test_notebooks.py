"""Every notebook runs from top to bottom in an empty folder, and shows its plots."""

import json
import sys
from pathlib import Path
from typing import Any

import jupytext
import pytest
from nbclient import NotebookClient
from reading import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))
KERNEL = {
    "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
    "display_name": "Python of the tests",
    "language": "python",
}


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a kernel with this interpreter; none has to be installed."""
    data = tmp_path / "jupyter"
    folder = data / "kernels" / "of-the-tests"
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps(KERNEL))
    for name in ("JUPYTER_PATH", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(data))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel's own shows plots in cells
    return "of-the-tests"


def run(notebook: Path, folder: Path, kernel: str) -> list[Any]:
    """The outputs of all cells; an error in a cell is raised."""
    cells = jupytext.read(notebook, fmt="py:percent")
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(cells, timeout=300, kernel_name=kernel, resources=resources).execute()
    return [output for cell in cells.cells for output in cell.get("outputs", [])]


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_a_plot(notebook: Path, place: Path, kernel: str) -> None:
    outputs = run(notebook, place, kernel)
    images = [o for o in outputs if "image/png" in o.get("data", {})]
    assert images, "no plot is shown"
    assert not [o for o in outputs if o.get("name") == "stderr"], "a warning is shown"


def test_the_notebooks_are_those_of_the_documentation() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["add_a_method", "long_tail", "quickstart"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_begins_with_a_title(notebook: Path) -> None:
    first, *_ = jupytext.read(notebook, fmt="py:percent").cells
    assert first.cell_type == "markdown"
    assert first.source.startswith("# ")
