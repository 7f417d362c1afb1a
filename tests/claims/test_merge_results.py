"""A suite that was run seed by seed gives the result file of the whole suite."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedloom.claims.collect import collect, finished_runs
from fedloom.claims.merge_results import merged, merged_log, merged_settings
from fedloom.claims.plan_suite import SuitePlan, only_seed
from fedloom.claims.row_files import suite_rows, write_rows
from fedloom.claims.suites import suite
from fedloom.core.errors import UserError
from support.made_up_runs import plan

ROWS = {
    "fedavg": [[0.2, 0.3, 0.4], [0.1, 0.2, 0.5], [0.3, 0.4, 0.45]],
    "fedmix": [[0.4, 0.5, 0.6], [0.3, 0.5, 0.55], [0.2, 0.5, 0.6]],
    "same": [[0.2, 0.3, 0.4], [0.1, 0.2, 0.5], [0.3, 0.4, 0.45]],
}
GATE = ({"kind": "score", "of": "fedavg", "above": 35.0},)


def part(whole: SuitePlan, *seeds: int) -> SuitePlan:
    """The plan with these seeds alone, over the same run folders."""
    cells = []
    for cell in whole.cells:
        runs = tuple(run for run in cell.cell.runs if run.seed in seeds)
        cells.append(replace(cell, cell=replace(cell.cell, runs=runs)))
    return SuitePlan(replace(whole.suite, seeds=seeds), tuple(cells))


def row_files(made: SuitePlan, folder: Path) -> dict[str, str]:
    rows = suite_rows(made, finished_runs(made.runs))
    return {file.name: file.read_text() for file in write_rows(list(rows.values()), folder, "x")}


@pytest.fixture
def whole(tmp_path: Path) -> SuitePlan:
    made = plan(tmp_path / "runs", ROWS, rounds=3)
    return replace(made, suite=replace(made.suite, id="mix-lenet", gate=GATE))


def by_cell(result: dict[str, Any]) -> dict[str, Any]:
    return {f"{f['preset']} {f['row']} {f['column']}": f for f in result["figures"]}


def test_seeds_that_ran_apart_give_the_result_of_the_whole(whole: SuitePlan) -> None:
    at_once = collect(whole)
    apart = merged(
        merged(collect(part(whole, 1)), collect(part(whole, 0))), collect(part(whole, 2))
    )
    assert by_cell(apart) == by_cell(at_once)
    assert apart["runs"] == sorted(at_once["runs"], key=lambda run: (run["seed"], run["file"]))
    assert apart["machine"] == at_once["machine"] and apart["commit"] == at_once["commit"]
    assert apart["gate"]["met"] is True and "seeds 0, 1: " in apart["gate"]["why"]


def test_a_reported_run_is_not_replaced_by_a_repeated_one(whole: SuitePlan) -> None:
    old, new = collect(part(whole, 0, 1)), collect(part(whole, 1, 2))
    new["figures"][0]["by_seed"]["1"] = 7.0
    again = next(run for run in new["runs"] if run["seed"] == 1)
    again["seconds"] = -1.0
    found = merged(old, new)
    assert found["figures"][0]["by_seed"] == {"0": 40.0, "1": 50.0, "2": 45.0}
    assert again not in found["runs"]
    assert merged(new, old)["figures"][0]["by_seed"]["1"] == 7.0
    assert merged_log("seed,accuracy\n1,0.5\n", "seed,accuracy\n1,0.7\n2,0.6\n") == (
        "seed,accuracy\n1,0.5\n2,0.6\n"
    )


def test_further_rows_of_the_same_seeds_leave_the_gate_as_it_was(whole: SuitePlan) -> None:
    old, new = collect(whole), collect(whole)
    row = new["figures"][0]["row"]
    old["figures"] = [figure for figure in old["figures"] if figure["row"] == row]
    old["runs"] = [run for run in old["runs"] if run["rows"][0]["row"] == row]
    new["gate"] = {"met": False, "why": "another machine"}
    found = merged(old, new)
    assert {figure["row"] for figure in found["figures"]} == set(ROWS)
    assert found["gate"] == old["gate"]


def test_a_gate_that_only_one_part_meets_is_not_known(whole: SuitePlan) -> None:
    gate = ({"kind": "score", "of": "fedavg", "above": 42.0},)
    asked = replace(whole, suite=replace(whole.suite, gate=gate))
    low, high = collect(part(asked, 0)), collect(part(asked, 1, 2))
    assert (low["gate"]["met"], high["gate"]["met"]) == (False, True)
    assert merged(low, high)["gate"]["met"] is None
    assert merged(low, low)["gate"]["met"] is False


def test_a_run_that_gave_up_elsewhere_and_is_finished_now(whole: SuitePlan) -> None:
    old, new = collect(part(whole, 0)), collect(part(whole, 1))
    old["gave_up"] = [new["runs"][0]["folder"], "fedmix/seed-9"]
    assert merged(old, new)["gave_up"] == ["fedmix/seed-9"]


@pytest.mark.parametrize("field", ["suite", "scale"])
def test_files_of_other_suites_are_refused(whole: SuitePlan, field: str) -> None:
    old, new = collect(part(whole, 0)), collect(part(whole, 1))
    with pytest.raises(UserError, match=f"differ in {field}: 'other'"):
        merged({**old, field: "other"}, new)


def test_different_commits_and_machines_are_all_named(whole: SuitePlan) -> None:
    old, new = collect(part(whole, 0)), collect(part(whole, 1))
    old |= {"commit": "aaaa", "fixed_at": "f1", "machine": {"cpu": "A", "torch": "2"}}
    new |= {"commit": "bbbb", "fixed_at": "f2", "machine": {"cpu": ["A", "B"], "torch": "2"}}
    found = merged(old, new)
    assert found["commit"] == "aaaa, bbbb" and found["fixed_at"] == "f1"
    assert found["machine"] == {"cpu": ["A", "B"], "torch": "2"}
    assert merged(old, {**new, "fixed_at": ""})["fixed_at"] == ""


def test_files_of_rows_are_those_of_the_whole(whole: SuitePlan, tmp_path: Path) -> None:
    at_once = row_files(whole, tmp_path / "whole")
    first, rest = (
        row_files(part(whole, 1), tmp_path / "a"),
        row_files(part(whole, 0, 2), tmp_path / "b"),
    )
    for name, text in at_once.items():
        merge = merged_log if name.endswith(".csv") else merged_settings
        found = merge(first[name], rest[name])
        assert found == text if name.endswith(".csv") else "# Seeds: 0, 1, 2." in found


def test_a_seed_in_the_name_of_a_suite_is_no_list_of_seeds(
    whole: SuitePlan, tmp_path: Path
) -> None:
    """mlb50 had its 0 replaced by all seeds."""
    old, new = (
        row_files(part(whole, *seeds), tmp_path / str(seeds))["fedavg.toml"].replace(
            "# Suite ", "# Suite run0 of "
        )
        for seeds in ((1, 2), (0,))
    )
    first, second = merged_settings(old, new).splitlines()[:2]
    assert first == new.splitlines()[0] and second.startswith("# Seeds: 0, 1, 2.")


def test_rows_with_other_settings_are_refused(whole: SuitePlan, tmp_path: Path) -> None:
    text = row_files(part(whole, 1), tmp_path)["fedavg.toml"]
    with pytest.raises(UserError, match="settings of a row differ"):
        merged_settings(text.replace("rounds = 3", "rounds = 4"), text)
    with pytest.raises(UserError, match="begin differently"):
        merged_log("seed,round\n0,1\n", "seed,round,more\n0,1,2\n")


def test_one_seed_of_a_suite() -> None:
    lenet = suite("mix-lenet")
    assert only_seed(lenet, None) is lenet
    assert {group.seeds for group in only_seed(lenet, 1).runs} == {(1,)}
    assert len(only_seed(lenet, 4).runs) == len(lenet.runs) - 1  # one group has three seeds only
    with pytest.raises(UserError, match=r"seed 7 is not one of suite 'mix-lenet'.*0, 1, 2, 3, 4"):
        only_seed(lenet, 7)
