"""FedAFA's table and figures as presets: printed numbers, and settings of the paper and code."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from fedloom.core.spec import Spec, parameters
from fedloom.data import longtail
from fedloom.methods.perfedavg import Maml
from fedloom.methods.registry import build, entry
from fedloom.settings.config import Config, load
from fedloom.settings.paper_table import Scale, Table
from fedloom.settings.presets import names, preset

PAPER = Path(__file__).parents[3] / "shared" / "papers" / "fedafa.txt"
TABLES = {
    t.name.removeprefix("fedafa/"): t
    for n in names()
    if n.startswith("fedafa/") and (t := preset(n).table) is not None
}
SETUPS = ("C10 a=0.5", "C10 a=0.2", "C100 a=0.5", "C100 a=0.2")
PRINTED_NAMES = {
    "Local training": "local",
    "FedAvg-FT": "fedavg-ft",
    "FedProx": "fedprox-ft",
    "LG-FedAvg": "lgfedavg",
    "Per-FedAvg": "perfedavg",
    "pFedMe": "pfedme",
    "Ditto": "ditto",
    "FedBN": "fedbn",
    "FedAvg+ROS": "ros",
    "FedAvg+M2m": "m2m",
    "FedAvg+cRT": "crt",
    "FedAFA_Loc": "fedafa-loc",
    "FedAFA": "fedafa",
}
NOT_PRINTED = {
    "fedavg",
    "fedbn-ft",
    "crt-fresh",
    "fedafa-lam0",
    "fedafa-authors",
    "fedafa-equations",
}


def config(table: str, row: str, column: str, scale: Scale = "paper") -> Config:
    paper_table = TABLES[table].at(scale, [row], [column])
    return load(paper_table.run_settings(paper_table.rows[0], paper_table.columns[0], scale))


def printed(row: str) -> list[str]:
    numbers = next(r for r in TABLES["table1"].rows if r.name == row).printed
    return [f"{numbers[f'{setup} recall'].mean:.2f}" for setup in SETUPS]


def test_every_table_has_a_preset() -> None:
    assert set(TABLES) == {"table1", "figure2", "figure3", "figure4a", "figure4b", "figure4c"}
    assert {r.name for r in TABLES["table1"].rows} == {*PRINTED_NAMES.values(), *NOT_PRINTED}


def test_figure_2_shows_the_clients_of_the_table() -> None:
    assert config("figure2", "fedavg", "C10 a=0.2") == config(
        "table1", "fedavg", "C10 a=0.2 recall"
    )


@pytest.mark.parametrize(
    ("row", "numbers"),
    [
        ("local", "28.06 27.88 9.82 8.37"),
        ("fedavg-ft", "48.21 48.11 30.66 26.32"),
        ("pfedme", "50.05 49.59 32.82 30.05"),
        ("m2m", "62.85 56.30 32.63 32.69"),
        ("fedafa", "64.52 63.70 36.57 35.44"),
    ],
)
def test_numbers_as_printed(row: str, numbers: str) -> None:
    """Copied from the paper by hand."""
    assert printed(row) == numbers.split()


@pytest.mark.skipif(not PAPER.exists(), reason="the text of the paper is not available")
def test_all_numbers_match_the_text_of_the_paper() -> None:
    lines = (
        re.fullmatch(r"(.+?)(?: \[\d+\])?((?:\t\d+\.\d\d){4})", line)
        for line in PAPER.read_text(encoding="utf-8").splitlines()
    )
    text = {m[1]: m[2].split() for m in lines if m}
    assert text == {name: printed(row) for name, row in PRINTED_NAMES.items()}


def test_rows_that_are_not_printed_have_a_note_and_the_same_measures() -> None:
    for row in TABLES["table1"].rows:
        assert bool(row.printed) == (row.name in PRINTED_NAMES.values()) and (
            row.printed or row.note
        )
    measures = {c.name.rpartition(" ")[2]: c.measure for c in TABLES["table1"].columns}
    assert measures == {
        "recall": "personal",
        "weighted": "personal(score=label_weighted_accuracy)",
        "worst": "personal(of=worst_tenth)",
    }
    assert (
        len({c.runs_from for c in TABLES["table1"].columns}) == 4
    )  # three scores of the same runs


def test_settings_at_the_papers_scale() -> None:
    plain = config("table1", "fedavg", "C10 a=0.2 recall")
    assert (plain.rounds, plain.data.name, plain.data.clients, plain.data.longtail) == (
        500,
        "cifar10",
        20,
        100,
    )
    assert plain.model == Spec("resnet32") and plain.sample == Spec("uniform", {"per_round": 10})
    assert plain.data.augment == (Spec("pad-crop", {"padding": 4}), Spec("flip"))
    train = plain.train
    assert (train.lr, train.batch, train.epochs, train.momentum, train.nesterov) == (
        0.005,
        64,
        5,
        0.9,
        True,
    )
    assert (train.weight_decay, train.schedule.kind, train.reset, train.clip) == (
        5e-4,
        "constant",
        True,
        None,
    )


@pytest.mark.parametrize("setup", SETUPS)
def test_the_partition_is_the_papers_at_its_scale_and_varies_by_seed_at_the_small_one(
    setup: str,
) -> None:
    data, alpha = (
        {"C10": "cifar10", "C100": "cifar100"}[setup.split()[0]],
        float(setup.rpartition("=")[2]),
    )
    paper, small = (
        config("table1", "fedafa", f"{setup} recall", scale).data for scale in ("paper", "small")
    )
    assert (paper.name, paper.partition) == (data, Spec("fedafa", {"alpha": alpha}))
    assert (small.name, small.partition) == (
        data,
        Spec("dirichlet-rounded", {"alpha": alpha, "min_size": 10}),
    )
    assert (paper.longtail, paper.per_class, small.longtail, small.per_class) == (
        100,
        None,
        40,
        2000,
    )
    # The rarest class has the same size at both scales.
    assert longtail.class_sizes(2000, 10, 40)[-1] == longtail.class_sizes(5000, 10, 100)[-1] == 50


def methods_of(row: str) -> list[tuple[str, dict]]:
    """The methods of a row with all of their parameters, defaults included."""
    methods = []
    for spec in config("table1", row, "C10 a=0.5 recall").method_specs:
        defaults = {name: p.default for name, p in parameters(entry(spec.name).make).items()}
        methods.append((spec.name, defaults | dict(spec.args)))
    return methods


@pytest.mark.parametrize(
    "row",
    [
        "fedavg-ft",
        "fedprox-ft",
        "fedbn-ft",
        "ros",
        "m2m",
        "crt",
        "crt-fresh",
        "fedafa-loc",
        "fedafa",
    ],
)
def test_personal_models_train_one_epoch_with_the_papers_optimiser(row: str) -> None:
    _, args = methods_of(row)[-1]
    assert [args[n] for n in ("lr", "batch", "momentum", "decay")] == [0.005, 64, 0.9, 5e-4]
    assert args["epochs"] == (10 if row == "crt-fresh" else 1)


def test_fedafa_and_its_ablations() -> None:
    whole = dict(methods_of("fedafa"))["fedafa"]
    kept = {
        n: whole[n]
        for n in ("features", "weights", "lam", "accept", "step", "iterations", "noise", "clamp")
    }
    assert list(kept.values()) == ["global", "paper", 0.6, 0.5, 0.5, 10, True, True]
    for row, changes in {
        "fedafa-loc": {"features": "local"},
        "fedafa-lam0": {"lam": 0.0},
        "fedafa-authors": {"weights": "authors"},
        "fedafa-equations": {"step": 1.0, "noise": False, "clamp": False},
    }.items():
        assert dict(methods_of(row))["fedafa"] == whole | changes


def test_all_rows_but_fedavg_personalise() -> None:
    shared = {
        r.name
        for r in TABLES["table1"].rows
        if not build(config("table1", r.name, "C10 a=0.5 recall").method_specs).personal
    }
    assert shared == {"fedavg"}


RATES = {"perfedavg": {"alpha", "beta", "steps"}, "pfedme": {"lam", "inner", "pace", "lr"}}


@pytest.mark.parametrize("row", [r.name for r in TABLES["table1"].rows])
def test_the_small_scale_changes_only_rates_and_sizes_of_a_method(row: str) -> None:
    paper, small = (
        config("table1", row, "C10 a=0.5 recall", scale) for scale in ("paper", "small")
    )
    assert [w.name for w in paper.method_specs] == [w.name for w in small.method_specs]
    for before, after in zip(paper.method_specs, small.method_specs, strict=True):
        changed = {
            n for n in {*before.args, *after.args} if before.args.get(n) != after.args.get(n)
        }
        assert changed <= RATES.get(row, {"lr", "batch"})
    assert small.rounds < paper.rounds and small.train.momentum == paper.train.momentum


@pytest.mark.parametrize(
    ("table", "name", "values"),
    [
        ("figure4a", "lam", [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        ("figure4b", "accept", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9]),
        ("figure4c", "at", ["stem", "layer1", "layer2", "layer3"]),
    ],
)
def test_what_varies_along_a_figure(table: str, name: str, values: list) -> None:
    paper_table: Table = TABLES[table]
    specs = [config(table, row.name, "C10 a=0.2").method_specs for row in paper_table.rows]
    assert specs == [[Spec("fedafa", {name: value})] for value in values]
    assert {c.measure for c in paper_table.columns} == {"personal"}


def test_figure_3_measures_thirds_of_the_classes() -> None:
    paper_table = TABLES["figure3"]
    assert [c.measure for c in paper_table.columns] == [
        f"group(name={third})" for third in ("head", "middle", "tail")
    ]
    assert [r.name for r in paper_table.rows] == ["fedavg-ft", "fedavg", "fedafa"]


@pytest.mark.parametrize("scale", ["paper", "small"])
@pytest.mark.parametrize("setup", SETUPS)
def test_images_are_normalised_as_in_the_authors_code(setup: str, scale: Scale) -> None:
    """Their code has one pair of constants, for CIFAR-10 and CIFAR-100."""
    data = config("table1", "fedafa", f"{setup} recall", scale).data
    assert data.mean == (0.4914, 0.4822, 0.4465)
    assert data.std == (0.2023, 0.1994, 0.2010)


def test_what_the_paper_leaves_open_about_perfedavg_is_declared() -> None:
    (spec,) = config("table1", "perfedavg", "C10 a=0.2 recall").method_specs
    steps, adapt = spec.args["steps"], spec.args["adapt"]
    declared = TABLES["table1"].about.departures
    assert f"{steps} steps per round" in declared
    assert f"of two mini-batches each ({Maml(0.0).batches * steps} in all)" in declared
    assert f"{adapt} final adaptation steps" in declared
    # An average client has 12,406 / 20 images, so an epoch is 10 batches of 64, the last partial.
    assert adapt == math.ceil(12_406 / 20 / 64) and steps == 5 * adapt
