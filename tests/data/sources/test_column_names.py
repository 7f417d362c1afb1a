"""Sites that name, spell and order columns differently, or lack some."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data import writers
from fedloom.core.errors import UserError
from fedloom.data.identity import identity_sha256
from fedloom.data.sources import read
from fedloom.data.sources.checks import problems_and_notes

NAMES = ("age", "blood pressure", "smoker", "ill")


def cell(name: str, i: int):
    return {"age": 30 + i % 17, "blood pressure": 100 + i * 7 % 31}.get(name, "ny"[i * i % 3 == 1])


def site(folder: Path, name: str, columns=NAMES, headers=None, count=24, empty=(), shift=0) -> None:
    rows = [
        [None if c in empty else cell(c, i) for c in columns] for i in range(shift, count + shift)
    ]
    writers.table(folder / f"{name}.csv", headers or columns, rows)


def sites(tmp_path: Path, **second) -> Path:
    """Two sites, the second one with other columns."""
    site(tmp_path, "a")
    site(tmp_path, "b", **{"shift": 5, **second})
    return tmp_path


def sha(path: Path, **options) -> str:
    return identity_sha256(read(path, **{"target": "ill", **options}))


@pytest.fixture
def plain(tmp_path):
    return sha(sites(tmp_path / "plain"))


@settings(max_examples=30, deadline=None)
@given(order=st.permutations(NAMES))
def test_the_order_of_columns_does_not_matter(order):
    with tempfile.TemporaryDirectory() as folder:
        expected = sha(sites(Path(folder)))
        assert sha(sites(Path(folder), columns=order)) == expected


def spelt(name: str) -> st.SearchStrategy[str]:
    """The name with other capitals, and blanks between its letters."""
    letter = [st.sampled_from([c, c.upper(), f"{c} "]) for c in name if c != " "]
    return st.tuples(*letter).map("".join)


@settings(max_examples=30, deadline=None)
@given(headers=st.tuples(*(spelt(name) for name in NAMES)))
def test_case_and_blanks_do_not_matter(headers):
    with tempfile.TemporaryDirectory() as folder:
        expected = sha(sites(Path(folder)))
        assert sha(sites(Path(folder), headers=headers)) == expected


OTHER = ("Alter", "RR", "smoker", "ill")
MAPPINGS = {
    "as written": "Alter:age,RR:blood pressure",
    "with blanks": " Alter : age , RR : blood pressure ",
    "other case": "ALTER:age,rr:blood pressure",
    "a dict": {"Alter": "age", "RR": "blood pressure"},
}


@pytest.mark.parametrize("case", MAPPINGS)
def test_other_names_give_the_same_data(case, plain, tmp_path):
    assert sha(sites(tmp_path / "b", headers=OTHER), columns=MAPPINGS[case]) == plain


def test_every_site_may_have_its_own_name_for_a_column(plain, tmp_path):
    site(tmp_path, "a", headers=("Years", *NAMES[1:]))
    site(tmp_path, "b", headers=("Alter", *NAMES[1:]), shift=5)
    assert sha(tmp_path, columns="Alter:age,years:age") == plain


def test_names_can_be_exchanged(plain, tmp_path):
    swapped = ("blood pressure", "age", *NAMES[2:])
    for name, shift in (("a", 0), ("b", 5)):
        site(tmp_path, name, headers=swapped, shift=shift)
    mapping = {"blood pressure": "age", "age": "blood pressure"}
    assert sha(tmp_path, columns=mapping) == plain


def test_the_target_may_have_another_name(plain, tmp_path):
    assert sha(sites(tmp_path / "b", headers=(*NAMES[:3], "krank")), columns="krank:ill") == plain


def test_an_adapted_spelling_is_said(tmp_path):
    dataset = read(sites(tmp_path, headers=("Age", *NAMES[1:])))
    assert "note: column 'Age' of b.csv is read as 'age'" in problems_and_notes(dataset)


REFUSED = {
    "two columns of one spelling": (
        {"columns": ("age", *NAMES), "headers": ("AGE", "Age", *NAMES[1:])},
        {},
        ("b.csv", "the columns 'AGE' and 'Age', which are both 'age'"),
    ),
    "two candidates for a name": (
        {"columns": ("age", *NAMES), "headers": ("YEARS", "Years", *NAMES[1:])},
        {"columns": "years:age"},
        ("b.csv", "two columns that are spelt like 'years': 'YEARS', 'Years'"),
    ),
    "old and new name": (
        {"columns": ("age", *NAMES), "headers": ("Alter", *NAMES)},
        {"columns": "Alter:age"},
        ("b.csv", "the columns 'Alter' and 'age', which are both 'age'"),
    ),
    "no such column": (
        {"headers": OTHER},
        {"columns": "Altr:age"},
        ("no column 'Altr' in ", "(named by columns=); did you mean 'Alter'?"),
    ),
    "no pair": ({}, {"columns": "age"}, ("OTHER:NAME pairs", "columns=Alter:age")),
    "no text": ({}, {"columns": {"age": 3}}, ("OTHER:NAME pairs",)),
    "two meanings": (
        {"headers": OTHER},
        {"columns": "Alter:age,Alter:years"},
        ("gives 'Alter' the two names 'age' and 'years'",),
    ),
    "two meanings of one spelling": (
        {"headers": OTHER},
        {"columns": "ALTER:age,alter:years"},
        ("column 'Alter', for which columns= has the names 'age' and 'years'",),
    ),
    "another name": (
        {"headers": ("Alter", *NAMES[1:])},
        {},
        ("b.csv: found Alter, ", "add or remove: Alter, age", "columns='Alter:age'"),
    ),
    "a column less": (
        {"columns": NAMES[1:]},
        {},
        ("b.csv: found ", "the columns of a.csv", "missing_columns=fill"),
    ),
    "no target": (
        {"columns": NAMES[:3]},
        {"missing_columns": "fill"},
        ("no column 'ill' in b.csv, expected it in every file", "target="),
    ),
    "no client": (
        {"columns": NAMES[1:]},
        {"missing_columns": "fill", "client": "age"},
        ("no column 'age' in b.csv, expected it in every file", "client="),
    ),
    "another word": ({}, {"missing_columns": "union"}, ("must be 'refuse' or 'fill'",)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case, tmp_path):
    second, options, says = REFUSED[case]
    with pytest.raises(UserError) as caught:
        sha(sites(tmp_path, **second), **options)
    assert [piece for piece in says if piece not in str(caught.value)] == [], str(caught.value)


@settings(max_examples=30, deadline=None)
@given(lacking=st.sets(st.sampled_from(NAMES[:3]), max_size=2))
def test_an_absent_column_equals_an_empty_one(lacking):
    kept = [name for name in NAMES if name not in lacking]
    with tempfile.TemporaryDirectory() as folder:
        absent, empty = Path(folder) / "absent", Path(folder) / "empty"
        expected = sha(sites(empty, empty=lacking))
        assert sha(sites(absent, columns=kept), missing_columns="fill") == expected


def test_a_column_of_a_later_site_only(tmp_path):
    site(tmp_path, "a", columns=("age", "ill"))
    site(tmp_path, "b", columns=("age", "ill", "smoker"), shift=5)
    dataset = read(tmp_path, missing_columns="fill")
    assert dataset.about["target"] == "column 'ill'", "the last column that all sites have"
    names = [column["name"] for column in json.loads(dataset.about["columns"])]
    assert names == ["age", "smoker=n", "smoker=y", "smoker is missing"]
    note = "note: column 'smoker' is absent from a.csv: its 24 values there are treated as missing"
    assert note in problems_and_notes(dataset)


def test_a_column_that_only_one_site_has_can_be_dropped(plain, tmp_path):
    folder = sites(tmp_path, columns=("age", *NAMES), headers=("id", *NAMES))
    assert sha(folder, drop="id") == plain
    with pytest.raises(UserError, match=r"no column 'idd' in .*; did you mean 'id'"):
        sha(folder, drop="idd")


def test_lists_and_numbers_as_options(tmp_path):
    rows = [[i % 7, i % 5, "ab"[i % 2], -9 if i % 10 else -99] for i in range(40)]
    file = writers.table(tmp_path / "t.csv", ["1", "2", "y", "n"], rows)
    dataset = read(file, drop=(1, 2), target="y", na="5")
    assert [c["name"] for c in json.loads(dataset.about["columns"])] == ["n"]
    assert read(file, drop=1, target="y").shape == (2,)
    assert read(file, drop=["1", "n"], target="y").shape == (1,)
    with pytest.raises(UserError, match="no value in the training rows"):
        read(file, na=(-9, -99), target="y")
