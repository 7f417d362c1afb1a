"""`fedloom compare`, `reproduce`, `report` and `demo`: tables, plots, nothing trained twice."""

import json
import re
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.talk import TINY, Said, fedloom, lines, run
from fedloom.claims import suite_table
from fedloom.runs.folder import RunFolder
from fedloom.settings import presets
from fedloom.settings.paper_table import table
from fedloom.settings.presets import Preset
from support import warm_python

METHODS = ("fedavg", "fedprox(mu=1)")


def compare(out: str, *words: object, methods: tuple[str, ...] = METHODS, code: int = 0) -> Said:
    command = ("compare", "--methods", ",".join(methods), *TINY, "--rounds", 2, "--out", out)
    return fedloom(*command, *words, code=code)


def results(folder: Path) -> dict[str, dict[str, Any]]:
    """The results of the runs of a comparison, by folder."""
    found = sorted(folder.rglob("result.json"))
    return {str(p.parent.relative_to(folder)): json.loads(p.read_text())["summary"] for p in found}


def shas(folder: Path) -> dict[str, str]:
    return {name: result["weights_sha256"] for name, result in results(folder).items()}


def picture(path: Path) -> np.ndarray:
    from matplotlib.image import imread

    return np.asarray(imread(path))


def test_a_comparison_has_a_row_per_method_over_its_seeds(desk: Path) -> None:
    said = compare("both", "--seeds", 2, "--seed", 3, "--json").json
    assert [row["name"] for row in said["rows"]] == list(METHODS)
    for row, method in zip(said["rows"], METHODS, strict=True):
        alone = [
            run(desk / f"{method}{seed}", "--method", method, "--seed", seed, rounds=2)
            for seed in (3, 4)
        ]
        curves = [[line["accuracy"] for line in lines(desk / f"{method}{seed}")] for seed in (3, 4)]
        assert {r["weights_sha256"] for r in alone} <= set(shas(desk / "both").values())
        # two rounds, so both belong to the last evaluations that are averaged
        assert row["accuracies"] == pytest.approx([statistics.fmean(c) for c in curves])
        assert row["accuracy"] == pytest.approx(statistics.fmean(row["accuracies"]))
        assert row["std"] == pytest.approx(statistics.stdev(row["accuracies"]))
        assert row["bytes"] == alone[0]["bytes_up"] + alone[0]["bytes_down"]
    assert said["targets"] == [pytest.approx(said["rows"][0]["accuracy"])]
    assert len(shas(desk / "both")) == 4


def test_seeds_are_counted_from_the_seed_of_the_settings_wherever_it_is_set(desk: Path) -> None:
    """A seed in a file or in --set was once silently taken for 0."""
    (desk / "own.toml").write_text("seed = 5\n")
    for out, *words in (
        ("set", "--set", "seed=5"),
        ("file", "--config", "own.toml"),
        ("flag", "--seed", 5),
    ):
        compare(out, "--seeds", 2, *words, methods=METHODS[:1])
    assert shas(desk / "set") == shas(desk / "file") == shas(desk / "flag")
    assert sorted(shas(desk / "set")) == ["fedavg/seed-5", "fedavg/seed-6"]


def test_the_printed_table_and_the_curves(desk: Path) -> None:
    said = compare("both", "--target", 0.2)
    assert all(
        re.search(rf"^{re.escape(method)} .*\d\d\.\d\d", said.out, re.MULTILINE)
        for method in METHODS
    )
    assert "20.0 %" in said.out and "both/curves.png" in said.out
    pixels = picture(desk / "both" / "curves.png")
    assert pixels.shape[0] > 300 and pixels.shape[1] > 600
    inked = (pixels[..., :3] < 0.9).any(axis=2)
    assert 0.005 < inked.mean() < 0.5
    colours = {tuple((255 * p).astype(int)) for p in pixels[inked][:, :3]}
    assert {(0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)} <= colours  # a line per method


def smooth(values: list[float], momentum: float) -> list[float]:
    """An exponential moving average by its definition."""
    line = values[:1]
    for value in values[1:]:
        line.append(momentum * line[-1] + (1 - momentum) * value)
    return line


def first(values: list[float], target: float) -> int | None:
    return next((number for number, value in enumerate(values, 1) if value >= target), None)


def test_accuracies_and_targets_of_a_moving_average(desk: Path) -> None:
    """Everything is computed again here from metrics.jsonl."""
    words = (
        "--rounds",
        4,
        "--seeds",
        2,
        "--ema",
        0.9,
        "--at",
        "2,4",
        "--target",
        0.2,
        "--target",
        0.999,
        "--json",
    )
    said = compare("both", *words).json
    assert (said["ema"], said["targets"], said["at"]) == (
        {"momentum": 0.9, "start": "first"},
        [0.2, 0.999],
        [2, 4],
    )
    for row in said["rows"]:
        folder = desk / "both" / row["name"].replace("(", "_").replace(")", "_")
        averages = [
            smooth([x["accuracy"] for x in lines(folder / f"seed-{s}")], 0.9) for s in (0, 1)
        ]
        assert row["accuracies"] == pytest.approx([a[-1] for a in averages]) and row["rounds"] == 4
        assert [x["round"] for x in row["at_rounds"]] == [2, 4]
        assert row["at_rounds"][0]["seeds"] == pytest.approx([a[1] for a in averages])
        assert row["at_rounds"][1]["accuracy"] == pytest.approx(row["accuracy"])
        near, far = row["to_targets"]
        assert near["seeds"] == [first(a, 0.2) for a in averages] and None not in near["seeds"]
        assert near["rounds"] == statistics.fmean(near["seeds"])
        assert far == {"target": 0.999, "rounds": None, "seeds": [None, None]}
    smoothed = picture(desk / "both" / "curves.png")
    told = compare("both", *words[:4], "--target", 0.2, "--at", 2)
    assert "at: mean of the last 4 evaluations;" in told.out and not np.array_equal(
        picture(desk / "both" / "curves.png"), smoothed
    )
    other = compare("both", *words[:-1], "--ema-start", "debiased")
    assert "moving average 0.9 per round, debiased;" in other.out and "4+" in other.out


def test_a_target_that_only_some_seeds_reach(desk: Path) -> None:
    compare("both", "--seeds", 4, methods=METHODS[:1])
    best = sorted(
        max(x["accuracy"] for x in lines(desk / "both" / "fedavg" / f"seed-{s}")) for s in range(4)
    )
    assert best[0] < best[-1]  # or there is no target that only some reach
    some = sum(b >= best[-1] for b in best)
    said = compare(
        "both", "--seeds", 4, "--target", best[-1], "--target", 0.999, methods=METHODS[:1]
    )
    assert re.search(rf"^fedavg .* 2\+ \({some} of 4\) +2\+ +\d+\.\d [kM]B", said.out, re.MULTILINE)


def files(folder: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_report_reads_runs_and_changes_nothing(desk: Path) -> None:
    """One of them is as a crash before its end leaves it."""
    whole = run(desk / "whole", "--method", "fedprox", rounds=4)
    run(desk / "seldom", "--set", "evaluate.every=2", rounds=5)
    (desk / "seldom" / "result.json").unlink()
    before = files(desk)
    words = ("report", "whole", "seldom", "--ema", 0.5, "--target", 0.999, "--at", 4)
    said = fedloom(*words)
    assert (
        "note: 'seldom' is not finished; these are its first 5 rounds" in said.flat
        and "'whole'" not in said.flat
    )
    assert re.search(r"^whole .* 4\+ ", said.out, re.MULTILINE) and re.search(
        r"^seldom .* 5\+ ", said.out, re.MULTILINE
    )
    assert "(not every round has one)" in said.out
    rows = fedloom(*words, "--json").json["rows"]
    assert [row["name"] for row in rows] == ["whole", "seldom"]
    assert rows[0]["bytes"] == whole["bytes_up"] + whole["bytes_down"]
    second, fourth, fifth = (x["accuracy"] for x in lines(desk / "seldom") if "accuracy" in x)
    two_rounds_on = second / 4 + fourth * 3 / 4
    assert rows[1]["accuracy"] == pytest.approx((two_rounds_on + fifth) / 2)
    assert rows[1]["at_rounds"][0]["accuracy"] == pytest.approx(two_rounds_on)
    assert files(desk) == before
    said = fedloom(*words, "--out", "seen", "--json").json
    assert (said["plots"]["curves"], said["folder"]) == ("seen/curves.png", "seen")
    assert picture(desk / "seen/curves.png").std() > 0


def test_all_runs_that_cannot_be_compared_are_named(desk: Path) -> None:
    run(desk / "short", rounds=2)
    RunFolder.create(desk / "new", (desk / "short" / "config.toml").read_text()).close()
    said = fedloom("report", "short", "new", "--at", 3, code=2).flat
    assert (
        "2 problems" in said
        and "'short': there is no accuracy at round 3: the run is evaluated from round 1 to 2"
        in said
    )
    assert "'new' has no evaluation yet; resume it first: fedloom resume new" in said
    for words in (("--rounds", 3), ("--seeds", 2), ("--set", "seed=1"), ("--methods", "fedavg")):
        said = fedloom("report", "short", *words, code=2).flat
        assert "No such option" in said and str(words[0]) in said


def test_a_run_prints_when_it_reached_its_target(desk: Path) -> None:
    near = fedloom(
        "run", *TINY, "--rounds", 2, "--set", "evaluate.target=0.01", "--out", "near"
    ).out
    far = fedloom("run", *TINY, "--rounds", 2, "--set", "evaluate.target=0.999", "--out", "far").out
    assert re.search(r"rounds to 1\.0 % +1 ", near) and re.search(r"rounds to 99\.9 % +2\+", far)


def test_a_finished_comparison_is_not_trained_again(desk: Path) -> None:
    first = compare("both", "--json")
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in desk.rglob("*/checkpoint/*")}
    again = compare("both", "--json")
    assert again.json == first.json and "round" not in again.err
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in before} == before


def test_a_comparison_trains_only_what_is_missing(desk: Path) -> None:
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


@pytest.mark.slow
def test_two_at_a_time_are_the_same_runs_and_a_failure_stops_no_other(desk: Path) -> None:
    (desk / "own.py").write_text(ILL)
    compare("one")
    words = (
        "compare",
        "--methods",
        ",".join((METHODS[0], "own.py:ill", METHODS[1])),
        *TINY,
        "--rounds",
        2,
        "--out",
        "two",
    )
    said = fedloom(*words, "--jobs", 2, code=1)
    assert re.search(
        r"failed: 1 runs did not finish, the first in 'two/own.py_ill/seed-0'; repeat the",
        said.flat,
    )
    assert shas(desk / "two") == shas(desk / "one") and len(shas(desk / "one")) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "code"), [(1, 2), (2, 1)])
def test_runs_that_are_refused_before_round_0_leave_no_folder(
    jobs: int, code: int, desk: Path
) -> None:
    """So that the corrected command does not meet runs with the wrong setting."""
    words = ("--set", "task=regression", "--partition", "iid", "--jobs", jobs)
    compare("both", *words, code=code)
    assert not list(desk.glob("both/**/config.toml"))
    compare("both", "--partition", "iid", "--jobs", jobs)
    assert len(shas(desk / "both")) == 2


def test_runs_of_an_earlier_version_of_user_code_are_rejected(desk: Path) -> None:
    """A comparison can be repeated, but not after the method it names was edited."""
    well = ILL.replace("nan", "1")
    (desk / "own.py").write_text(well)
    words = ("compare", "--methods", "fedavg,own.py:ill", *TINY, "--rounds", 2, "--out", "two")
    assert fedloom(*words, "--json").out == fedloom(*words, "--json").out
    (desk / "own.py").write_text(well.replace("1", "2"))
    said = fedloom(*words, code=2)
    assert "'two/own.py_ill/seed-0' holds a run of an earlier version of" in said.flat
    assert "own.py'" in said.flat
    assert "choose another --out, or delete that folder" in said.flat


TABLE = (
    *TINY,
    "--rounds",
    2,
    "--set",
    "data.classes=None",
    "--set",
    "data.pixels=None",
)
TABLE += (
    "--set",
    "data.partition=iid",
    "--set",
    "sample.name=uniform",
    "--set",
    "train.epochs=1",
    "--set",
    "data.per_class=30",
)


def test_a_table_of_a_paper_beside_its_printed_numbers(desk: Path) -> None:
    words = (
        "reproduce",
        "fedalign/table1",
        *TABLE,
        "--rows",
        "fedavg,fedavg+clip,fedprox",
        "--seeds",
        2,
        "--out",
        "table",
    )
    said = fedloom(*words)
    assert "scale small, reduced: 20 of 100 classes" in said.err and "6 of 6 runs to do" in said.err
    assert re.search(r"plan: 6 runs, 0 finished, 6 to do\n  fedavg: 2 x ", said.err)
    signed = r"[+-]\d+\.\d\d"
    interval = rf"(\[{signed}, {signed}\]|-)"  # none if the gain is the same on both seeds
    assert re.search(
        rf"^fedprox +\d+\.\d\d +{signed} {signed} +{signed} +{interval} +53\.0 ",
        said.out,
        re.MULTILINE,
    )
    assert "fair test: not known" in said.out and "2 seeds decide nothing" in said.out
    again = fedloom(*words, "--json")
    assert (
        "runs to do" not in again.err and again.json["scale"] == "small" and again.json["reduced"]
    )
    for figure in again.json["figures"]:
        curves = [
            [
                x["accuracy"]
                for x in lines(desk / "table" / figure["row"] / "accuracy" / f"seed-{s}")
            ]
            for s in (0, 1)
        ]
        assert figure["ours"] == pytest.approx([100 * statistics.fmean(c) for c in curves])
    assert (
        again.json["figures"][1]["printed"] is None
        and again.json["figures"][0]["printed"]["mean"] == 52.9
    )
    cell = ("--preset", "fedalign/table1", "--row", "fedavg+clip")
    alone = fedloom("run", *cell, *TABLE, "--out", "alone", "--json").json
    assert alone["weights_sha256"] == shas(desk / "table")["fedavg+clip/accuracy/seed-0"]
    settings = (desk / "alone" / "config.toml").read_text()
    assert "clip = 10.0" in settings and "per_class = 30" in settings and "pixels" not in settings


def use_table(monkeypatch: pytest.MonkeyPatch, made: Preset) -> None:
    """Let this be a table among the presets."""
    for module in (presets, suite_table):
        monkeypatch.setattr(module, "names", lambda: [made.name])
        monkeypatch.setattr(module, "preset", lambda name: made)


def printed(number: object, row: str) -> dict[str, Any]:
    return {"name": row, "settings": {"method": row}, "printed": [number, 40.0]}


TO_TARGET = {
    "about": {"title": "t", "shows": "s", "settings": "p", "reduced": "c"},
    "small": {},
    "columns": [
        {"name": "R", "measure": "rounds(to=0.999, ema=0.9)"},
        {"name": "at 2", "measure": "ema(at=2)"},
    ],
    "rows": [printed(924, "fedavg"), printed("1000+", "fedprox")],
}


def test_a_table_of_rounds_to_a_target(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Preset("made/table1", "", {}, table("made/table1", TO_TARGET))
    use_table(monkeypatch, made)
    words = ("reproduce", "made/table1", *TINY, "--seeds", 2, "--out", "table")
    rejected = fedloom(*words, "--rounds", 1, code=2).flat
    assert (
        "columns: 'at 2' is ema(at=2): there is no accuracy at round 2" in rejected
        and "--columns" in rejected
    )
    assert not (desk / "table").exists()
    said = fedloom(*words, "--rounds", 3).out
    assert "R: rounds to 99.9 % on the moving average" in said
    assert "at 2: moving average" in said
    assert re.search(r"^fedavg +3\+ +- +- +- +924 +- ", said, re.MULTILINE)
    assert re.search(r"^fedprox +3\+ +- +- +- +1000\+ +- ", said, re.MULTILINE)
    never, *_, smoothed = fedloom(*words, "--rounds", 3, "--json").json["figures"]
    assert never["gains"] == {} and never["interval"] is None and never["sign"] == "-"
    assert (never["ours"], never["mean"], never["rounds"]) == ([None, None], None, 3)
    curves = [
        [x["accuracy"] for x in lines(desk / "table" / "fedprox" / "R" / f"seed-{s}")]
        for s in (0, 1)
    ]
    assert smoothed["ours"] == pytest.approx([100 * smooth(c, 0.9)[1] for c in curves])


CHOICES = {
    **TO_TARGET,
    "columns": [{"name": "end"}],
    "methods": {"any": {"method": "{}"}},
    "rows": [
        {"name": "any", "choose": 1, "among": "fedavg fedprox scaffold", "printed": [[50.0, 2.0]]},
        {"name": "both", "settings": {"method": "fedavgm"}, "printed": [60.0]},
    ],
}


def test_rows_that_are_choices_are_averaged_beside_the_printed_number(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Preset("made/table1", "", {}, table("made/table1", CHOICES))
    use_table(monkeypatch, made)
    words = (
        "reproduce",
        "made/table1",
        *TINY,
        "--rounds",
        2,
        "--seeds",
        2,
        "--out",
        "table",
    )
    said = fedloom(*words, "--json").json
    assert [(f["row"], f["printed"] and f["printed"]["mean"]) for f in said["figures"]] == [
        ("fedavg", None), ("fedprox", None), ("scaffold", None), ("both", 60.0)
    ]  # fmt: skip
    (together,) = said["choices"]
    means = [f["mean"] for f in said["figures"][:3]]
    assert (together["row"], together["ours"], together["printed"]["mean"]) == (
        "1 of 3",
        means,
        50.0,
    )
    assert together["mean"] == pytest.approx(statistics.fmean(means)) and together[
        "std"
    ] == pytest.approx(statistics.stdev(means))
    shown = fedloom(*words).out
    assert re.search(r"^fedprox +\d+\.\d\d .* +- +- *$", shown, re.MULTILINE)
    assert re.search(
        rf"^1 of 3 +3 +{together['mean']:.2f} +{together['std']:.2f} +50\.0 ± 2\.0",
        shown,
        re.MULTILINE,
    )
    part = fedloom(*words, "--rows", "fedavg,both", "--json").json["choices"]
    assert [f["ours"] for f in part] == [means[:1]]


REJECTED = {
    # a paper's table says itself which figures it needs and which methods it has
    "reproduce fedalign/table1 --target 0.4": ("No such option", "--target"),
    "reproduce fedalign/table1 --ema 0.9": ("No such option", "--ema"),
    "reproduce fedalign/table1 --at 5": ("No such option", "--at"),
    "reproduce fedalign/table1 --methods fedavg": ("No such option", "--methods"),
    "reproduce fedalign/table1 --rows fedalin": ("no row 'fedalin'; did you mean 'fedalign'?",),
    "reproduce fedalign/tabel1": ("no table 'fedalign/tabel1'; did you mean 'fedalign/table1'?",),
    "reproduce demo": ("preset 'demo' is a single run", "fedloom run --preset demo"),
    "reproduce": ("name a table, such as fedalign/table1",),
    "report": ("Missing argument 'RUN...'",),
    "compare --methods fedavg --target 0.4 --target 47": (
        "--target 47.0 must lie between 0 and 1",
        "for example 0.8",
    ),
    "compare --methods fedavg --ema 1": (
        "--ema 1.0 must be at least 0 and below 1",
        "for example 0.9",
    ),
    "compare --methods fedavg --ema nan": ("--ema nan must be at least 0 and below 1",),
    "compare --methods fedavg --ema 0.9 --ema-start zero": (
        "no --ema-start 'zero'",
        "debiased, first",
    ),
    "compare --methods fedavg --ema-start first": (
        "--ema-start first needs a moving average",
        "--ema 0.9",
    ),
    "compare --methods fedavg --at 2,x": ("--at 2,x: 'x' is not a round", "--at 500,1000"),
    "compare --methods fedavg --at 0": ("--at 0: '0' is not a round",),
    "compare --methods fedavg --at ,": ("--at ,: ',' is not a round",),
    "compare --methods fedavg --data tiny --rounds 2 --at 3": (
        "no accuracy at round 3",
        "from round 1 to 2",
        "ask for 1 to 2",
    ),
    "report nowhere": ("nowhere is not the folder of a run", "fedloom run"),
    "compare --preset fedalign/table1 --methods fedavg": (
        "is a table",
        "fedloom reproduce fedalign/table1",
    ),
    "compare --preset demo --methods fedavg --rows fedavg": ("No such option", "--rows"),
    "compare runs/fedavg": ("unexpected extra argument (runs/fedavg)",),
    "compare --methods fedavg,fedavg": ("--methods fedavg,fedavg names a method twice",),
    "reproduce fedalign/table1 --scale big": ("no scale 'big'", "paper, small"),
    "reproduce fedalign/table1 --columns H_T": (
        "column 'H_T' of 'fedalign/table1' cannot be computed from a run's accuracies",
    ),
    "reproduce fedalign/table1": (
        "there is no data set 'cifar100'",
        "fedloom data add cifar100 --from PATH",
    ),
    "compare --rounds 2": ("--methods names no method", "fedloom methods"),
    "run --preset fedalign/table1": (
        "is a table",
        "fedloom reproduce fedalign/table1",
        "--row NAME (rows: fedavg, ",
    ),
    "run --preset fedalign/table1 --row fedalin": ("no row 'fedalin'; did you mean 'fedalign'?",),
    "run --preset demo --row fedavg": (
        "preset 'demo' is a single run",
        "leave out --row and --column",
    ),
    "run --data tiny --model mlp --set data.pixels=9": (
        "data.pixels=9 is more than the 8 x 8 pixels of 'tiny'",
    ),
    "run --data tiny --set data.classes=1": (
        "data.classes=1 should be greater than or equal to 2 (keep only this many classes",
    ),
}


@pytest.mark.parametrize("command", REJECTED)
def test_wrong_commands_say_what_is_wrong_and_write_nothing(command: str, desk: Path) -> None:
    said = fedloom(*command.split(), code=2).flat
    assert all(piece in said for piece in REJECTED[command]), said
    assert list(desk.iterdir()) == []


@pytest.mark.slow
def test_the_demo(desk: Path) -> None:
    """As a newcomer starts it; the pages and pictures that it names and every command exist."""
    process = warm_python.run("-m", "fedloom", "demo", "--quick")
    assert process.returncode == 0 and "Traceback" not in process.stderr, process.stderr
    folder = desk / "runs" / "demo-quick"
    for method in ("fedavg", "fedalign", "fedmlb", "fedmix", "finetune", "crt", "fedafa"):
        assert re.search(rf"^{method}.* \d\d\.\d\d", process.stdout, re.MULTILINE), method
    for page in re.findall(r"^  (runs/\S+\.html)$", process.stdout, re.MULTILINE):
        assert (desk / page).read_text(encoding="utf-8").count("<svg") >= 4
    assert len(list(folder.glob("*.html"))) == 2
    assert picture(folder / "demo.png").std() > 0
    assert picture(folder / "longtail" / "personal.png").std() > 0
    assert len(results(folder / "demo")) == len(results(folder / "longtail")) == 4
    for name in set(re.findall(r"^  fedloom (\w+)", process.stdout, re.MULTILINE)):
        assert "Usage: " in fedloom(name, "--help").out
    facts = json.loads(fedloom("demo", "--quick", "--json").out)  # nothing is trained again
    assert {len(facts["comparisons"][name]["rows"]) for name in facts["pages"]} == {4}
    assert all((desk / path).is_file() for path in (*facts["pages"].values(), facts["picture"]))
