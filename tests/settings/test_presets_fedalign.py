"""Tables of papers as presets: every run can be built, layers override in order, results fit."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.spec import Spec
from fedloom.experiment.prepare import check_names
from fedloom.methods.gradaug import draw_subnetworks, gradaug
from fedloom.methods.registry import build
from fedloom.metrics.measures import check as check_measure
from fedloom.metrics.measures import measured
from fedloom.models import registry
from fedloom.reports.paper_table import CellResult, distinct_runs, plan
from fedloom.settings.config import load
from fedloom.settings.paper_table import Printed, Scale, Table
from fedloom.settings.paper_table import table as parse_table
from fedloom.settings.presets import names, preset

TABLES = [table for name in names() if (table := preset(name).table) is not None]
SCALES: tuple[Scale, ...] = ("paper", "small")
every_table = pytest.mark.parametrize("paper_table", TABLES, ids=lambda t: t.name)
every_scale = pytest.mark.parametrize("scale", SCALES)


@pytest.fixture(scope="module")
def models() -> Callable[[Spec, int | None], Chain]:
    """Models by spec and image side (None for the model's usual samples), each built once."""
    built: dict[str, Chain] = {}

    def model(spec: Spec, side: int | None) -> Chain:
        label = f"{spec} {side}"
        if label not in built:
            shape = (3, side, side) if side else registry.TYPICAL_INPUT[spec.name][0]
            built[label] = registry.build(spec, shape, 20, Key.root(0))
        return built[label]

    return model


@pytest.mark.slow
@every_table
@every_scale
def test_every_run_of_every_table_can_be_built(
    paper_table: Table, scale: Scale, models: Callable[[Spec, int | None], Chain]
) -> None:
    """Settings are valid, names exist, methods fit their models, and measures can be computed."""
    default = paper_table.at(scale)
    assert default.columns and default.rows
    # By name, so that rows and columns outside the scale's default are built too.
    row_names = [row.name for row in paper_table.rows]
    column_names = [column.name for column in paper_table.columns]
    chosen = paper_table.at(scale, row_names, column_names)
    for row, column in product(chosen.rows, chosen.columns):
        config = load(chosen.run_settings(row, column, scale))
        check_measure(column.measure, config.rounds, config.evaluate.every)
        if column.runs_from == column.name:
            check_names(config)
            build(config.method_specs).check(models(config.model, config.data.pixels))


EXAMPLE = {
    "rounds": 9,
    "train": {"lr": 0.5, "epochs": 4},
    "data": {"partition": {"name": "dirichlet", "alpha": 0.5, "legacy_seed": 1}},
    "about": {"title": "t", "shows": "s", "settings": "p", "reduced": "c"},
    "small": {
        "rounds": 3,
        "columns": ["far"],
        "data": {"partition": {"name": "dirichlet", "alpha": 0.5}},
    },
    "methods": {"plain": {"method": "fedavg"}, "held": {"method": "fedprox(mu=0.1)"}},
    "columns": [
        {"name": "near"},
        {
            "name": "far",
            "settings": {"rounds": 20, "data": {"partition": {"alpha": 0.1}}},
            "small": {"train": {"epochs": 2}},
        },
        {"name": "half", "measure": "accuracy(of=0.5)"},
        {"name": "flat", "measure": "trace of the Hessian"},
    ],
    "rows": [
        {"name": "plain", "printed": [50.0, [60.0, 0.5], [], 7]},
        {"name": "held", "printed": [51.5, [], [], 6]},
        {
            "name": "own",
            "settings": {"method": "fedavg", "train": {"lr": 0.1}},
            "note": "not in the paper",
        },
    ],
}


def example_table() -> Table:
    return parse_table("made/table1", EXAMPLE)


def test_later_layers_override_and_a_spec_with_a_name_replaces_all_its_arguments() -> None:
    made = example_table()
    plain, _, own = made.rows
    near, far, *_ = made.columns
    assert made.run_settings(plain, near, "paper") == {
        **{k: EXAMPLE[k] for k in ("rounds", "train", "data")},
        "method": "fedavg",
    }
    small = made.run_settings(own, far, "small")
    assert small["rounds"] == 20 and small["train"] == {"lr": 0.1, "epochs": 2}
    assert small["data"]["partition"] == {"name": "dirichlet", "alpha": 0.1}
    assert made.run_settings(own, far, "paper")["data"]["partition"] == {
        "name": "dirichlet",
        "alpha": 0.1,
        "legacy_seed": 1,
    }


def test_the_rows_and_columns_that_are_run() -> None:
    made = example_table()
    assert [c.name for c in made.at("paper").columns] == ["near", "far", "half"]
    assert [c.name for c in made.at("small").columns] == ["far"]
    assert [c.name for c in made.at("small", columns=["near"]).columns] == ["near"]
    assert [r.name for r in made.at("paper", rows=["own", "plain"]).rows] == ["plain", "own"]
    with pytest.raises(
        UserError, match=r"no row 'helt'; did you mean 'held'\?.*fedloom presets made/table1"
    ):
        made.at("paper", rows=["helt"])
    with pytest.raises(UserError, match="column 'flat' of 'made/table1' cannot be computed"):
        made.at("paper", columns=["flat"])


def test_printed_numbers_belong_to_their_columns() -> None:
    plain, held, own = example_table().rows
    assert plain.printed == {"near": Printed(50.0), "far": Printed(60.0, 0.5), "flat": Printed(7)}
    assert (str(plain.printed["near"]), str(plain.printed["far"]), str(plain.printed["flat"])) == (
        "50.0",
        "60.0 ± 0.5",
        "7",
    )
    assert "far" not in held.printed and own.printed == {}
    with pytest.raises(ValueError, match="zip"):
        parse_table("made/short", {**EXAMPLE, "rows": [{"name": "plain", "printed": [50.0]}]})


def test_a_printed_lower_bound_has_no_gain() -> None:
    made = parse_table(
        "made/bound", {**EXAMPLE, "rows": [{"name": "plain", "printed": [924, "1000+", 900, []]}]}
    )
    near, far, half = made.rows[0].printed.values()
    assert far == Printed(1000, lower_bound=True) and str(far) == "1000+"
    assert half.gain(near) == -24 and far.gain(near) is None and near.gain(far) is None


SHORTHAND = {
    **EXAMPLE,
    "setups": {
        "crowd": {"settings": {"data": {"clients": 500}}, "small": {"data": {"clients": 5}}}
    },
    "measure_sets": {"ends": {"half": "ema(of=0.5)", "goal": ["rounds(to=0.8)", "rounds(to=0.3)"]}},
    "columns": [{"name": "few", "measure_set": "ends"}, {"name": "crowd", "measure_set": "ends"}],
    "methods": {"some": {"method": {"name": "fedmlb", "fedmlb": {"pathways": "{}", "ce": 2.0}}}},
    "rows": [{"name": "some", "choose": 2, "among": "1 2 3", "printed": [1, [2, 0.5], 3, "9+"]}],
    "small": {},
}


def test_shorthands_are_expanded() -> None:
    made = parse_table("made/short", SHORTHAND)
    assert [(c.name, c.runs_from) for c in made.columns] == [
        ("few half", "few half"),
        ("few goal", "few half"),
        ("crowd half", "crowd half"),
        ("crowd goal", "crowd half"),
    ]
    assert [(r.name, r.choice) for r in made.rows] == [
        ("1 2", "2 of 3"),
        ("1 3", "2 of 3"),
        ("2 3", "2 of 3"),
    ]
    assert [str(n) for n in made.rows[1].printed.values()] == ["1", "2 ± 0.5", "3", "9+"]
    last = made.run_settings(made.rows[2], made.columns[3], "small")
    assert last["data"]["clients"] == 5 and last["method"] == {
        "name": "fedmlb",
        "fedmlb": {"pathways": "2 3", "ce": 2.0},
    }


def test_each_scale_has_its_own_measure() -> None:
    made = parse_table("made/short", SHORTHAND)
    paper, small = ([c.measure for c in made.at(scale).columns[:2]] for scale in ("paper", "small"))
    assert paper == ["ema(of=0.5)", "rounds(to=0.8)"] and small == ["ema(of=0.5)", "rounds(to=0.3)"]


def test_columns_with_the_same_settings_share_their_runs(tmp_path: Path) -> None:
    cells = plan(example_table().at("paper"), "paper", 2, tmp_path, lambda raw: {**raw, "seed": 4})
    assert len(cells) == 9 and len(distinct_runs(cells)) == 3 * 2 * 2
    assert {c.path for c in cells[0].runs} == {
        tmp_path / "plain" / "near" / f"seed-{s}" for s in (4, 5)
    }
    half = next(s for s in cells if s.column.name == "half" and s.row.name == "plain")
    assert half.runs == cells[0].runs


def test_all_missing_data_sets_are_reported_before_the_first_run(tmp_path: Path) -> None:
    def with_missing_data(raw: dict) -> dict:
        return {**raw, "data": {**raw["data"], "name": "nowhere"}}

    with pytest.raises(
        UserError,
        match="there is no data set 'nowhere'; add it with: fedloom data add nowhere --from PATH",
    ):
        plan(example_table().at("small"), "small", 1, tmp_path, with_missing_data)


CURVE = {2: 0.10, 4: 0.20, 6: 0.30, 8: 0.40, 10: 0.50, 12: 0.60, 14: 0.70}


@pytest.mark.parametrize(
    ("measure", "figure"),
    [
        ("accuracy", 50.0),  # mean of the last five
        ("accuracy(of=0.5)", 20.0),  # three evaluations up to round 7
        ("accuracy(of=0.01)", 10.0),  # the first evaluation
        ("rounds(to=0.35)", 8.0),
        ("rounds(to=0.4)", 8.0),
        ("rounds(to=0.71)", None),
    ],
)
def test_measures_by_hand(measure: str, figure: float | None) -> None:
    assert measured(measure, CURVE) == pytest.approx(figure)


def test_mean_and_spread_of_a_cell() -> None:
    better = CellResult("b", "c", (11.0, 24.0), None, 1.0)
    never = CellResult("d", "c", (11.0, None), None, 1.0)
    assert (better.mean, better.std) == (17.5, pytest.approx(9.1924, abs=1e-4))
    assert never.mean is None and never.std is None
    assert CellResult("e", "c", (7.0,), None, 1.0).std is None


def test_fedalign_as_printed() -> None:
    """A few numbers copied by hand from the corners of the paper's tables."""
    by_name = {t.name: t for t in TABLES}

    def printed(number: int, row: str, column: str) -> str:
        rows = by_name[f"fedalign/table{number}"].rows
        return str(next(r for r in rows if r.name == row).printed[column])

    assert printed(1, "fedavg", "accuracy") == "52.9" and printed(1, "gradaug", "H_D") == "0.96"
    assert (
        printed(2, "mixup", "alpha=0.1") == "44.3 ± 0.1"
        and printed(2, "gradaug", "homog") == "60.5 ± 0.2"
    )
    assert printed(3, "fedprox", "E=30") == "52.8 ± 0.1"
    assert (
        printed(4, "gradaug", "C=64x0.25(100)") == "53.3 ± 0.5"
        and printed(4, "moon", "C=64") == "35.2 ± 0.8"
    )
    assert (
        printed(5, "gradaug-n4", "accuracy") == "56.9 ± 0.3"
        and printed(5, "fedalign", "accuracy") == "56.9 ± 0.5"
    )
    assert printed(6, "fedalign", "C=64x0.25") == "34.9 ± 0.6"
    assert printed(7, "fedalign", "ImageNet-200 C=32x0.125(50)") == "55.1 ± 0.5"
    assert printed(7, "gradaug", "CIFAR-10 C=16") == "84.6 ± 0.6"


def test_fedalign_at_the_papers_scale() -> None:
    config = load(preset("fedalign/table1").settings)
    assert (config.rounds, config.data.clients, config.model) == (25, 16, Spec("resnet56"))
    assert config.data.partition == Spec("dirichlet", {"alpha": 0.5, "legacy_seed": 1})
    train = config.train
    assert (train.lr, train.momentum, train.nesterov, train.weight_decay) == (0.01, 0.9, True, 1e-4)
    assert (train.batch, train.epochs, train.drop_last, train.reset, train.clip) == (
        64,
        20,
        True,
        False,
        None,
    )


@every_table
def test_only_fedalign_and_its_control_clip_gradients(paper_table: Table) -> None:
    if paper_table.name.startswith("fedalign/"):
        rows = {row.name: row.settings.get("train", {}).get("clip") for row in paper_table.rows}
        clipped = {name for name, clip in rows.items() if clip == 10.0}
        assert clipped == {"fedalign", "fedavg+clip"} & set(rows)
        assert ("fedalign" in rows) == ("fedavg+clip" in rows)


@pytest.mark.parametrize("row", ["gradaug", "gradaug-n1"])
@pytest.mark.parametrize(
    ("column", "side", "sizes"),
    [
        ("CIFAR-10 C=16", 32, {32, 28, 24, 20}),
        ("CIFAR-10 C=64x0.25(100)", 32, {32, 28, 24, 20}),
        ("ImageNet-200 C=16", 224, {224, 192, 160, 128}),
        ("ImageNet-200 C=32x0.125(50)", 224, {224, 192, 160, 128}),
    ],
)
def test_gradaug_resizes_images_as_in_the_authors_code(
    row: str, column: str, side: int, sizes: set[int]
) -> None:
    made = next(t for t in TABLES if t.name == "fedalign/table7").at("paper", [row], [column])
    specs = load(made.run_settings(made.rows[0], made.columns[0], "paper")).method_specs
    args = {name: p.default for name, p in inspect.signature(gradaug).parameters.items()}
    args |= next(spec.args for spec in specs if spec.name == "gradaug")
    draws = (
        draw_subnetworks(
            Key.root(seed),
            args["n"],
            args["width"],
            args["widths"],
            args["smallest"],
            args["sizes"],
        )
        for seed in range(64)
    )
    assert {round(side * factor) for drawn in draws for _, factor in drawn} == sizes
    assert specs[1:] == [Spec("fedavg", {"weights": "seen"})]


def test_settings_of_a_cell_override_its_row_in_that_column_only() -> None:
    raw = {**EXAMPLE, "rows": [{**EXAMPLE["rows"][0], "cells": {"far": {"method": "fedbn"}}}]}
    made = parse_table("made/table1", raw)
    (row,) = made.rows
    assert [made.run_settings(row, c, "paper")["method"] for c in made.columns[:2]] == [
        "fedavg",
        "fedbn",
    ]
    assert made.run_settings(row, made.columns[1], "small")["method"] == "fedbn"


@every_table
def test_cells_name_columns_that_have_runs_of_their_own(paper_table: Table) -> None:
    with_runs = {column.runs_from for column in paper_table.columns}
    assert all(set(row.cells) <= with_runs for row in paper_table.rows)


@every_table
def test_every_table_of_a_paper_says_where_it_differs(paper_table: Table) -> None:
    """A departure, or a reference to the table that has them all."""
    assert paper_table.about.departures.strip()
