"""Other data are rejected wherever a run is continued, compared or looked at; the rest is noted."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.talk import TINY, Said, fedloom, run, write_tiny
from fedloom.experiment import build
from fedloom.runs.durable_files import unseal
from fedloom.settings import presets
from fedloom.settings.paper_table import table
from fedloom.settings.presets import Preset

Arrays = dict[str, np.ndarray]
OWN_DATA = ("--data", "own")


def add(desk: Path, change: Callable[[Arrays], None] = lambda arrays: None) -> None:
    """Store the tiny data set under the name 'own', in place of an earlier one."""
    with np.load(write_tiny(desk / "own.npz")) as file:
        arrays = dict(file)
    change(arrays)
    np.savez(desk / "own.npz", **arrays)
    fedloom("data", "add", "own", "--from", desk / "own.npz", "--replace")


def two_swapped(arrays: Arrays) -> None:
    """Two samples of the same class change places: even mean and std stay as they are."""
    arrays["x_train"][[0, 4]] = arrays["x_train"][[4, 0]]


def one_test_label(arrays: Arrays) -> None:
    arrays["y_test"][0] = (arrays["y_test"][0] + 1) % 4


def interrupt(folder: Path) -> None:
    """Make a run of three rounds look as if it had been stopped after two."""
    (folder / "result.json").unlink()
    for file in folder.glob("checkpoint/*-3.*"):
        file.unlink()


def manifest(folder: Path) -> dict[str, Any]:
    path = max(folder.glob("checkpoint/MANIFEST-*.json"))
    return unseal(path.read_bytes()) or {}


def assert_rejected(said: Said, folder: Path, recorded: str, what: str) -> None:
    assert f"'{folder}' was made with data 'own' (sha256 {recorded[:12]})" in said.flat
    assert (
        ", and the data now are 'own' (sha256 " in said.flat and f": {what} differ; " in said.flat
    )


@pytest.fixture
def made(desk: Path) -> tuple[Path, str]:
    """A finished run on the data set 'own', and the checksum of these data."""
    add(desk)
    run(desk / "plain", *OWN_DATA)
    fedloom("export", desk / "plain", "--weights-only", "--out", desk / "exported")
    exported = json.loads((desk / "exported" / "global.json").read_text())
    return desk / "plain", exported["data_sha256"]


def test_result_and_manifest_hold_the_identity(made: tuple[Path, str], desk: Path) -> None:
    said = run(desk / "again", *OWN_DATA)["identity"]
    for folder in (made[0], desk / "again"):
        kept = manifest(folder)["identity"]
        assert {**said, "code": {}, "changes": []} == kept
    assert said["data"]["name"] == "own" and said["data"]["content"]["train_samples"] == 240
    assert {"fedloom", "source", "torch", "numpy", "python", "cpu"} <= said["made_with"].keys()
    other = run(desk / "seed", *OWN_DATA, "--seed", 1)["identity"]["data"]
    assert other["content"] == said["data"]["content"]
    assert other["partition"] != said["data"]["partition"]


@pytest.mark.parametrize(
    ("change", "what"),
    [(two_swapped, "the training samples"), (one_test_label, "the test samples")],
    ids=["train", "test"],
)
def test_data_replaced_between_stop_and_resume_are_rejected(
    made: tuple[Path, str], desk: Path, change: Callable[[Arrays], None], what: str
) -> None:
    folder, recorded = made
    interrupt(folder)
    add(desk, change)
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert_rejected(fedloom("resume", folder, code=2), folder, recorded, what)
    assert_rejected(fedloom("resume", folder, "--client", 0, code=2), folder, recorded, what)
    assert {p: p.read_bytes() for p in before} == before
    add(desk)
    fedloom("resume", folder)


def test_data_replaced_between_two_comparisons_are_rejected(desk: Path) -> None:
    add(desk)
    words = ("compare", *TINY, *OWN_DATA, "--rounds", 2, "--out", "all", "--methods")
    fedloom(*words, "fedavg")
    fedloom(*words, "fedavg,fedprox")
    add(desk, two_swapped)
    recorded = manifest(desk / "all/fedavg/seed-0")["identity"]["data"]["content"]["train"]
    said = fedloom(*words, "fedavg,fedprox,fedavgm", code=2)
    assert "'all/fedavg/seed-0' was made with data 'own'" in said.flat
    assert "the training samples differ; choose another --out" in said.flat
    assert not (desk / "all/fedavgm").exists()
    kept = manifest(desk / "all/fedavg/seed-0")["identity"]["data"]["content"]["train"]
    assert kept == recorded


def test_data_replaced_before_rounds_of_are_rejected(made: tuple[Path, str], desk: Path) -> None:
    folder, recorded = made
    add(desk, two_swapped)
    words = ("run", *TINY, *OWN_DATA, "--rounds", 3, "--method", "finetune", "--rounds-of", folder)
    said = fedloom(*words, "--out", "new", code=2)
    assert_rejected(said, folder, recorded, "the training samples")
    assert not (desk / "new").exists()
    add(desk)
    fedloom(*words, "--out", "new")


def test_models_of_replaced_data_are_rejected(made: tuple[Path, str], desk: Path) -> None:
    folder, recorded = made
    add(desk, two_swapped)
    for words in (
        ("analyze", folder, "--only", "drift"),
        ("export", folder),
        ("report", folder, "--client", 0, "--out", "plots"),
        ("report", folder, "--compute", "--out", "plots"),
    ):
        assert_rejected(fedloom(*words, code=2), folder, recorded, "the training samples")
    assert not (folder / "analysis").exists() and not (folder / "export").exists()


def test_runs_on_different_data_are_not_compared(made: tuple[Path, str], desk: Path) -> None:
    folder, recorded = made
    fedloom("report", folder)
    add(desk, one_test_label)
    run(desk / "later", *OWN_DATA)
    said = fedloom("report", folder, desk / "later", code=2)
    assert f"'{folder}' was made with data 'own' (sha256 {recorded[:12]})" in said.flat
    assert f"'{desk / 'later'}' with 'own' (sha256 " in said.flat
    assert "the test samples differ; compare runs on the same data" in said.flat


def test_another_partition_is_rejected(
    made: tuple[Path, str], desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a version of fedloom splits the same data with the same settings in another way."""
    folder, _ = made
    split = build.partition

    def reversed_clients(*args: Any) -> list[np.ndarray]:
        return split(*args)[::-1]

    monkeypatch.setattr(build, "partition", reversed_clients)
    said = fedloom("export", folder, code=2)
    assert "the samples of each client (partition " in said.flat
    run(desk / "other", *OWN_DATA)
    said = fedloom("report", folder, desk / "other", code=2)
    assert "the samples of each client (partition " in said.flat


def test_seeds_and_partitions_that_differ_by_settings_are_compared(desk: Path) -> None:
    run(desk / "a", rounds=2)
    run(desk / "b", "--seed", 1, rounds=2)
    run(desk / "c", "--partition", "iid", rounds=2)
    said = fedloom("report", "a", "b", "--json").json
    assert said["notes"] == []
    notes = fedloom("report", "a", "b", "c", "--json").json["notes"]
    assert "data.partition.name differs: 'dirichlet' in 'a', 'b'; 'iid' in 'c'" in notes


def test_a_comparison_of_different_settings_says_so(desk: Path) -> None:
    run(desk / "a", "--engine", "inprocess", rounds=2)
    run(desk / "b", "--method", "fedprox", "--lr", 0.1, rounds=2)
    run(desk / "c", "--set", "checkpoint_every=2", rounds=3)
    expected = ["rounds differs: 2 in 'a', 'b'; 3 in 'c'"]
    expected += ["train.lr differs: 0.05 in 'a', 'c'; 0.1 in 'b'"]
    assert fedloom("report", "a", "b", "c", "--json").json["notes"] == expected
    said = fedloom("report", "a", "b", "c")
    shown = " ".join(said.out.split())
    assert all(f"note: {note}" in shown for note in expected)
    assert shown.index("std: over seeds") < shown.index("note: rounds")


MODEL = """
import sys
sys.path.insert(0, {folder!r})
from torch import nn
from sizes import WIDTH

def model(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, WIDTH), nn.Linear(WIDTH, classes))
"""


def test_an_edited_import_of_a_user_file_is_noted(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (desk / "own.py").write_text(MODEL.format(folder=str(desk)))
    (desk / "sizes.py").write_text("WIDTH = 4\n")
    result = run(desk / "a", "--model", "own.py:model")
    assert list(result["identity"]["code"]) == [str(desk / "own.py"), str(desk / "sizes.py")]
    interrupt(desk / "a")
    (desk / "sizes.py").write_text("WIDTH = 2 * 2\n")
    resumed = fedloom("resume", "a", "--trust", "--json")
    assert f"note: '{desk / 'sizes.py'}' was edited after the last checkpoint" in resumed.flat
    change = f"after round 2, '{desk / 'sizes.py'}' was edited"
    assert resumed.json["identity"]["changes"] == [change]
    assert f"'a': {change}" in fedloom("report", "a", "--json").json["notes"]
    (desk / "sizes.py").write_text("WIDTH = 2 + 2\n")
    words = ("run", *TINY, "--rounds", 3, "--model", "own.py:model", "--method", "finetune")
    said = fedloom(*words, "--rounds-of", "a", "--out", "new", code=2)
    assert f"an earlier version of '{desk / 'sizes.py'}'; leave out --rounds-of" in said.flat
    sys.modules.pop("sizes", None)


LENET = (
    *("--data", "fashion-mnist", "--set", "data.per_class=20", "--clients", 4, "--per-round", 2),
    *("--model", "lenet5", "--rounds", 3, "--engine", "inprocess", "--json"),
)


def separately(*words: object, **settings: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, with these environment variables."""
    command = [sys.executable, "-m", "fedloom", *map(str, words)]
    environment = {**os.environ, **settings}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value"), [("ONEDNN_MAX_CPU_ISA", "SSE41"), ("MKL_CBWR", "COMPATIBLE")]
)
def test_another_code_path_is_noted(desk: Path, name: str, value: str) -> None:
    """The same versions and the same CPU compute other bits."""
    plain = fedloom("run", *LENET, "--out", desk / "plain").json
    other = json.loads(separately("run", *LENET, "--out", desk / "other", **{name: value}).stdout)
    paths = [result["identity"]["made_with"]["code_path"] for result in (plain, other)]
    assert paths[1] == {**paths[0], name: value}
    note = f"{name} differs: unset in 'plain'; {value} in 'other'"
    assert note in fedloom("report", "plain", "other", "--json").json["notes"]
    interrupt(desk / "plain")
    resumed = separately("resume", desk / "plain", "--json", **{name: value})
    said = " ".join(resumed.stderr.split())
    assert f"was made with {name} unset, and this is {name} {value}: the result may differ" in said
    changes = json.loads(resumed.stdout)["identity"]["changes"]
    assert changes == [f"after round 2, {name} unset became {value}"]
    if plain["weights_sha256"] == other["weights_sha256"]:
        pytest.skip(f"this CPU computes the same bits with {name}={value}")


def small_table(rows: list[dict[str, Any]]) -> Preset:
    about = dict.fromkeys(("title", "shows", "settings", "reduced"), "x")
    columns = [{"name": name, "settings": {"data": {"name": name}}} for name in ("tiny", "own")]
    facts = {"about": about, "small": {}, "columns": columns, "rows": rows}
    return Preset("made/table1", "", {}, table("made/table1", facts))


@pytest.mark.parametrize("mixed", [False, True])
def test_columns_of_a_table_may_differ_in_data_and_rows_may_not(
    desk: Path, monkeypatch: pytest.MonkeyPatch, mixed: bool
) -> None:
    add(desk, two_swapped)
    own = {"data": {"name": "own"}} if mixed else {}
    rows = [{"name": name, "settings": {"method": name}} for name in ("fedavg", "fedprox")]
    rows[1]["settings"] |= own
    made = small_table(rows)
    monkeypatch.setattr(presets, "names", lambda: [made.name])
    monkeypatch.setattr(presets, "preset", lambda name: made)
    words = ("reproduce", "made/table1", *TINY[2:], "--rounds", 2, "--out", "table", "--json")
    said = fedloom(*words, code=2 if mixed else 0)
    if mixed:
        assert "'table/fedprox/tiny/seed-0' with 'own' (sha256" in said.flat
    else:
        assert len(said.json["figures"]) == 4
