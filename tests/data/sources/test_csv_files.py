"""CSV files: which character separates the cells, and which row of the file is meant."""

from __future__ import annotations

import pytest

from fedloom.core.errors import UserError
from fedloom.data.sources import read
from fedloom.data.sources.csv_files import separator_of

SEPARATED = {
    "commas": ("a,b\n1,2\n3,4\n", ","),
    "semicolons": ("a;b\n1;2\n3;4\n", ";"),
    "tabs": ("a\tb\n1\t2\n", "\t"),
    "pipes": ("a|b\n1|2\n", "|"),
    "decimal commas": ("a;b\n1,5;2,5\n", ";"),
    "decimal commas, no header": ("1,5;2,5;3,5\n1,5;2,5;3,5\n", ";"),
    "commas in names": ("sales, net;year\n1;2\n", ";"),
    "semicolons in quotes": ('a,b\n"1;2",2\n3,"4;5"\n', ","),
    "semicolons in some rows": ("a,b\n1;2,2\n3,4\n", ","),
    "line breaks in quotes": ('a;b\n"1,\n2";2\n', ";"),
    "ragged": ("a,b,c\n1,2\n3,4,5\n", ","),
    "ragged, semicolons": ("a;b;c\n1,1;2\n3;4;5\n", ";"),
    "one column": ("a\n1\n", ","),
}


@pytest.mark.parametrize("case", SEPARATED)
def test_separator(case):
    text, expected = SEPARATED[case]
    assert separator_of(text) == expected


def test_european_file(tmp_path):
    lines = ["size;price;y", *(f"{i},5;{i % 3}.000,25;{'ab'[i % 2]}" for i in range(1, 21))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    dataset = read(tmp_path / "t.csv", decimal=",", thousands=".")
    assert dataset.shape == (2,) and dataset.classes == ("a", "b")


def test_rows_without_any_value_are_no_rows(tmp_path):
    lines = ["a;y", *(f"{i};{i % 2}" for i in range(20)), ";", "", ";"]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    dataset = read(tmp_path / "t.csv")
    assert len(dataset.train) + len(dataset.test) == 20


def test_rows_are_counted_as_in_a_spreadsheet(tmp_path):
    lines = ["a,y", "1,0", "", '"2",1', "3,", *(f"{i},{i % 2}" for i in range(20))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"1 rows without a label \(the first is row 5\)"):
        read(tmp_path / "t.csv")


def test_cells_are_named_with_their_file(tmp_path):
    for name, word in (("north", "7"), ("south", "unknown")):
        lines = ["age,y", *(f"{word if i in (3, 8) else i},{i % 2}" for i in range(20))]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    with pytest.raises(UserError) as caught:
        read(tmp_path)
    assert (
        "column 'age': found numbers in 38 rows and 'unknown' in 2 "
        "(south.csv row 5: 'unknown', south.csv row 10: 'unknown')" in str(caught.value)
    )
    assert "set na=unknown" in str(caught.value)
    assert len(read(tmp_path, na="unknown").train) == 32
