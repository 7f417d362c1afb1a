"""Input that could be read, but not as it was meant: refused, or said."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from fedloom.core.errors import UserError
from fedloom.data import store
from fedloom.data.from_python import as_dataset
from fedloom.data.sources import from_torch, read
from fedloom.data.sources.checks import problems_and_notes

X = np.arange(40, dtype=np.float32).reshape(20, 2)
MEASURED = np.linspace(0.5, 1.2, 20)
WHOLE = np.arange(20.0) % 2
HALF = [0, 7] * 10

REGRESSION = "looks like a target for regression: set task=regression"


def sources(write, tmp_path, y, header="y"):
    """The same labels through every way in that takes numbers."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y})
    rows = [[*x, label] for x, label in zip(X.tolist(), np.asarray(y).tolist(), strict=True)]
    pairs = list(zip(torch.from_numpy(X), torch.as_tensor(np.asarray(y)), strict=True))
    return {
        "arrays": lambda: as_dataset((X, y)),
        "tensors": lambda: as_dataset((torch.from_numpy(X), torch.as_tensor(np.asarray(y)))),
        "torch Dataset": lambda: as_dataset(pairs),
        "from_torch": lambda: from_torch(pairs),
        "DataFrame": lambda: as_dataset(frame, target="y"),
        "npz": lambda: read(write.npz(tmp_path / "a.npz", x=X, y=y)),
        "csv": lambda: read(write.table(tmp_path / "t.csv", ["a", "b", "y"], rows)),
        "parquet": lambda: read(write.table(tmp_path / "t.parquet", ["a", "b", "y"], rows)),
    }


WAYS = (
    "arrays",
    "tensors",
    "torch Dataset",
    "from_torch",
    "DataFrame",
    "npz",
    "csv",
    "parquet",
)


@pytest.mark.parametrize("way", [w for w in WAYS if w != "torch Dataset"])
def test_a_measured_target_is_no_class(way, write, tmp_path):
    with pytest.raises(UserError, match=REGRESSION):
        sources(write, tmp_path, MEASURED)[way]()


def test_a_torch_dataset_with_a_measured_target():
    class Measured(torch.utils.data.Dataset):
        def __len__(self):
            return 20

        def __getitem__(self, i):
            return torch.from_numpy(X[i]), MEASURED[i]

    with pytest.raises(UserError, match=REGRESSION):
        as_dataset(Measured())


@pytest.mark.parametrize("way", [w for w in WAYS if w != "torch Dataset"])
@pytest.mark.parametrize("labels", [WHOLE, HALF], ids=["whole floats", "0 and 7"])
def test_the_distinct_labels_are_the_classes(way, labels, write, tmp_path):
    dataset = sources(write, tmp_path, labels)[way]()
    assert dataset.classes == tuple(str(int(label)) for label in np.unique(labels))
    assert sorted(dataset.train.y.unique().tolist()) == [0, 1]
    notes = [line for line in problems_and_notes(dataset) if "gaps" in line]
    expected = "note: the labels have gaps: there are 2 classes, 0, 7, and none for 1 to 6"
    assert notes == ([expected] if labels is HALF else [])


def test_labels_from_1_have_no_gap(write, tmp_path):
    dataset = read(write.npz(tmp_path / "a.npz", x=X, y=1 + np.arange(20) % 4))
    assert dataset.classes == ("1", "2", "3", "4")
    assert problems_and_notes(dataset) == []


def test_idx_and_leaf_number_the_labels_that_occur(write, tmp_path):
    x = np.arange(20 * 9, dtype=np.uint8).reshape(20, 3, 3)
    dataset = read(write.idx(tmp_path / "i", (x, HALF), (x[:2], [0, 3])))
    assert dataset.classes == ("0", "3", "7") and dataset.test.y.tolist() == [0, 1]
    samples = {u: (x.reshape(20, 9)[:5].tolist(), [0, 2, 2, 0, label]) for u, label in ("a5", "b9")}
    samples = {u: (xs, [*ys[:4], int(ys[4])]) for u, (xs, ys) in samples.items()}
    file = write.leaf(tmp_path / "all_data.json", samples)
    assert read(file).classes == ("0", "2", "5", "9")
    assert read(file, users=1).classes == ("0", "2", "5", "9"), "those of all users"


@pytest.mark.parametrize("label", [1e300, 2.0**60])
def test_labels_too_large_for_a_number_of_a_class(label):
    with pytest.raises(UserError, match="expected numbers up to"):
        as_dataset((X, np.where(np.arange(20) < 9, label, 0.0)))


HEADERLESS = {
    "numbers and a word": ("5.1,3.5,setosa\n4.9,3.0,setosa\n6.1,2.2,other\n", "numbers (5.1, 3.5)"),
    "whole numbers and a word": ("9,3,no\n4,3,no\n6,2,yes\n", "numbers (9, 3)"),
    "words": (
        "red,small,no\nred,large,yes\nblue,large,no\n",
        "values of the same columns (red, no) in the first line",
    ),
    "numbers": ("1,2\n3,4\n", "numbers (1, 2) in the first line, which looks like data"),
}


@pytest.mark.parametrize("case", HEADERLESS)
def test_a_table_without_a_header_is_refused(case, tmp_path):
    text, says = HEADERLESS[case]
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(UserError) as caught:
        read(tmp_path / "t.csv")
    assert says in str(caught.value) and "header=NAME,NAME,..." in str(caught.value)


def test_the_header_can_be_given(tmp_path):
    lines = [f"{i}.5,{'ab'[i % 2]}" for i in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    dataset = read(tmp_path / "t.csv", header="length, sort", target="sort")
    assert len(dataset.train) + len(dataset.test) == 20 and dataset.classes == ("a", "b")
    with pytest.raises(UserError, match="found 2 columns, expected the 3 that header= names"):
        read(tmp_path / "t.csv", header="a,b,c")


def test_a_first_line_of_numbers_can_be_the_header(tmp_path):
    lines = ["1.5,2.5"] + [f"{i},{i % 2}" for i in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    assert len(read(tmp_path / "t.csv", header="yes").train) == 16


@pytest.mark.parametrize("header", ["0,1,target", "label,1990,1991"])
def test_columns_named_by_increasing_numbers_are_a_header(header, tmp_path):
    lines = [header] + [f"{i % 2},{i},{i % 2}" for i in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    assert len(read(tmp_path / "t.csv").train) == 16


def test_a_value_may_happen_to_be_the_name_of_its_column(tmp_path):
    lines = ["a,m,y"] + [f"{i},{'mf'[i % 2]},{i % 2}" for i in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    assert len(read(tmp_path / "t.csv").train) == 16


def test_a_header_is_for_files_that_can_lack_one(write, tmp_path):
    file = write.table(tmp_path / "t.parquet", ["a", "y"], [[i, i % 2] for i in range(20)])
    with pytest.raises(UserError, match="leave out header="):
        read(file, header="a,y")


def with_words(write, tmp_path, *words):
    rows = [[word, i % 2] for i, word in enumerate([*words, *(i % 9 for i in range(30))])]
    return write.table(tmp_path / "t.csv", ["age", "y"], rows)


def names(dataset):
    return [column["name"] for column in json.loads(dataset.about["columns"])]


def test_words_among_numbers_are_named(write, tmp_path):
    with pytest.raises(UserError) as caught:
        read(with_words(write, tmp_path, 4, "-", "-", "old"))
    for piece in (
        "column 'age': found numbers in 31 rows and '-', 'old' in 3 "
        "(row 3: '-', row 4: '-', row 5: 'old')",
        "set na=-,old",
        "set categorical='age'",
        "drop='age'",
    ):
        assert piece in str(caught.value)


def test_words_among_numbers_can_be_missing_values_or_categories(write, tmp_path):
    file = with_words(write, tmp_path, "-", "old", "NULL")
    assert names(read(file, na="-,OLD")) == ["age", "age is missing"]
    assert "age" in names(read(file, categorical="age"))[0]


@pytest.mark.parametrize("na", [-999, "-999"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_number_can_stand_for_a_missing_value(na, ending, write, tmp_path):
    rows = [[float(-999 if i < 3 else i), i % 2] for i in range(30)]
    file = write.table(tmp_path / f"t.{ending}", ["age", "y"], rows)
    assert names(read(file, na=na)) == ["age", "age is missing"]
    assert names(read(file)) == ["age"]


def test_a_target_of_numbers_with_a_word_is_refused(write, tmp_path):
    rows = [[i, "-" if i == 5 else i % 2] for i in range(30)]
    file = write.table(tmp_path / "t.csv", ["a", "y"], rows)
    with pytest.raises(UserError, match="column 'y': found numbers in 29 rows and '-' in 1"):
        read(file)
    assert read(file, categorical="y").classes == ("-", "0", "1")


def test_decimal_commas_are_no_categories(tmp_path):
    lines = ["a;y"] + [f"{i % 4},5;{i % 2}" for i in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"written as '0,5', '1,5', '2,5', .*; set decimal=','"):
        read(tmp_path / "t.csv")


def test_a_category_may_look_like_a_number_with_a_comma(tmp_path):
    lines = ["a;y"] + [f"{('1,2', 'all', 'none of it')[i % 3]};{i % 2}" for i in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    assert names(read(tmp_path / "t.csv")) == ["a=1,2", "a=all", "a=none of it"]


def test_words_among_the_numbers_of_a_dataframe():
    pandas = pytest.importorskip("pandas")
    column = ["-", *[str(i) for i in range(19)]]
    frame = pandas.DataFrame({"age": column, "b": X[:, 0], "y": HALF})
    with pytest.raises(UserError, match=r"column 'age': found numbers in 19 rows and '-' in 1 .*"):
        as_dataset(frame, target="y")
    frame["age"] = pandas.Series([str(i % 3) for i in range(19)] + ["-"], dtype="category")
    assert as_dataset(frame, target="y").shape == (5,)


def test_a_client_column_that_numbers_the_rows(write, tmp_path):
    rows = [[i, i % 4, i / 7, i % 2] for i in range(100)]
    file = write.table(tmp_path / "t.csv", ["id", "ward", "x", "y"], rows)
    with pytest.raises(UserError) as caught:
        read(file, client="id")
    for piece in (
        "column 'id': found 100 different values in 100 rows, so 100 clients of one sample",
        "name another column, such as 'ward'",
    ):
        assert piece in str(caught.value)
    assert len(read(file, client="ward").users) == 4


def test_client_ids_that_number_the_samples(write, tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": range(20), "ward": HALF, "x": X[:, 0], "y": WHOLE})
    with pytest.raises(UserError, match=r"data, column 'id': .*such as 'ward'"):
        as_dataset(frame, target="y", client="id")
    with pytest.raises(UserError, match="client_ids: found 20 different values in 20 rows"):
        as_dataset((X, WHOLE), client_ids=range(20))
    with pytest.raises(UserError, match="the users: found 20 different values in 20 rows"):
        read(write.npz(tmp_path / "a.npz", x=X, y=WHOLE, users=np.arange(20)))


def test_the_target_is_recorded(write, tmp_path):
    file = write.table(tmp_path / "t.csv", ["a", "b"], [[i, i % 2] for i in range(20)])
    store.add("t", file, root=tmp_path / "r")
    assert store.load("t", tmp_path / "r").about["target"] == "column 'b'"
