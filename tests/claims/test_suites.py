"""The suites: every row, column, override, gate and target exists, and all settings are valid."""

import pytest

from fedloom.claims import statistics
from fedloom.claims.claim import claims
from fedloom.claims.suites import Suite, rule, suite, suites
from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.data.longtail import class_sizes
from fedloom.experiment.prepare import check_names, cohort_conflicts
from fedloom.inspect.analysis_inputs import PARTS
from fedloom.metrics.measures import check, is_measure
from fedloom.models.registry import build as build_model
from fedloom.reports.client_scores import score_template
from fedloom.settings.config import DEFAULTS, Config, load
from fedloom.settings.overrides import assignment, overlay
from fedloom.settings.presets import preset

every_suite = pytest.mark.parametrize("one", suites().values(), ids=lambda one: one.id)


def configs(one: Suite) -> dict[tuple[str, str, str], tuple[Config, str]]:
    """The settings and the measure of each cell, by preset, row and column."""
    found = {}
    changes = [assignment(text) for text in one.overrides]
    for group in one.runs:
        table = preset(group.preset).table
        assert table is not None
        chosen = table.at("small", group.rows, group.columns)
        assert [row.name for row in chosen.rows if row.name not in group.rows] == []
        assert {column.name for column in chosen.columns} == set(group.columns)
        for row in chosen.rows:
            for column in chosen.columns:
                settings = overlay(table.run_settings(row, column, "small"), changes, DEFAULTS)
                found[group.preset, row.name, column.name] = load(settings), column.measure
    return found


@every_suite
def test_every_run_has_valid_settings(one: Suite) -> None:
    for (_, _, column), (config, measure) in configs(one).items():
        check_names(config)
        assert not list(cohort_conflicts(config, config.data.clients or 10**6))
        check(measure, config.rounds, config.evaluate.every, score_template(config))
        assert column


@every_suite
def test_every_model_can_be_built(one: Suite) -> None:
    shapes = {"cifar10": (3, 10), "cifar100": (3, 100), "mnist-writers": (1, 10)}
    seen = {}
    for config, _ in configs(one).values():
        seen[str(config.model), config.data.name] = config
    for config in seen.values():
        channels, classes = shapes[config.data.name]
        pixels = config.data.pixels
        assert pixels is not None
        shape = (channels, pixels, pixels)
        build_model(config.model, shape, config.data.classes or classes, Key.root(0), device="meta")


@every_suite
def test_gates_and_targets_name_rows_and_columns_of_the_suite(one: Suite) -> None:
    rows = {row for group in one.runs for row in group.rows}
    columns = {column for group in one.runs for column in group.columns}
    for gate in one.gate:
        assert {gate[key] for key in ("of", "better", "than") if key in gate} <= rows
        assert gate.get("column", next(iter(columns))) in columns
        assert is_measure(gate.get("measure", "accuracy"))
    assert {target.of for target in one.targets} <= rows
    assert bool(one.runs) != bool(one.commands)


@every_suite
def test_seeds_are_fixed_and_the_seed_of_the_gate_is_not_reported(one: Suite) -> None:
    for group in one.runs:
        assert list(group.seeds) == list(range(len(group.seeds)))
        assert len(group.seeds) >= rule().minimum_seeds
        assert one.gate_seed not in group.seeds


@every_suite
def test_analyses_are_of_columns_that_are_not_measured(one: Suite) -> None:
    for group in one.runs:
        if group.analysis is None:
            continue
        table = preset(group.preset).table
        assert table is not None
        names = {column.name for column in table.columns if not column.is_measurable}
        assert set(group.analysis.columns) <= names
        assert set(group.analysis.only) <= set(PARTS)


def test_claims_belong_to_one_suite() -> None:
    named = [claim for one in suites().values() for claim in one.claims]
    assert len(named) == len(set(named))
    assert {claim.partition("/")[0] for claim in named} == {
        "fedalign",
        "fedmlb",
        "fedmix",
        "fedafa",
    }


@pytest.mark.parametrize(
    ("name", "classes"), [("afa-c10", 10), ("afa-c10-skewed", 10), ("afa-c100", 100)]
)
def test_the_scale_says_how_many_images_a_long_tail_leaves(name: str, classes: int) -> None:
    (data,) = {
        (config.data.per_class, config.data.longtail, config.data.clients)
        for config, _ in configs(suite(name)).values()
    }
    largest, factor, clients = data
    assert largest is not None and clients is not None
    images = int(class_sizes(largest, classes, factor).sum())
    said = suite(name).scale
    assert f"({images:,} images" in said
    assert f"{clients} clients of {images / clients:.0f} images on average" in said


def test_a_suite_takes_over_the_scale_of_another() -> None:
    same, other = suite("mlb50-momentum"), suite("mlb50")
    assert (same.overrides, same.seeds, same.gate) == (other.overrides, other.seeds, other.gate)
    assert same.optional and not other.optional


def test_an_unknown_suite_is_rejected_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match="no suite 'mlb5'; did you mean 'mlb50'"):
        suite("mlb5")


@every_suite
def test_the_claims_of_a_suite_name_it_and_their_cells_are_run(one: Suite) -> None:
    by_id = {claim.id: claim for claim in claims()}
    cells = set()
    for group in one.runs:
        columns = {*group.columns, *(group.analysis.columns if group.analysis else ())}
        cells |= {(group.preset, row, column) for row in group.rows for column in columns}
    for name in one.claims:
        claim = by_id[name]
        assert claim.suite == one.id
        for row, column in claim.cells if one.runs else ():
            assert any((preset, row, column) in cells for preset in claim.preset.names), name


def test_every_suite_that_a_claim_names_exists() -> None:
    for claim in claims():
        if claim.suite is not None:
            assert claim.id in suite(claim.suite).claims


def test_the_rule_is_the_one_by_which_verdicts_are_reached() -> None:
    assert rule().confidence == statistics.LEVEL
    assert rule().extended_confidence == statistics.LEVEL_AFTER_EXTENSION
    assert rule().minimum_seeds == statistics.FEWEST_SEEDS
    assert rule().equal_confidence == pytest.approx(1 - 2 * (1 - statistics.LEVEL))
