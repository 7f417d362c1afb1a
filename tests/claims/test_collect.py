"""Result files from made-up run folders, and how the result files' reader takes them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedloom.claims.collect import collect, write_results
from fedloom.claims.plan_suite import SuitePlan, only_seed, suites_for, with_seeds
from fedloom.claims.result_files import parse_result
from fedloom.claims.suites import Analysis, Target, suites
from support.made_up_runs import plan

ROWS = {"fedavg": [[0.2, 0.3, 0.4], [0.1, 0.2, 0.5]], "fedmix": [[0.4, 0.5, 0.6], []]}


def test_figures_are_by_seed_and_only_of_finished_runs(tmp_path: Path) -> None:
    found = collect(plan(tmp_path, ROWS, rounds=3))
    figures = {figure["row"]: figure for figure in found["figures"]}
    assert figures["fedavg"]["by_seed"] == {"0": 40.0, "1": 50.0}
    assert figures["fedmix"]["by_seed"] == {"0": 60.0} and figures["fedmix"]["rounds"] == 3
    assert (found["format"], found["suite"], found["gate"]["met"]) == (1, "made-up", None)
    assert len(found["runs"]) == 3
    first = found["runs"][0]
    assert first["folder"] == "fedavg/seed-0" and len(first["config_sha256"]) == 64
    assert first["weights_sha256"] == "0" * 64 and first["seconds"] == 6.0


def test_a_target_relative_to_another_row(tmp_path: Path) -> None:
    target = Target("end", "fedavg", "accuracy(last=1)", plus=5.0)
    found = collect(plan(tmp_path, ROWS, rounds=3, targets=[target]))
    by_row = {figure["row"]: figure["by_seed"] for figure in found["figures"]}
    assert by_row == {"fedavg": {"0": None, "1": None}, "fedmix": {"0": 2}}
    times = Target("end", "fedavg", "accuracy(last=1)", times=0.5)
    found = collect(plan(tmp_path / "b", ROWS, rounds=3, targets=[times]))
    by_row = {figure["row"]: figure["by_seed"] for figure in found["figures"]}
    assert by_row == {"fedavg": {"0": 1, "1": 3}, "fedmix": {"0": 1}}


def with_analysis(made: SuitePlan) -> SuitePlan:
    wanted = Analysis(("eigen",), 10, 3, {"lambda_max": ("eigen", "values", 0)})
    cells = [replace(c, group=replace(c.group, analysis=wanted)) for c in made.cells]
    return replace(made, cells=tuple(cells))


def test_columns_of_an_analysis(tmp_path: Path) -> None:
    made = with_analysis(plan(tmp_path, {"fedavg": [[0.1], [0.2]]}))
    for seed, samples in enumerate((10, 20)):  # the second analysis was made at another cost
        folder = tmp_path / "fedavg" / f"seed-{seed}" / "analysis"
        folder.mkdir()
        options = {"only": ["eigen"], "samples": samples, "probes": 3}
        facts = {"options": options, "eigen": {"values": [7.5, 1.0]}}
        (folder / "analysis.json").write_text(json.dumps(facts))
    figures = {figure["column"]: figure for figure in collect(made)["figures"]}
    assert figures["lambda_max"]["by_seed"] == {"0": 7.5}
    assert figures["lambda_max"]["metric"] == "eigen.values.0"


def test_the_file_is_read_by_the_verdicts(tmp_path: Path) -> None:
    result = collect(plan(tmp_path, ROWS, rounds=3), "abc")
    file = write_results(result, tmp_path / "results", "made-up")
    assert file.name == "made-up.json"
    read = parse_result(file.read_text(), file.name)
    assert read.commit == "abc" and read.gate.met is None
    assert read.figures[0].by_seed == {0: 40.0, 1: 50.0}


def test_the_commit_is_empty_where_runs_do_not_say_what_made_them(tmp_path: Path) -> None:
    assert collect(plan(tmp_path, ROWS, rounds=3))["commit"] == ""


def test_settings_of_the_user_are_named_and_nothing_was_fixed_for_them(tmp_path: Path) -> None:
    made = plan(tmp_path, ROWS, rounds=3)
    own = replace(made, suite=replace(made.suite, id="mix-lenet"))
    assert collect(own)["changed"] == [] and collect(own)["scale"] == "made up"
    found = collect(replace(own, changes=("rounds=3",)), "HEAD")
    assert found["scale"] == "made up; changed: rounds=3" and found["changed"] == ["rounds=3"]
    assert found["gate"]["met"] is None and "changed: rounds=3" in found["gate"]["why"]
    assert found["fixed_at"] == ""


@pytest.mark.parametrize("count", [3, 6])
def test_more_seeds_than_were_fixed_are_an_extension(tmp_path: Path, count: int) -> None:
    made = plan(tmp_path, ROWS, rounds=3)
    suite = replace(made.suite, id="mlb50", seeds=tuple(range(count)), gate=())
    assert collect(replace(made, suite=suite))["extended"] is (count > 3)


@pytest.mark.parametrize(
    ("name", "count", "seed", "extended"),
    [
        ("mlb50", 6, 1, False),  # one of the seeds that were fixed
        ("mlb50", 6, 4, True),  # a seed of the extension, run alone, to be merged
        ("mix-lenet", None, None, False),
        ("mix-lenet", 5, None, True),  # some of its rows were fixed at three seeds
        ("fedmix/lam-fedmix-falls", 5, None, True),
        ("fedmix/cifar10-localmix-no-help", 5, None, False),
    ],
)
def test_seeds_beyond_those_fixed_for_a_row_are_an_extension(
    tmp_path: Path, name: str, count: int | None, seed: int | None, extended: bool
) -> None:
    chosen = suites()[name] if name in suites() else suites_for(name)[0]
    suite = only_seed(with_seeds(chosen, count), seed)
    nothing_run = SuitePlan(replace(suite, gate=()), ())
    assert collect(nothing_run, "")["extended"] is extended
