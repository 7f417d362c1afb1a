"""Numbers with a decimal comma and separated thousands: read as the same data as plain ones."""

from __future__ import annotations

import tempfile
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.core.errors import UserError
from fedloom.data.identity import identity_sha256
from fedloom.data.sources import read
from fedloom.data.sources.number_format import FORMATS, NumberFormat, number_format

values = st.decimals(-9_999_999, 9_999_999, places=2, allow_nan=False)
MARKS = {"space": "\u202f", "apostrophe": "'"}


def written(value: Decimal, form: NumberFormat) -> str:
    """The number in another format, by the rules of Python's format and not of our pattern."""
    text = f"{value:,.2f}".replace(",", "T").replace(".", form.decimal)
    return text.replace("T", MARKS.get(form.thousands, form.thousands))


def dataset(folder: Path, numbers: list[Decimal], form: NumberFormat, **options: str):
    rows = [f"{written(value, form)};{'ab'[i % 2]}" for i, value in enumerate(numbers)]
    file = folder / "t.csv"
    file.write_text("\n".join(["amount;y", *rows]), encoding="utf-8")
    return read(file, **options)


@settings(max_examples=30, deadline=None)
@given(numbers=st.lists(values, min_size=12, max_size=30), form=st.sampled_from(FORMATS))
def test_a_format_changes_nothing_but_the_file(numbers, form):
    with tempfile.TemporaryDirectory() as folder:
        plain = dataset(Path(folder), numbers, NumberFormat())
        other = dataset(Path(folder), numbers, form, **form.options())
    assert identity_sha256(other) == identity_sha256(plain)


@settings(max_examples=30, deadline=None)
@given(value=values, form=st.sampled_from(FORMATS))
def test_a_written_number_is_understood(value, form):
    plain = form.plain(written(value, form))
    assert plain is not None and Decimal(plain) == value


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (NumberFormat(","), "1.5"),
        (NumberFormat(",", "."), "1.23"),
        (NumberFormat(",", "."), "1234.567"),
        (NumberFormat(".", ","), "12,34"),
        (NumberFormat(".", ","), "1,234,5"),
        (NumberFormat(".", "space"), "1 2"),
        (NumberFormat(","), "yes"),
        (NumberFormat(","), ""),
    ],
)
def test_what_is_no_number_in_a_format(form, text):
    assert form.plain(text) is None


def test_one_character_cannot_be_both():
    with pytest.raises(UserError, match=r"the same character; .* 1\.234,5 set decimal=','"):
        number_format(".", ".")


def column(tmp_path: Path, *cells: str, **options: str):
    rows = [f"{cells[i % len(cells)]};{i % 2}" for i in range(12 * len(cells))]
    (tmp_path / "t.csv").write_text("\n".join(["a;y", *rows]), encoding="utf-8")
    return read(tmp_path / "t.csv", **options)


HINTS = {
    ("0,5", "1,25"): "set decimal=','; if the column holds categories, set categorical='a'",
    ("950", "1,234"): "set decimal=',' if 1,234 means 1.234, or set thousands=',' if 1,234 means "
    "1234",
    ("950", "1,234.5"): "set thousands=','",
    ("1.234,5", "3"): "set decimal=',' and thousands='.'",
    ("1.234.567", "3"): "set decimal=',' and thousands='.'",
    ("1 234", "-2 000"): "set thousands='space'",
    ("1'234.5", "2"): "set thousands='apostrophe'",
}


@pytest.mark.parametrize("cells", HINTS)
def test_the_option_that_fits_is_named(cells, tmp_path):
    with pytest.raises(UserError) as caught:
        column(tmp_path, *cells)
    assert HINTS[cells] in str(caught.value) and "column 'a'" in str(caught.value)


def test_the_wrong_option_is_named(tmp_path):
    with pytest.raises(UserError, match=r"'0.5', '1.5', expected numbers with decimal=','; leave"):
        column(tmp_path, "0.5", "1.5", decimal=",")


def test_the_options_already_set_are_kept(tmp_path):
    with pytest.raises(UserError) as caught:
        column(tmp_path, "331.400", "242.000", decimal=",")
    assert (
        "leave out decimal=',' if 242.000 means 242.000, "
        "or set decimal=',' and thousands='.' if 242.000 means 242000" in str(caught.value)
    )


def test_a_cell_in_another_format_is_a_word(tmp_path):
    with pytest.raises(UserError, match=r"numbers in 24 rows and '2.5' in 12 \(row 4: '2.5', .*"):
        column(tmp_path, "0,5", "1,5", "2.5", decimal=",")


def test_a_missing_value_in_the_format_of_the_file(tmp_path):
    about = column(tmp_path, "0,5", "1,5", "-999,0", decimal=",", na=-999).about
    assert "a is missing" in about["columns"]


def test_a_dataframe_is_told_how_to_read_its_file():
    pandas = pytest.importorskip("pandas")
    from fedloom.data.from_python import as_dataset

    frame = pandas.DataFrame({"a": ["0,5", "1,5"] * 10, "b": range(20), "y": [0, 1] * 10})
    with pytest.raises(UserError, match=r"set decimal=',' in pandas.read_csv"):
        as_dataset(frame, target="y")
