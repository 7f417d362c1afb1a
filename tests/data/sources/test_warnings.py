"""What is read, but may not be meant, is said; what is sound is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedloom.core.errors import UserError
from fedloom.data import store
from fedloom.data.from_python import as_dataset
from fedloom.data.sources import read
from fedloom.data.sources.checks import warnings_about

HOSPITALS = Path(__file__).parents[3] / "docs" / "examples" / "hospitals"


def text_file(tmp_path, *lines):
    (tmp_path / "t.csv").write_text("\n".join(lines))
    return tmp_path / "t.csv"


def test_sound_data_give_no_warning(write, tmp_path):
    assert warnings_about(read(HOSPITALS, target="ill")) == []
    rows = [[i, "ml"[i % 2], i % 2] for i in range(40)]
    assert warnings_about(read(write.table(tmp_path / "a.csv", ["x", "m", "y"], rows))) == []
    x, y = np.arange(60.0).reshape(30, 2), np.arange(30) % 2
    assert warnings_about(as_dataset((x, y), client_ids=np.arange(30) % 3)) == []


WORDS = [f"{('blue', 'pink')[i % 2]},{('big', 'wee')[i % 3 > 0]},{'ab'[i % 2]}" for i in range(30)]


@pytest.mark.parametrize(
    ("first", "says"),
    [
        ("red,wee,word", "'wee' also occurs below it in the same column"),
        ("red,small,no", "'no' is an odd name of a column"),
    ],
)
def test_a_first_line_of_words_may_be_data(first, says, tmp_path):
    file = text_file(tmp_path, first, *WORDS)
    (warning,) = warnings_about(read(file))
    assert warning.startswith("t.csv: the first line may be a row of data") and says in warning
    assert "header=NAME,NAME,..." in warning
    assert warnings_about(read(file, header="yes")) == []
    assert warnings_about(read(file, header="colour,size,kind")) == []


def test_a_word_above_numbers_is_a_header(tmp_path):
    file = text_file(
        tmp_path, "age,big,y", *(f"{i},{('big', 'wee')[i % 2]},a{i % 2}" for i in range(30))
    )
    assert warnings_about(read(file)) == []


def test_numbers_among_words(tmp_path):
    file = text_file(
        tmp_path, "size,y", *(f"{('S', 'M', 'L', 42)[i % 4]},{i % 2}" for i in range(40))
    )
    (warning,) = warnings_about(read(file))
    assert warning == (
        "column 'size': 10 of 40 values are numbers (42), the others words (L, M, S); "
        "all are taken as categories; if that is meant, set categorical='size'"
    )
    assert warnings_about(read(file, categorical="size")) == []


def test_letters_and_digits_may_be_the_classes(tmp_path):
    file = text_file(tmp_path, "x,y", *(f"{i},{'012ab'[i % 5]}" for i in range(40)))
    with pytest.raises(UserError, match="categorical='y'"):
        read(file)
    file = text_file(tmp_path, "x,y", *(f"{i},{'01abc'[i % 5]}" for i in range(40)))
    assert warnings_about(read(file)) == []


def clients(tmp_path, **labels):
    for name, y in labels.items():
        lines = ["x,y", *(f"{i},{label}" for i, label in enumerate(y))]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    return warnings_about(read(tmp_path))


def test_a_site_of_one_class(tmp_path):
    (warning,) = clients(tmp_path, north="ab" * 10, south="b" * 10)
    assert warning.startswith("a single class at 1 of 2 clients: 'south' ('b' in all 10 samples)")


def test_a_site_of_few_rows(tmp_path):
    (warning,) = clients(tmp_path, north="ab" * 10, south="ab" * 4 + "a", west="ab" * 5)
    assert "few samples at 1 of 3 clients (fewer than 10, training and test" in warning
    assert "'south' (9)" in warning and "user(min_size=10)" in warning


def test_a_tiny_site_is_not_named_twice(tmp_path):
    (warning,) = clients(tmp_path, north="ab" * 10, south="aaa")
    assert "few samples" in warning


def test_ids_that_hardly_repeat(write, tmp_path):
    rows = [[i if i < 70 else i - 30, i % 9, i % 2] for i in range(100)]
    file = write.table(tmp_path / "t.csv", ["id", "x", "y"], rows)
    (warning,) = warnings_about(read(file, client="id"))
    assert "40 of 70 clients have a single sample, so the ids may number the samples" in warning


def test_users_without_training_samples_are_no_clients(write, tmp_path):
    x = np.arange(60.0).reshape(30, 2)
    write.npz(tmp_path / "p" / "train.npz", x=x, y=np.arange(30) % 2, users=np.arange(30) % 3)
    write.npz(tmp_path / "p" / "test.npz", x=x[:3], y=np.arange(3) % 2, users=[5, 6, 7])
    assert warnings_about(read(tmp_path / "p")) == []


def test_a_target_that_numbers_the_rows(write, tmp_path):
    file = write.table(tmp_path / "t.csv", ["a", "id"], [[i % 3, i] for i in range(30)])
    with pytest.raises(UserError, match=r"found 30 different values .* in 30 rows, .* target="):
        read(file)


def test_warnings_are_stored(tmp_path):
    file = text_file(
        tmp_path, "size,y", *(f"{('S', 'M', 'L', 42)[i % 4]},{i % 2}" for i in range(40))
    )
    with pytest.warns(UserWarning, match="column 'size'"):
        store.add("t", file, root=tmp_path / "r")
    assert any(
        line.startswith("warning: column 'size'") for line in store.check("t", tmp_path / "r")
    )


def test_points_that_may_separate_thousands(tmp_path):
    file = text_file(
        tmp_path, "n,y", *(f"{('950', '1.234', '7')[i % 3]},{i % 2}" for i in range(30))
    )
    (warning,) = warnings_about(read(file))
    assert warning == (
        "column 'n': the '.' in 1.234 is taken as the decimal mark; "
        "if it means 1234, set decimal=',' and thousands='.'"
    )
    assert warnings_about(read(file, decimal=",", thousands=".")) == []


@pytest.mark.parametrize(
    "cells", [("0.125", "950"), ("1.25", "950"), ("1.234", "7"), ("1", "2000")]
)
def test_usual_numbers_with_a_point(cells, tmp_path):
    file = text_file(tmp_path, "n,y", *(f"{cells[i % 2]},{i // 2 % 2}" for i in range(30)))
    assert warnings_about(read(file)) == []
