"""What sites agree on: class names and constants over all of them, or a message that names both."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deploy.three_sites import (
    agreed,
    hospitals,
    patients,
    reports,
    site_of,
    table_config,
)
from fedloom.core.errors import UserError
from fedloom.data.sources.column_plan import ColumnPlan, Scale
from fedloom.deploy.agreement import agree
from fedloom.deploy.given import Given
from fedloom.deploy.report import SiteReport
from fedloom.deploy.site.data import Source, read_site
from fedloom.deploy.terms import Agreement


def test_constants_are_those_of_all_training_rows() -> None:
    sites = hospitals()
    agreement = agreed(sites)
    for plan in agreement.columns[:3]:
        rows = np.concatenate([site.frame[plan.name][site.train] for site in sites])
        assert plan.scale is not None
        assert plan.scale.mean == pytest.approx(np.nanmean(rows), rel=1e-13)
        filled = np.where(np.isnan(rows), np.nanmean(rows), rows)
        assert plan.scale.std == pytest.approx(filled.std(), rel=1e-13)
    assert agreement.columns[3] == ColumnPlan("smoker", ("no", "yes"))
    assert agreement.classes == ("no", "yes") and agreement.shape == (6,)


def test_clients_are_numbered_by_site_and_then_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for name in ("10", "9", "b"):
        site_of(folder, name, patients(1))
    many, one = read_site("many", Source(folder)), site_of(tmp_path, "alone", patients(2))
    agreement = agreed([many, one])
    names = [(client.site, client.name) for client in agreement.clients]
    assert names == [("many", "9"), ("many", "10"), ("many", "b"), ("alone", "alone")]
    assert list(agreement.clients_of("many")) == [0, 1, 2]
    assert agreement.sites == ["many", "alone"]


def test_categories_and_classes_are_sorted_unions(tmp_path: Path) -> None:
    a = site_of(tmp_path, "a", patients(1) | {"smoker": ["no", "often"] * 10})
    b = site_of(tmp_path, "b", patients(2) | {"ill": ["maybe", "no"] * 10})
    agreement = agreed([a, b])
    assert agreement.columns[1].levels == ("no", "often", "yes")
    assert agreement.classes == ("maybe", "no", "yes")


def test_a_site_may_have_a_single_class(tmp_path: Path) -> None:
    a = site_of(tmp_path, "a", patients(1) | {"ill": ["yes"] * 20})
    b = site_of(tmp_path, "b", patients(2))
    assert agreed([a, b]).classes == ("no", "yes")
    with pytest.raises(UserError, match="all sites have the one class 'yes'"):
        agreed([a, replace(a, site="b")])


def test_classes_that_are_numbers_are_ordered_by_value(tmp_path: Path) -> None:
    a = site_of(tmp_path, "a", patients(1) | {"ill": [2, 10] * 10})
    b = site_of(tmp_path, "b", patients(2) | {"ill": [1, 2] * 10})
    assert agreed([a, b]).classes == ("1", "2", "10")


def test_many_categories_become_positions(tmp_path: Path) -> None:
    towns = [f"t{i:02d}" for i in range(15)]
    a = site_of(tmp_path, "a", patients(1, 60, town=towns * 4))
    b = site_of(tmp_path, "b", patients(2, 60, town=[f"u{t}" for t in towns] * 4))
    plan = agreed([a, b]).columns[2]
    positions = np.arange(30)
    assert plan.levels is not None and len(plan.levels) == 30 and plan.marks_missing
    assert plan.scale == Scale(14.5, 14.5, pytest.approx(positions.std()))


def test_missing_values_are_marked_everywhere_and_take_the_mean(tmp_path: Path) -> None:
    a = site_of(tmp_path, "a", patients(1) | {"age": ["", *range(30, 49)]})
    b = site_of(tmp_path, "b", patients(2))
    plan = agreed([a, b]).columns[0]
    assert plan.marks_missing and plan.scale is not None and plan.scale.fill == plan.scale.mean


def test_a_column_without_values_at_one_site_is_taken_as_at_the_others(tmp_path: Path) -> None:
    a = site_of(tmp_path, "a", patients(1) | {"smoker": [""] * 20})
    b = site_of(tmp_path, "b", patients(2))
    assert agreed([a, b]).columns[1] == ColumnPlan("smoker", ("no", "yes"), None, True)


def test_class_counts_are_shared_only_if_the_site_says_so() -> None:
    assert {client.class_counts for client in agreed(hospitals()).clients} == {None}
    sites = hospitals()
    for client, site in zip(agreed(sites, class_counts=True).clients, sites, strict=True):
        expected = np.bincount(site.samples.y[site.train])
        assert client.class_counts == tuple(expected.tolist())


def test_given_constants_need_no_statistics() -> None:
    table = {
        "classes": ["yes", "no", "unknown"],
        "columns": {
            "age": {"mean": 50, "std": 10},
            "pressure": {"mean": 120, "std": 20},
            "cholesterol": {"mean": 200, "std": 40},
            "smoker": {"categories": ["yes", "no"]},
        },
    }
    agreement = agreed(hospitals(), given=Given.from_table(table), statistics=False)
    assert agreement.classes == ("yes", "no", "unknown")
    assert agreement.columns[0].scale == Scale(50.0, 50.0, 10.0)
    assert agreement.columns[3].levels == ("no", "yes")


def test_a_site_that_shares_no_statistics_needs_given_ones() -> None:
    with pytest.raises(UserError, match=r"site 'north': it does not share the mean and std of"):
        agreed(hospitals(), statistics=False)


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"classes": ["a", "a"]}, "field 'given.classes' has a name twice"),
        ({"columns": {"age": {"mean": 1}}}, "field 'given.columns.age.std' is missing or unknown"),
        ({"columns": {"age": {"mean": 1, "std": 0}}}, "field 'given.columns.age.std' is 0"),
        ({"colums": {}}, "field 'given.colums' is missing or unknown"),
    ],
)
def test_what_is_given_is_checked(table: dict, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        Given.from_table(table)


def changed(**fields: object) -> list[SiteReport]:
    """The reports of the hospitals, of which 'south' says something else."""
    said = reports(hospitals())
    return [said[0], replace(said[1], **fields), *said[2:]]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"kind": "image"},
            "site 'south': the kind of its samples is image, and table at site 'no",
        ),
        ({"dtype": "float64"}, "site 'south': the dtype of its samples is float64, and float32 at"),
        ({"clients": ()}, "site 'south': it has no client with training samples"),
        (
            {"numbered": True, "classes": ("0", "1")},
            "site 'south': its classes are '0', '1', and 'no', 'yes' at site 'north'",
        ),
    ],
)
def test_a_mismatch_names_site_field_and_both_values(fields: dict, message: str) -> None:
    with pytest.raises(UserError) as error:
        agree(table_config(), changed(**fields), "run")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "theirs", "message"),
    [
        ("fedloom", "0.0.9", "site 'south': the version of fedloom is 0.0.9, and "),
        ("torch", "1.0", "site 'south': the version of torch is 1.0, and "),
        ("protocol", 99, "site 'south': the protocol is 99, and 1 at the server"),
    ],
)
def test_other_software_is_named(name: str, theirs: object, message: str) -> None:
    software = replace(reports(hospitals())[0].software, **{name: theirs})
    with pytest.raises(UserError, match=message):
        agree(table_config(), changed(software=software), "run")


def test_other_columns_are_named_at_both_sites(tmp_path: Path) -> None:
    a = site_of(tmp_path, "a", patients(1))
    b = site_of(tmp_path, "b", {("Age" if n == "age" else n): c for n, c in patients(2).items()})
    with pytest.raises(UserError) as error:
        agreed([a, b])
    assert "site 'b': it has no column 'age' (its columns are Age, smoker)" in str(error.value)
    assert "site 'b': it has the column 'Age', which site 'a' lacks" in str(error.value)


def test_numbers_at_one_site_and_words_at_another_are_refused(tmp_path: Path) -> None:
    a = site_of(tmp_path, "a", patients(1) | {"smoker": [0, 1] * 10})
    b = site_of(tmp_path, "b", patients(2))
    message = "site 'b': column 'smoker' holds categories, and numbers at site 'a'"
    with pytest.raises(UserError, match=message):
        agreed([a, b])


def test_unknown_classes_and_categories_are_refused_if_they_are_given() -> None:
    given = Given(("no", "maybe"), {}, {"smoker": ("no",)})
    with pytest.raises(UserError) as error:
        agreed(hospitals(), given=given)
    text = str(error.value)
    assert "site 'north': it has the class 'yes', and the classes given are 'no', 'maybe'" in text
    assert "site 'north': column 'smoker' has the category 'yes', and those given are 'no'" in text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"partition": "iid", "clients": 4}, "data.partition='iid' splits data among clients"),
        ({"clients": 3}, "data.clients=3, and the sites have 4"),
        ({"per_class": 5}, "data.per_class=5 takes a part of the data"),
        ({"validation": 0.2}, "data.validation=0.2 takes a part of the data"),
    ],
)
def test_settings_that_need_all_samples_in_one_place_are_refused(data: dict, message: str) -> None:
    config = table_config(data={"partition": "user", "clients": 0, **data})
    with pytest.raises(UserError, match=message):
        agree(config, reports(hospitals()), "run")


def test_means_of_channels_are_not_for_tables() -> None:
    data = {"partition": "user", "clients": 0, "mean": [0.5], "std": [0.5]}
    with pytest.raises(UserError, match=r"data\.mean, data\.std: the sites' data are a table"):
        agree(table_config(data=data), reports(hospitals()), "run")


@pytest.mark.parametrize("run", ["../evil", "", "a/b", ".hidden", "x" * 101, "a\0b"])
def test_a_run_id_cannot_lead_elsewhere(run: str) -> None:
    with pytest.raises(UserError, match="run id"):
        agree(table_config(), reports(hospitals()), run)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"run": "../evil"}, "field 'run' is ../evil, which cannot name a folder"),
        ({"std": [1.0]}, "fields 'mean' and 'std' have different lengths"),
        ({"clients": [{"site": 3}]}, "field 'clients"),
        ({"shape": [0]}, "field 'shape"),
        ({"more": 1}, "field 'more' is missing or unknown"),
    ],
)
def test_an_agreement_from_a_stranger_is_checked(change: dict, problem: str) -> None:
    facts = {**agreed(hospitals()).to_json(), **change}
    with pytest.raises(UserError, match="an agreement that cannot be read") as error:
        Agreement.from_json(facts)
    assert problem in str(error.value)


def test_a_report_from_a_stranger_is_checked() -> None:
    facts = reports(hospitals())[0].to_json()
    with pytest.raises(UserError, match="site 'south' says that it is 'north'"):
        SiteReport.from_json("south", facts)
    with pytest.raises(UserError, match="site 'north' sent a report that cannot be read"):
        SiteReport.from_json("north", {**facts, "columns": [{"name": 1}]})


def test_any_change_gives_another_digest() -> None:
    agreement = agreed(hospitals())
    others = [
        replace(agreement, run="another"),
        replace(agreement, classes=("no", "yes", "maybe")),
        replace(agreement, clients=agreement.clients[::-1]),
        replace(agreement, settings=table_config(seed=1).text()),
    ]
    assert len({agreement.digest, *(other.digest for other in others)}) == 5
