"""What the pages show is run as it stands there."""

import json
import math
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from reading import ROOT, fenced, named, shown
from typer.testing import CliRunner

from fedloom.cli.main import app
from fedloom.core import user_code
from fedloom.experiment.prepare import check_names, prepare
from fedloom.experiment.train import run
from fedloom.settings.config import load

README, DATA = ROOT / "README.md", ROOT / "docs" / "data.md"
MY_METHOD = ROOT / "docs" / "examples" / "my_method.py"
SMALL = {
    "rounds": 1,
    "model": "mlp",
    "data": {"clients": 50},
    "sample": {"per_round": 2},
    "evaluate": {"batch": 500},
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the examples where the pages say they are, and data of its own."""
    shutil.copytree(
        ROOT / "docs" / "examples",
        tmp_path / "docs" / "examples",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDLOOM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


def started(*words: str) -> str:
    """What a command says in a process of its own, started with this Python."""
    done = subprocess.run(
        [sys.executable, *words], env=os.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_method_of_the_readme_is_the_file() -> None:
    assert fenced(README, "python")[0] == MY_METHOD.read_text(encoding="utf-8")


def test_the_method_runs_from_the_readme_as_from_the_file(place: Path) -> None:
    (place / "copied.py").write_text(fenced(README, "python")[0])
    few = ("--rounds", "2", "--clients", "50", "--per-round", "2", "--model", "mlp", "--json")
    results = [
        json.loads(started("-m", "fedloom", "run", "--method", f"{file}:modest", *few))
        for file in ("copied.py", "docs/examples/my_method.py")
    ]
    assert [r["method"] for r in results] == ["copied.py:modest", "my_method.py:modest"]
    assert [r["rounds"] for r in results] == [2, 2]
    assert results[0]["weights_sha256"] == results[1]["weights_sha256"]


def weights(method: str) -> str:
    return str(run(prepare(load({**SMALL, "method": method})))["weights_sha256"])


def test_the_method_without_its_term_is_fedavg() -> None:
    assert (
        weights(f"{MY_METHOD}:modest(beta=0)")
        == weights("fedavg")
        != weights(f"{MY_METHOD}:modest")
    )


def test_the_term_of_the_method_by_hand() -> None:
    """Two equal logits have entropy log 2; a certain prediction has none."""
    ((term,),) = (
        phase.terms for phase in user_code.load("method", f"{MY_METHOD}:modest")(beta=0.5).phases
    )
    step: Any = SimpleNamespace(logits=torch.tensor([[3.0, 3.0], [80.0, 0.0]]))
    assert term(step).item() == pytest.approx(-0.5 * math.log(2) / 2)


def play(words: list[str]) -> None:
    """A command of a page, run as it stands there."""
    if words[0] == "python":
        started(*words[1:])
    else:
        done = CliRunner().invoke(app, words[1:])
        assert done.exit_code == 0, f"{' '.join(words)}: {done.output} {done.exception!r}"


@pytest.mark.parametrize("page", [README, DATA], ids=named)
def test_the_commands_of_a_page_run_in_their_order(page: Path, place: Path) -> None:
    commands = [
        words for words in shown(page) if words[0] in ("fedloom", "python") and words[1] != "demo"
    ]
    assert len(commands) >= 6
    for words in commands:
        play(words)


def test_the_python_of_the_readme_runs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(fenced(README, "python")[1], "README.md", "exec"), {})
    *rounds, last = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in rounds] == ["1", "2", "3"]
    accuracy, digest = last.split()
    assert rounds[-1] == f"3 {accuracy}"
    assert len(digest) == 64


def test_the_model_is_cut_into_blocks() -> None:
    small = user_code.load("model", f"{ROOT}/docs/examples/own_model.py:small")
    assert small((3, 32, 32), 7, width=4).names == ("conv1", "conv2", "head")


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=named)
def test_settings_on_pages_are_sound(page: Path) -> None:
    for block in fenced(page, "toml"):
        check_names(load(tomllib.loads(block), block))
