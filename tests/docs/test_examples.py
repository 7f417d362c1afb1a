"""The examples of the README and of docs/examples do what they are shown for.

That every block of every page runs at all is checked in test_blocks.py.
"""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from reading import ROOT, fenced

import fedloom
from fedloom.core import user_code
from fedloom.experiment.prepare import prepare
from fedloom.experiment.train import train
from fedloom.metrics.records import RunResult
from fedloom.settings.config import load
from support import warm_python

README = ROOT / "README.md"
EXAMPLES = ROOT / "docs" / "examples"
NOTEBOOKS = ROOT / "docs" / "notebooks"
MY_METHOD = EXAMPLES / "my_method.py"
SMALL = {
    "rounds": 1,
    "model": "mlp",
    "data": {"clients": 50},
    "sample": {"per_round": 2},
    "evaluate": {"batch": 500},
}


def python(*arguments: str, cwd: Path | None = None) -> str:
    """The output of Python in a process of its own, which must succeed."""
    done = warm_python.run(*arguments, folder=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_method_of_the_readme_is_the_file() -> None:
    assert fenced(README, "python")[1] == MY_METHOD.read_text(encoding="utf-8")


def test_the_method_runs_from_the_readme_as_from_the_file(place: Path) -> None:
    (place / "copied.py").write_text(fenced(README, "python")[1])
    few = ("--rounds", "2", "--clients", "50", "--per-round", "2", "--model", "mlp", "--json")
    results = [
        json.loads(python("-m", "fedloom", "run", "--method", f"{file}:modest", *few))
        for file in ("copied.py", "docs/examples/my_method.py")
    ]
    assert [r["method"] for r in results] == ["copied.py:modest", "my_method.py:modest"]
    assert [r["rounds"] for r in results] == [2, 2]
    assert results[0]["weights_sha256"] == results[1]["weights_sha256"]


def weights(method: str) -> str:
    config = load({**SMALL, "method": method})
    user_code.allow(config.references)
    with prepare(config) as prepared:
        return train(prepared).result.weights_sha256


def test_the_method_without_its_term_is_fedavg() -> None:
    assert (
        weights(f"{MY_METHOD}:modest(beta=0)")
        == weights("fedavg")
        != weights(f"{MY_METHOD}:modest")
    )


def test_the_term_of_the_method_by_hand() -> None:
    """Two equal logits have entropy log 2; a certain prediction has none."""
    user_code.allow([f"{MY_METHOD}:modest"])
    ((term,),) = (
        phase.terms for phase in user_code.load("method", f"{MY_METHOD}:modest")(beta=0.5).phases
    )
    step: Any = SimpleNamespace(logits=torch.tensor([[3.0, 3.0], [80.0, 0.0]]))
    assert term(step).item() == pytest.approx(-0.5 * math.log(2) / 2)


def run_script(script: str, folder: Path) -> list[str]:
    """The lines that a script prints."""
    (folder / "script.py").write_text(script, encoding="utf-8")
    return python("script.py", cwd=folder).splitlines()


def run_twice(script: str, folder: Path) -> list[str]:
    """The lines that a script prints; run again, it finds its finished runs and prints the same."""
    lines = run_script(script, folder)
    plot = folder / "runs" / "comparison.png"
    assert plot.stat().st_size > 1000
    assert run_script(script, folder) == lines
    return lines


def result(folder: Path) -> RunResult:
    """The summary of a finished run."""
    finished = fedloom.open(folder).result
    assert finished is not None
    return finished


def test_the_session_of_the_readme_runs(place: Path) -> None:
    scores, *_ = run_twice(fenced(README, "python")[0], place)
    accuracy, loss = map(float, scores.split())
    assert result(place / "runs" / "first").accuracy == accuracy > 0.2
    assert 0 < loss < 5
    assert result(place / "runs" / "base").method == "fedavg"


def test_the_quickstart_runs_and_its_notebook_gives_the_same_result(place: Path) -> None:
    """Both train the same two experiments, so their final weights have the same checksums."""
    script, notebook = place / "script", place / "notebook"
    script.mkdir()
    notebook.mkdir()
    lines = run_twice((EXAMPLES / "quickstart.py").read_text(encoding="utf-8"), script)
    run_script((NOTEBOOKS / "quickstart.py").read_text(encoding="utf-8"), notebook)
    results = [
        [result(folder / "runs" / run) for run in ("penalty", "fedavg")]
        for folder in (script, notebook)
    ]
    assert float(lines[0].split()[0]) == results[0][0].accuracy > 0.2
    assert lines[-1].startswith("<Run ")
    digests = [[r.weights_sha256 for r in both] for both in results]
    assert digests[0] == digests[1]
    assert len(set(digests[0])) == 2


def test_the_model_is_cut_into_blocks() -> None:
    reference = f"{ROOT}/docs/examples/own_model.py:small"
    user_code.allow([reference])
    small = user_code.load("model", reference)
    assert small((3, 32, 32), 7, width=4).names == ("conv1", "conv2", "head")
