"""The table of exit codes lists what the command line uses, and the causes lead to them."""

import ast
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from reading import ROOT
from typer.testing import CliRunner

from fedloom.cli.main import app
from fedloom.experiment.progress import Progress

PAGE = ROOT / "docs" / "guides" / "exit-codes.md"
ROW = re.compile(r"^\| (\d+) \|", re.MULTILINE)
FEW = ["--model", "mlp(width=16)", "--clients", "20", "--per-round", "2", "--rounds", "8"]


def constants(tree: ast.Module) -> dict[str, int]:
    """The integers that a module gives a name to."""
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value.value, int)
    }


def codes_in(source: str) -> Iterator[int]:
    """The codes of all typer.Exit(...) in a module."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "typer.Exit":
            for code in node.args:
                yield (
                    constants(tree)[code.id]
                    if isinstance(code, ast.Name)
                    else ast.literal_eval(code)
                )


def test_the_table_lists_the_codes_of_the_source() -> None:
    files = (ROOT / "src" / "fedloom" / "cli").glob("*.py")
    used = {code for file in files for code in codes_in(file.read_text(encoding="utf-8"))}
    listed = [int(code) for code in ROW.findall(PAGE.read_text(encoding="utf-8"))]
    assert listed == sorted({0, *used})


def test_codes_are_found_by_value_and_by_name() -> None:
    source = "STOPPED = 130\nraise typer.Exit(STOPPED)\nraise typer.Exit(7)\nraise typer.Exit"
    assert sorted(codes_in(source)) == [7, 130]


def code(*words: str) -> int:
    return CliRunner().invoke(app, list(words)).exit_code


def test_what_leads_to_each_code(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert code("methods") == 0
    assert code("run", *FEW, "--lr", "1000000") == 1
    assert code("run", "--method", "fedporx") == 2
    assert code("run", "--nonsense") == 2

    def press_ctrl_c(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Progress, "on_round", press_ctrl_c)
    assert code("run", *FEW, "--out", "runs/stopped") == 130
