"""Tables: columns as features, missing values, categories, clients; CSV and Parquet."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from fedloom.data.sources import read

HEADER = ["age", "town", "constant", "sick"]
ROWS = [[10, "ulm", 1, "no"], [20, "bonn", 1, "yes"], [None, "ulm", 1, "no"], [60, None, 1, "yes"]]
TEST = [[30, "kiel", 2, "no"], [None, "bonn", 1, "yes"]]


def columns(dataset):
    return [c["name"] for c in json.loads(dataset.about["columns"])]


@pytest.fixture(params=["csv", "parquet"])
def pair(request, write, tmp_path):
    """A train and a test file."""
    write.table(tmp_path / "p" / f"train.{request.param}", HEADER, ROWS)
    write.table(tmp_path / "p" / f"test.{request.param}", HEADER, TEST)
    return tmp_path / "p"


def test_columns_worked_by_hand(pair):
    dataset = read(pair)
    assert (dataset.kind, dataset.classes) == ("table", ("no", "yes"))
    assert dataset.train.y.tolist() == [0, 1, 0, 1]
    assert columns(dataset) == [
        "age",
        "age is missing",
        "town=bonn",
        "town=ulm",
        "town is missing",
        "constant",
    ]
    # median of 10, 20, 60 is 20; filled 10, 20, 20, 60: mean 27.5,
    # variance (306.25 + 56.25 + 56.25 + 1056.25) / 4 = 368.75
    age = (np.array([10, 20, 20, 60]) - 27.5) / 368.75**0.5
    assert dataset.train.x[:, 0].tolist() == pytest.approx(age.tolist(), rel=1e-6)
    assert dataset.train.x[:, 1:].tolist() == [
        [0, 0, 1, 0, 0],
        [0, 1, 0, 0, 0],
        [1, 0, 1, 0, 0],
        [0, 0, 0, 1, 0],
    ]
    assert dataset.test.x[:, 0].tolist() == pytest.approx(
        [2.5 / 368.75**0.5, -7.5 / 368.75**0.5], rel=1e-6
    )
    assert dataset.test.x[:, 1:].tolist() == [[0, 0, 0, 0, 1], [1, 1, 0, 0, 0]], (
        "an unknown category is in no column"
    )
    assert json.loads(dataset.about["columns"])[0] == pytest.approx(
        {"name": "age", "median": 20, "mean": 27.5, "std": 368.75**0.5}
    )


def test_many_categories_become_positions(write, tmp_path):
    rows = [[f"w{i % 25:02d}", i % 2] for i in range(100)]
    write.table(tmp_path / "train.csv", ["word", "y"], rows)
    write.table(tmp_path / "test.csv", ["word", "y"], [["w24", 0], ["other", 1]])
    dataset = read(tmp_path)
    assert columns(dataset) == ["word", "word is missing"]
    assert dataset.train.x[:, 0].unique().numel() == 25
    assert dataset.test.x[0].tolist() == pytest.approx([12 / np.std(np.arange(25)), 0], rel=1e-6)
    assert dataset.test.x[1].tolist() == pytest.approx([0, 1], abs=1e-6), (
        "an unknown category counts as missing: the median, and a mark"
    )


def test_numbers_as_categories_and_dropped_columns(pair):
    dataset = read(pair, categorical="constant", drop="town, age")
    assert columns(dataset) == ["constant=1"]
    assert dataset.test.x.tolist() == [[0.0], [1.0]]


@pytest.mark.parametrize(
    ("header", "options", "classes"),
    [
        (["a", "label", "b"], {}, ("3", "5")),
        (["a", "Y", "b"], {}, ("3", "5")),
        (["a", "b", "c"], {}, ("0", "1", "2", "3")),
        (["a", "b", "c"], {"target": "b"}, ("3", "5")),
    ],
)
def test_which_column_is_the_target(write, tmp_path, header, options, classes):
    rows = [[i * 1.5, 3 + 2 * (i % 2), i % 4] for i in range(40)]
    assert read(write.table(tmp_path / "t.csv", header, rows), **options).classes == classes


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_one_file_per_client(write, tmp_path, ending):
    for client, count in (("north", 10), ("south", 20)):
        write.table(
            tmp_path / "h" / f"{client}.{ending}", ["x", "y"], [[i, i % 2] for i in range(count)]
        )
    dataset = read(tmp_path / "h")
    assert dataset.users == ("north", "south")
    assert torch.bincount(dataset.train.users).tolist() == [8, 16]
    assert torch.bincount(dataset.test.users).tolist() == [2, 4]
    assert "each user" in dataset.about["test split"]


def test_a_client_column(write, tmp_path):
    file = write.table(
        tmp_path / "t.csv", ["bank", "x", "y"], [[i % 3, i, i % 2] for i in range(60)]
    )
    dataset = read(file, client="bank", test_share=0.5)
    assert dataset.users == ("0", "1", "2")
    assert torch.bincount(dataset.train.users).tolist() == [10, 10, 10]
    assert columns(dataset) == ["x"]


def test_semicolons_quotes_and_a_byte_order_mark(tmp_path):
    lines = ["\ufeffx;note;y"] + [f'{i};"one; two\nlines {i % 2}";{"ab"[i % 2]}' for i in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    dataset = read(tmp_path / "t.csv")
    assert dataset.classes == ("a", "b")
    assert columns(dataset) == ["x", "note=one; two\nlines 0", "note=one; two\nlines 1"]


def test_parquet_types(tmp_path):
    import datetime

    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table(
        {
            "flag": [True, None, False, True] * 5,
            "kind": pyarrow.array(["p", "q", "p", None] * 5).dictionary_encode(),
            "day": [datetime.date(2020, 1, 1 + i % 2) for i in range(20)],
            "y": [0, 1] * 10,
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    expected = [
        "flag",
        "flag is missing",
        "kind=p",
        "kind=q",
        "kind is missing",
        "day=2020-01-01",
        "day=2020-01-02",
    ]
    assert columns(read(tmp_path / "t.parquet")) == expected
