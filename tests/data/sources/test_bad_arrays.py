"""Invalid LEAF files, archives and tables, and the error message of each."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from fedloom.core.errors import UserError
from fedloom.data.sources import read


def raw(name, data):
    def make(w, p):
        (p / name).write_bytes(data)
        return p / name

    return make


def leaf(x=None, y=None, file="all_data.json", **changes):
    samples = ([[0.5] * 4] * 5 if x is None else x, [0, 1, 0, 1, 0] if y is None else y)
    return lambda w, p: w.leaf(p / file, {"u": samples}, **changes)


def only_train(w, p):
    return leaf(file="train/a.json")(w, p).parent.parent


def two_shapes(w, p):
    leaf(file="train/a.json")(w, p)
    return leaf([[0.5] * 9], [0], file="test/a.json")(w, p).parent.parent


LEAF = {
    "no JSON": (raw("a.json", b"{"), ("found no readable JSON",), {}),
    "foreign": (
        raw("a.json", b'{"a": 1}'),
        ("found a, expected the fields users and user_data",),
        {},
    ),
    "a list": (raw("a.json", b"[]"), ("found a list",), {}),
    "no test": (only_train, ("expected test/*.json next to train/*.json",), {}),
    "nothing": (lambda w, p: p, ("expected all_data.json",), {"format": "leaf"}),
    "shapes": (two_shapes, ("found samples of shape (1, 3, 3), expected (1, 2, 2)",), {}),
    "user without data": (leaf(users=["u", "v"]), ("user 'v' in users only",), {}),
    "users no list": (leaf(users=3), ("users that are not a list of names",), {}),
    "lengths": (leaf([[0.5] * 4], [0, 1]), ("found 1 x and 2 y of user 'u'",), {}),
    "no x": (leaf(user_data={"u": {"y": [1]}}), ("user 'u' without lists x and y",), {}),
    "empty": (leaf([], []), ("found no samples",), {}),
    "no square": (
        leaf([[0.5] * 5] * 5),
        ("found 5 numbers per sample, expected a square grey image",),
        {},
    ),
    "ragged": (leaf([[0.5], [0.5, 0.5]], [0, 1]), ("samples of several lengths or types",), {}),
    "pixels": (
        leaf([[-3.5] * 4] * 5),
        ("pixels from -3.5 to -3.5, expected fractions in [0, 1]",),
        {},
    ),
    "NaN": (leaf([[float("nan")] * 4] * 5), ("NaN or infinity in image 0",), {}),
    "labels": (leaf(y=["a"] * 5), ("labels of type <U1, expected whole numbers from 0",), {}),
    "file names": (leaf(["1.jpg"] * 5), ("label 0 of a text, expected one character",), {}),
    "text lengths": (
        leaf(["ab", "a"], ["c", "d"]),
        ("a text of 1 characters as sample 1, expected 2",),
        {},
    ),
    "empty text": (leaf(["", ""], ["c", "d"]), ("found empty texts",), {}),
    "mixed": (leaf(["ab", 1], ["c", "d"]), ("texts and numbers mixed",), {}),
}

X = np.zeros((10, 2, 2), np.uint8)
Y = np.arange(10) % 2
HOLE = np.where(np.arange(40).reshape(10, 2, 2) == 13, np.nan, 0.5)
FAR = {"x_train": [[0.0], [1e-30]], "y_train": [0, 1], "x_test": [[1e30]], "y_test": [0]}


def npz(file="a.npz", **arrays):
    return lambda w, p: w.npz(p / file, **arrays)


def no_test(w, p):
    return npz("train.npz", x=X, y=Y)(w, p).parent


NPZ = {
    "foreign": (
        raw("a.npz", b"hello"),
        ("found no readable archive", "write it again with np.savez"),
        {},
    ),
    "objects": (
        npz(x=np.array([{}], object), y=[1]),
        ("it needs unpickling, which can run any code",),
        {},
    ),
    "no y": (npz(x=X), ("a.npz: found x, expected an array 'y'",), {}),
    "no test": (no_test, ("found train.npz, expected test.npz",), {}),
    "half a test": (npz(x_train=X, y_train=Y, x_test=X), ("expected an array 'y_test'",), {}),
    "lengths": (npz(x=X, y=[0, 1]), ("found 10 samples and labels of shape (2,)",), {}),
    "users": (npz(x=X, y=Y, users=[1]), ("found 10 samples and users of shape (1,)",), {}),
    "NaN": (npz(x=HOLE, y=Y), ("NaN or infinity in image 3",), {}),
    "NaN in features": (npz(x=HOLE[:, 0], y=np.arange(10) % 2), ("NaN or infinity in sample",), {}),
    "words": (npz(x=np.full((10, 2), "a"), y=Y), ("features of type <U1",), {}),
    "text images": (npz(x=np.full((10, 2, 2), "a"), y=Y), ("pixels of type <U1",), {}),
    "six dimensions": (
        npz(x=X[:, None, None, None], y=Y),
        ("an array of shape (10, 1, 1, 1, 2, 2)", "reshape it"),
        {},
    ),
    "normalised": (
        npz(x=X - 1.5, y=Y),
        ("pixels from -1.5 to -1.5", "pass the raw pixels: fedloom normalises them"),
        {},
    ),
    "negative label": (npz(x=X, y=Y - 1), ("found label -1, expected whole numbers from 0",), {}),
    "half a label": (npz(x=X, y=Y / 2), ("found label 0.5",), {}),
    "one-hot": (npz(x=X, y=np.eye(10)), ("labels of shape (10, 10)",), {}),
    "too few classes": (
        npz(x=X, y=Y, classes=["a"]),
        ("found label 1, expected 0 to 0 (1 classes)",),
        {},
    ),
    "empty": (npz(x=X[:0], y=[]), ("found no samples",), {}),
    "beyond float32": (npz(x=np.full((10, 1), 1e300), y=Y), ("NaN or infinity in sample 0",), {}),
    "far beyond training": (npz(**FAR), ("features beyond float32",), {}),
    "share": (npz(x=X, y=Y), ("test_share=1.5 must be below 1",), {"test_share": 1.5}),
}


def table(*header, rows, file="t.csv"):
    return lambda w, p: w.table(p / file, header, rows)


def differing(w, p):
    w.table(p / "a.csv", ["x", "y"], [[1, 2]])
    return w.table(p / "b.csv", ["x", "z"], [[1, 2]]).parent


def many(make):
    return [make(i) for i in range(99)]


GOOD = [[i, i % 3, i % 2] for i in range(30)]
TABLE = {
    "empty": (raw("t.csv", b""), ("found no rows",), {}),
    "header only": (raw("t.csv", b"a,b\n"), ("found no rows",), {}),
    "no header": (
        raw("t.csv", b"1,2\n3,4\n"),
        ("numbers (1, 2) in the first line", "add a header line"),
        {},
    ),
    "not UTF-8": (raw("t.csv", b"a,b\n\xff,1\n"), ("found no readable text",), {}),
    "ragged": (raw("t.csv", b"a,b\n1,2\n3\n"), ("found row 3 of length 1, expected 2",), {}),
    "name twice": (table("a", "a", "y", rows=GOOD), ("found column 'a' twice",), {}),
    "no table": (raw("t.txt", b"a"), ("expected a .csv",), {"format": "table"}),
    "target": (
        table("age", "b", "y", rows=GOOD),
        ("no column 'aeg' in ", "did you mean 'age'"),
        {"target": "aeg"},
    ),
    "client": (table("a", "b", "y", rows=GOOD), ("no column 'bank' in ",), {"client": "bank"}),
    "drop": (table("a", "b", "y", rows=GOOD), ("no column 'q' in ",), {"drop": "a,q"}),
    "categorical": (table("a", "b", "y", rows=GOOD), ("no column 'q' in ",), {"categorical": "q"}),
    "no client": (
        table("a", "b", "y", rows=[[None, 1, 0], *GOOD]),
        ("1 rows without a client",),
        {"client": "a"},
    ),
    "no label": (
        table("a", "b", "y", rows=[[1, 1, None], *GOOD]),
        ("column 'y': found 1 rows without a label",),
        {},
    ),
    "one class": (
        table("a", "y", rows=many(lambda i: [i, 7])),
        ("found the one class 7, expected at least two",),
        {},
    ),
    "halves": (
        table("a", "y", rows=many(lambda i: [i, i % 9 / 2])),
        ("9 different values (0, 0.5, 1", "sort the values"),
        {},
    ),
    "ages": (
        table("a", "y", rows=many(lambda i: [i, i]) * 2 + [[0, 99], [0, 100]]),
        ("101 different values",),
        {},
    ),
    "only a target": (
        table("y", rows=many(lambda i: [i % 2])),
        ("found no column apart from the target",),
        {},
    ),
    "nothing left": (table("a", "b", "y", rows=GOOD), ("found no column left",), {"drop": "a,b,y"}),
    "row numbers": (
        table("", "a", "y", rows=GOOD),
        ("no name for column 1", "without its row numbers"),
        {},
    ),
    "infinity": (
        table("a", "y", rows=[["inf", 0], ["1", 1]] * 9),
        ("column 'a': found infinity",),
        {},
    ),
    "beyond float32": (
        table("a", "y", rows=[["1e300", 0], ["1", 1]] * 9),
        ("column 'a': found infinity",),
        {},
    ),
    "empty column": (
        table("a", "y", rows=many(lambda i: [None, i % 2])),
        ("column 'a': found no value", "drop='a'"),
        {},
    ),
    "names": (
        table("a", "y", rows=many(lambda i: [f"n{i}", i % 2])),
        ("values in 79 training rows", "drop='a'"),
        {},
    ),
    "clients differ": (
        differing,
        ("b.csv: found x, z, expected the columns of a.csv", "add or remove: y, z"),
        {},
    ),
    "Parquet": (raw("t.parquet", b"PAR1"), ("found no readable Parquet",), {}),
    "nested Parquet": (
        table("a", "y", rows=many(lambda i: [[i], i % 2]), file="t.parquet"),
        ("column 'a' of type list",),
        {},
    ),
}


@pytest.mark.parametrize("case", LEAF)
def test_leaf(case, rejects):
    rejects(*LEAF[case])


@pytest.mark.parametrize("case", NPZ)
def test_npz(case, rejects):
    rejects(*NPZ[case])


@pytest.mark.parametrize("case", TABLE)
def test_table(case, rejects):
    rejects(*TABLE[case])


def test_without_pyarrow_the_extra_is_named(write, tmp_path, monkeypatch):
    file = write.table(tmp_path / "t.parquet", ["a", "y"], [[1, 0], [2, 1]])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r'needs pyarrow, .* pip install "fedloom\[tables\]"'):
        read(file)


def test_text_that_is_no_text_is_rejected(tmp_path: Path) -> None:
    """Python would raise a SystemError as soon as it looks at such a name."""
    users = np.array(["anna", "ben", "anna", "ben"])
    users.view(np.uint32)[0] = 0x110000
    np.savez(tmp_path / "odd.npz", x=np.zeros((4, 2)), y=np.array([0, 1, 0, 1]), users=users)
    with pytest.raises(UserError, match="text with numbers that are no characters"):
        read(tmp_path / "odd.npz")
