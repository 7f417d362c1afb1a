"""`fedloom compare` and `fedloom demo`: one folder a run, a table, curves, nothing trained twice."""

import json
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.talk import TINY, Said, fedloom, lines, run

METHODS = ("fedavg", "fedprox(mu=1)")


def compare(out: str, *words: object, methods: tuple[str, ...] = METHODS) -> Said:
    return fedloom("compare", "--methods", ",".join(methods), *TINY, "--rounds", 2, "--out", out, *words)


def results(folder: Path) -> dict[str, dict[str, Any]]:
    """What the runs of a comparison ended with, by folder."""
    found = sorted(folder.rglob("result.json"))
    return {str(p.parent.relative_to(folder)): json.loads(p.read_text())["summary"] for p in found}


def shas(folder: Path) -> dict[str, str]:
    return {name: result["weights_sha256"] for name, result in results(folder).items()}


def picture(path: Path) -> np.ndarray:
    from matplotlib.image import imread

    return np.asarray(imread(path))


def test_a_comparison_is_its_runs_side_by_side(desk: Path) -> None:
    said = compare("both", "--seeds", 2, "--seed", 3, "--json").json
    assert [row["method"] for row in said["rows"]] == list(METHODS)
    for row, method in zip(said["rows"], METHODS, strict=True):
        alone = [run(desk / f"{method}{seed}", "--method", method, "--seed", seed, rounds=2) for seed in (3, 4)]
        curves = [[line["accuracy"] for line in lines(desk / f"{method}{seed}")] for seed in (3, 4)]
        assert {r["weights_sha256"] for r in alone} <= set(shas(desk / "both").values())
        assert row["accuracies"] == pytest.approx([statistics.fmean(c) for c in curves])  # two rounds: both are the last few
        assert row["accuracy"] == pytest.approx(statistics.fmean(row["accuracies"]))
        assert row["std"] == pytest.approx(statistics.stdev(row["accuracies"]))
        assert row["bytes"] == alone[0]["bytes_up"] + alone[0]["bytes_down"]
    assert said["target"] == pytest.approx(said["rows"][0]["accuracy"])
    assert len(shas(desk / "both")) == 4


def test_the_table_and_the_curves(desk: Path) -> None:
    said = compare("both", "--target", 0.2)
    assert all(re.search(rf"^{re.escape(method)} .*\d\d\.\d\d", said.out, re.MULTILINE) for method in METHODS)
    assert "20.0 %" in said.out and "both/curves.png" in said.out
    pixels = picture(desk / "both" / "curves.png")
    assert pixels.shape[0] > 300 and pixels.shape[1] > 600
    inked = (pixels[..., :3] < 0.9).any(axis=2)
    assert 0.005 < inked.mean() < 0.5
    colours = {tuple((255 * p).astype(int)) for p in pixels[inked][:, :3]}
    assert (0x00, 0x72, 0xB2) in colours and (0xD5, 0x5E, 0x00) in colours  # a line for each of the two methods


def test_a_comparison_that_is_there_is_not_made_again(desk: Path) -> None:
    first = compare("both", "--json")
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in desk.rglob("*/checkpoint/*")}
    again = compare("both", "--json")
    assert again.json == first.json and "round" not in again.err
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in before} == before


def test_a_comparison_goes_on_with_what_is_missing(desk: Path) -> None:
    compare("both", methods=METHODS[:1])
    metrics = desk / "both" / "fedavg" / "seed-0" / "metrics.jsonl"
    before = metrics.read_bytes()
    said = compare("both")
    assert "fedprox(mu=1)" in said.err and not re.search(r"fedavg.*round 1/", said.err)
    assert metrics.read_bytes() == before and len(shas(desk / "both")) == 2


ILL = """from fedloom.core.method import Method, Phase

def ill():
    return Method("ill", (Phase(terms=(lambda step: step.ce * float("nan"),)),))
"""


def test_two_at_a_time_are_the_same_runs_and_none_suffers_from_another(desk: Path) -> None:
    (desk / "own.py").write_text(ILL)
    compare("one")
    words = ("compare", "--methods", ",".join((METHODS[0], "own.py:ill", METHODS[1])), *TINY, "--rounds", 2, "--out", "two")
    said = fedloom(*words, "--jobs", 2, code=1)
    assert re.search(r"failed: 1 runs did not finish, the first in 'two/own.py_ill/seed-0'; go on with", said.flat)
    assert shas(desk / "two") == shas(desk / "one") and len(shas(desk / "one")) == 2


TABLE = ("--preset", "fedalign/table1", *TINY, "--rounds", 2, "--set", "data.classes=None", "--set", "data.pixels=None")
TABLE += ("--set", "data.partition=iid", "--set", "sample.name=uniform", "--set", "train.epochs=1", "--set", "data.per_class=30")


def test_a_table_of_a_paper_beside_its_printed_numbers(desk: Path) -> None:
    words = ("compare", *TABLE, "--rows", "fedavg,fedavg+clip,fedprox", "--seeds", 2, "--out", "table")
    said = fedloom(*words)
    assert "scale small, cut: 20 of 100 classes" in said.err and "6 of 6 runs to do" in said.err
    assert re.search(r"^fedprox +\d+\.\d\d +\d+\.\d\d +[+-]\d+\.\d\d +53\.0 +\+0\.10 ", said.out, re.MULTILINE)
    again = fedloom(*words, "--json")
    assert "runs to do" not in again.err and again.json["scale"] == "small" and again.json["cut"]
    for figure in again.json["figures"]:
        curves = [[x["accuracy"] for x in lines(desk / "table" / figure["row"] / "accuracy" / f"seed-{s}")] for s in (0, 1)]
        assert figure["ours"] == pytest.approx([100 * statistics.fmean(c) for c in curves])
    assert again.json["figures"][1]["printed"] is None and again.json["figures"][0]["printed"]["mean"] == 52.9
    alone = fedloom("run", *TABLE, "--row", "fedavg+clip", "--out", "alone", "--json").json
    assert alone["weights_sha256"] == shas(desk / "table")["fedavg+clip/accuracy/seed-0"]
    settings = (desk / "alone" / "config.toml").read_text()
    assert "clip = 10.0" in settings and "per_class = 30" in settings and "pixels" not in settings


REFUSED = {
    "compare --preset fedalign/table1 --methods fedavg": ("--methods fedavg: preset 'fedalign/table1' brings its rows", "--rows"),
    "compare --preset demo --methods fedavg --rows fedavg": ("--rows fedavg: only a preset that is a table", "leave it out"),
    "compare --preset fedalign/table1 --scale big": ("no scale 'big'", "paper, small"),
    "compare --preset fedalign/table1 --columns H_T": ("column 'H_T' of 'fedalign/table1' is not read off accuracies",),
    "compare --preset fedalign/table1": ("there is no data set 'cifar100'", "fedloom data add cifar100 --from PATH"),
    "compare --rounds 2": ("--methods names no method", "fedloom methods"),
    "run --preset fedalign/table1": ("is a table", "fedloom compare --preset fedalign/table1", "--row NAME (rows: fedavg, "),
    "run --preset fedalign/table1 --row fedalin": ("no row 'fedalin'; did you mean 'fedalign'?",),
    "run --preset demo --row fedavg": ("preset 'demo' is a single run", "leave --row and --column out"),
    "run --data tiny --model mlp --set data.pixels=9": ("data.pixels=9 is more than the 8 x 8 pixels of 'tiny'",),
    "run --data tiny --set data.classes=1": (
        "data.classes=1 should be greater than or equal to 2 (only the first so many classes",
    ),
}


@pytest.mark.parametrize("command", REFUSED)
def test_what_is_no_table_and_what_is_no_row(command: str, desk: Path) -> None:
    said = fedloom(*command.split(), code=2).flat
    assert all(piece in said for piece in REFUSED[command]), said
    assert list(desk.iterdir()) == []


def test_the_demo(desk: Path) -> None:
    """As a newcomer starts it; every command it names is one that there is."""
    process = subprocess.run([sys.executable, "-m", "fedloom", "demo", "--quick"], capture_output=True, text=True)
    assert process.returncode == 0 and "Traceback" not in process.stderr, process.stderr
    assert re.search(r"^fedavg .*\d\d\.\d\d", process.stdout, re.MULTILINE) and "What to try next" in process.stdout
    assert picture(desk / "runs" / "demo-quick" / "curves.png").std() > 0
    assert all(result["rounds"] == 4 for result in results(desk / "runs" / "demo-quick").values())
    for name in set(re.findall(r"^  fedloom (\w+)", process.stdout, re.MULTILINE)):
        assert "Usage: " in fedloom(name, "--help").out
