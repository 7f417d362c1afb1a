"""Settings and logs of a suite's rows, from made-up run folders."""

import csv
import hashlib
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from fedloom.claims.collect import collect, write_results, write_row_files
from fedloom.claims.plan_suite import SuitePlan
from fedloom.claims.row_files import read_log
from fedloom.core.errors import UserError
from fedloom.runs.folder_layout import CONFIG, METRICS
from fedloom.settings.config import load
from support.made_up_runs import plan

ROWS = {
    "fedavg": [[0.2, 0.3, 0.4], [0.1, 0.2, 0.512345678]],
    "fedmix": [[0.4, 0.5, 0.6], []],
    "same": [[0.2, 0.3, 0.4], [0.1, 0.2, 0.512345678]],
    "not run": [[], []],
}


@pytest.fixture
def made(tmp_path: Path) -> SuitePlan:
    return plan(tmp_path / "runs", ROWS, rounds=3, losses=[1.23456, 0.5, 0.25])


def written(made: SuitePlan, folder: Path) -> Path:
    file = write_results(collect(made), folder, "made-up")
    write_row_files(made, file)
    return folder / "made-up"


def test_every_run_names_its_rows_files_and_checksums(made: SuitePlan, tmp_path: Path) -> None:
    runs = collect(made)["runs"]
    assert [(run["file"], run["seed"], run["rounds"]) for run in runs] == [
        ("fedavg", 0, 3), ("fedmix", 0, 3), ("same", 0, 3), ("fedavg", 1, 3), ("same", 1, 3),
    ]  # fmt: skip
    assert runs[0]["rows"] == [{"preset": "fedmix/table1-cifar10", "row": "fedavg"}]
    folder = tmp_path / "runs" / "fedavg" / "seed-0"
    for key, name in (("config_sha256", CONFIG), ("log_sha256", METRICS)):
        assert runs[0][key] == hashlib.sha256((folder / name).read_bytes()).hexdigest()


def test_a_log_has_a_line_per_seed_and_round(made: SuitePlan, tmp_path: Path) -> None:
    folder = written(made, tmp_path / "found")
    lines = list(csv.reader((folder / "fedavg.csv").open()))
    assert lines[0] == ["seed", "round", "train_loss", "accuracy"]
    assert lines[1] == ["0", "1", "1.235", "0.2"] and lines[6] == ["1", "3", "0.25", "0.512346"]
    assert len(lines) == 7
    log = read_log(folder / "fedavg.csv")
    assert log.curves[0] == {1: 0.2, 2: 0.3, 3: 0.4} and log.last_round == {0: 3, 1: 3}
    assert log.shared is None


def test_rows_with_the_same_rounds_do_not_repeat_them(made: SuitePlan, tmp_path: Path) -> None:
    folder = written(made, tmp_path / "found")
    text = (folder / "same.csv").read_text()
    assert text.startswith("# the rounds are those of fedavg.csv\nseed,") and text.count("\n") == 4
    log = read_log(folder / "same.csv")
    assert log.shared == "fedavg" and log.last_round == {0: 3, 1: 3}


def test_the_settings_run_again_as_they_were(made: SuitePlan, tmp_path: Path) -> None:
    text = (written(made, tmp_path / "found") / "fedavg.toml").read_text()
    assert text.startswith("# Suite made-up: fedavg of fedmix/table1-cifar10\n# Seeds: 0, 1.")
    settings = tomllib.loads(text)
    assert "seed" not in settings
    with_seed = load({**settings, "seed": 1}).text()
    assert (tmp_path / "runs" / "fedavg" / "seed-1" / CONFIG).read_text().endswith(with_seed)


def test_rows_without_a_finished_run_have_no_files(made: SuitePlan, tmp_path: Path) -> None:
    names = {file.name for file in written(made, tmp_path / "found").iterdir()}
    assert names == {f"{row}.{s}" for row in ("fedavg", "fedmix", "same") for s in ("toml", "csv")}
    assert str(tmp_path) not in (tmp_path / "found" / "made-up" / "fedavg.toml").read_text()


def test_rows_of_the_same_name_have_files_of_their_own(tmp_path: Path) -> None:
    first = plan(tmp_path / "a", {"fedavg": [[0.1]]})
    second = plan(tmp_path / "b", {"fedavg": [[0.2]]})
    other = [replace(cell, preset="fedmix/table5") for cell in second.cells]
    both = replace(first, cells=(*first.cells, *other))
    assert [run["file"] for run in collect(both)["runs"]] == ["fedavg", "table5_fedavg"]


def test_another_file_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match=r"'x\.csv' is not the log of a row"):
        read_log(tmp_path / "x.csv")
