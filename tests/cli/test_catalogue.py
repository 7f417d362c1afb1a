"""`fedloom methods`, `models`, `presets`, `check`, `doctor`; data sets added, shown, removed."""

import csv
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.main import get_command

from cli.talk import TINY, fedloom, run
from fedloom import __version__
from fedloom.cli.main import app


def test_methods_as_json() -> None:
    every = fedloom("methods", "--json").json
    names = [m["name"] for m in every]
    assert names == sorted(names) and {
        "fedavg",
        "fedprox",
        "fedavgm",
        "scaffold",
        "feddyn",
        "fedadam",
        "fedyogi",
    } <= set(names)
    for method in every:
        assert (
            {"name", "paper", "parameters", "needs"} <= set(method)
            and method["paper"]
            and method["needs"]
        )
    (mu,) = next(m for m in every if m["name"] == "fedprox")["parameters"]
    assert (
        (mu["name"], mu["type"], mu["low"]) == ("mu", "float", 0)
        and "FedAvg" in mu["meaning"]
        and mu["default"] > 0
    )


def test_methods_as_text() -> None:
    assert "scaffold" in fedloom("methods").out
    assert "Karimireddy" in fedloom("methods", "scaffold").out


def test_models_as_json() -> None:
    every = {m["name"]: m for m in fedloom("models", "--json").json}
    assert {"mlp", "lenet5", "cnn", "resnet56", "vgg9", "lstm"} <= set(every)
    assert (every["lenet5"]["parameters"], every["cnn"]["parameters"]) == (61706, 1663370)
    for model in every.values():
        assert sum(block["parameters"] for block in model["blocks"]) == model["parameters"] > 0


def test_a_model_on_other_data() -> None:
    (model,) = fedloom("models", "mlp", "--data", "tiny", "--json").json
    assert model["parameters"] == 64 * 200 + 200 + 200 * 200 + 200 + 200 * 4 + 4
    assert "layer1" in fedloom("models", "mlp").out


def test_presets_can_all_be_checked(desk: Path) -> None:
    every = fedloom("presets", "--json").json
    assert {"demo", "shards", "longtail", "fedalign/table1"} <= {p["name"] for p in every}
    shown = fedloom("presets").out
    for preset in every:
        assert preset["about"] and preset["settings"]["rounds"] >= 1 and preset["name"] in shown
        if "table" not in preset:
            counts = fedloom("data", "show", "--preset", preset["name"], "--json").json["counts"]
            assert len(counts) == preset["settings"]["data"]["clients"]


def test_a_table_with_its_printed_numbers() -> None:
    (preset,) = fedloom("presets", "fedalign/table2", "--json").json
    gradaug = next(r for r in preset["table"]["rows"] if r["name"] == "gradaug")
    assert gradaug["printed"]["homog"] == {"mean": 60.5, "spread": 0.2, "lower_bound": False}
    assert "250 of 500" in preset["table"]["about"]["reduced"]
    said = fedloom("presets", "fedalign/table2").out
    assert "60.5 ± 0.2" in said and "alpha=0.1" in said and "moon(mu=1.0" in said
    wide = fedloom("presets", "fedalign/table6").out
    assert (
        "C=64x0.25(100)  -            50.9 ± 0.5" in wide
    )  # more columns than rows: columns downwards
    assert "clients = 20" in fedloom("presets", "demo").out
    assert "did you mean 'fedalign/table1'" in fedloom("presets", "fedalign/tabel1", code=2).flat


def test_check_shows_what_a_config_would_run(desk: Path) -> None:
    run(desk / "run", "--method", "fedprox", rounds=2)
    said = fedloom("check", "run/config.toml", "--set", "rounds=7", "--json").json
    assert said["ok"] is True and said["method"] == "fedprox" and said["rounds"] == 7
    assert (
        "280 parameters" in said["model"]
        and "240 training" in said["data"]
        and said["clients"].startswith("8,")
    )
    assert "ok" in fedloom("check", "run/config.toml").out.split()


def test_the_doctor(desk: Path) -> None:
    said = fedloom("doctor", "--json").json
    assert said["ok"] is said["reproducible"] is said["folder_writable"] is True
    assert said["fedloom"] == __version__
    shown = fedloom("doctor").out
    assert "same seed, same result" in shown and shown.split()[-2:] == ["result", "ok"]
    assert list(desk.iterdir()) == []


def test_the_version() -> None:
    assert fedloom("--version").out == f"fedloom {__version__}\n"


def every_command(group: Any, before: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from every_command(command, f"{before}{name} ")
        else:
            yield f"{before}{name}"


COMMANDS = list(every_command(get_command(app)))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_an_example(command: str) -> None:
    said = " ".join(fedloom(*command.split(), "--help").out.split())
    assert f"Example: fedloom {command}" in said


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_into_80_columns(command: str) -> None:
    """Nothing is cut off, and no line of a paragraph is broken twice."""
    said = fedloom(*command.split(), "--help").out
    description = said.partition("Usage")[2].partition("╭")[0].rstrip().splitlines()[1:]
    short = [
        line
        for line, after in itertools.pairwise(description)
        if after.strip() and ends_early(line)
    ]
    assert "…" not in said and short == []


def ends_early(line: str) -> bool:
    """Whether a line stops in a sentence although there is room for more words."""
    return 0 < len(line.strip()) < 60 and not line.strip().endswith((".", ":"))


def write_clinics(folder: Path) -> Path:
    """One table per clinic; the disease depends on the pulse."""
    folder.mkdir()
    draws = np.random.default_rng(3)
    for clinic, patients in (("north", 40), ("south", 30), ("west", 20)):
        with (folder / f"{clinic}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["age", "pulse", "sex", "disease"])
            for age, pulse in zip(
                draws.integers(20, 90, patients), draws.integers(50, 130, patients), strict=True
            ):
                writer.writerow([age, pulse, "fm"[age % 2], "yes" if pulse > 90 else "no"])
    return folder


def test_tables_from_clinics(desk: Path) -> None:
    """One client per clinic: files are added, used by a run, and removed."""
    added = fedloom(
        "data",
        "add",
        "clinics",
        "--from",
        write_clinics(desk / "files"),
        "--option",
        "target=disease",
        "--json",
    ).json
    assert (added["kind"], added["users"], added["classes"]) == ("table", 3, 2)
    assert added["train"] + added["test"] == 90
    assert "clinics" in [d["name"] for d in fedloom("data", "list", "--json").json]
    assert fedloom("data", "check", "clinics", "--json").json["ok"] is True
    shown = fedloom("data", "show", "clinics", "--clients", 0, "--partition", "user", "--json").json
    assert [sum(row) for row in shown["counts"]] == sorted(
        (sum(row) for row in shown["counts"]), reverse=True
    )
    words = (
        "--data",
        "clinics",
        "--model",
        "mlp(width=8)",
        "--clients",
        0,
        "--partition",
        "user",
        "--per-round",
        3,
    )
    result = fedloom(
        "run", *words, "--rounds", 10, "--set", "train.lr=0.5", "--out", "run", "--json"
    ).json
    assert result["clients"] == 3 and result["accuracy"] > 0.8
    assert "removed clinics" in fedloom("data", "remove", "clinics").out
    assert "clinics" not in [d["name"] for d in fedloom("data", "list", "--json").json]
    assert "no data set 'clinics'" in fedloom("run", *words, "--out", "again", code=2).flat


def test_arrays_added_replaced_and_shown(desk: Path) -> None:
    x, y = np.arange(240, dtype=np.float32).reshape(40, 6), np.arange(40) % 2
    np.savez(desk / "arrays.npz", x=x, y=y)
    add = ("data", "add", "arrays", "--from", "arrays.npz")
    assert fedloom(*add, "--json").json["train"] == 32
    assert fedloom(*add, "--replace", "--option", "test_share=0.5", "--json").json["train"] == 20
    shown = fedloom(
        "data",
        "show",
        "arrays",
        "--clients",
        4,
        "--partition",
        "iid",
        "--png",
        "parts.png",
        "--json",
    ).json
    assert np.asarray(shown["counts"]).sum() == 20 and len(shown["counts"]) == 4
    assert (desk / "parts.png").read_bytes().startswith(b"\x89PNG")
    assert (
        "4 clients by 2 classes"
        in fedloom("data", "show", "arrays", "--clients", 4, "--partition", "iid").out
    )
    fedloom("data", "remove", "arrays")


def test_damaged_data_are_found(desk: Path, home: Path) -> None:
    np.savez(
        desk / "arrays.npz", x=np.arange(60, dtype=np.float32).reshape(20, 3), y=np.arange(20) % 2
    )
    fedloom("data", "add", "frail", "--from", "arrays.npz")
    (file,) = (home / "home" / "data" / "frail").glob("train-*.safetensors")
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")
    said = fedloom("data", "check", "frail", "--json", code=1)
    assert json.loads(said.out)["ok"] is False and "damaged" in json.loads(said.out)["problems"][0]
    error = fedloom("run", *TINY, "--data", "frail", "--out", "run", code=2).flat
    assert (
        f"{file.name} is damaged" in error
        and "fedloom data add frail --from PATH --replace" in error
    )
    fedloom("data", "remove", "frail")
