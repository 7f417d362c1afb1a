"""What was understood of a data set, as data and as text."""

from __future__ import annotations

import numpy as np

from fedloom.data.dataset_summary import summary, summary_lines
from fedloom.data.sources import read

ROWS = [
    [10 * i, None if i in (2, 5) else f"w{i % 3}", f"c{i % 25:02d}", "ny"[i % 4 == 0]]
    for i in range(100)
]


def test_a_table_worked_by_hand(write, tmp_path):
    for site, rows in (("east", ROWS[:40]), ("west", ROWS[40:])):
        write.table(tmp_path / f"{site}.csv", ["age", "town", "code", "ill"], rows)
    facts = summary(read(tmp_path))
    assert (facts["rows"]["total"], facts["rows"]["train"], facts["rows"]["test"]) == (100, 80, 20)
    assert facts["clients"] == {
        "count": 2, "names": ["east", "west"], "smallest": 40, "largest": 60
    }  # fmt: skip
    kinds = {
        c["name"]: (c["kind"], c["inputs"], c["missing"]) for c in facts["features"]["columns"]
    }
    assert kinds == {
        "age": ("numeric", 1, 0),
        "town": ("categorical", 4, 2),
        "code": ("categorical", 1, 0),
    }
    assert facts["classes"] == {"n": 75, "y": 25}
    assert (facts["missing"]["values"], facts["missing"]["columns"]) == (2, {"town": 2})
    lines = summary_lines(facts)
    assert lines["rows"].startswith("100: 80 to train, 20 to test (held out by fedloom")
    assert lines["clients"] == "2, 40 to 60 rows each: east, west"
    assert lines["features"] == "3 columns, 6 inputs of the model"
    assert lines["  numeric"] == "1, standardised: age"
    assert lines["  categorical"] == "1, one-hot encoded as 4 inputs: town"
    assert lines["  many values"] == "1, as positions in the sorted list: code"
    assert lines["target"] == "column 'ill'"
    assert lines["classes"] == "2: n (75), y (25)"
    assert lines["missing values"].startswith("2 in 1 column: town (2); a missing number becomes")


def test_images_and_texts(write, tmp_path):
    pixels = np.arange(40 * 9, dtype=np.uint8).reshape(40, 3, 3)
    images = summary_lines(
        summary(read(write.npz(tmp_path / "i.npz", x=pixels, y=np.arange(40) % 2)))
    )
    assert images["samples"].startswith("40: 32 to train, 8 to test")
    assert images["kind"] == "image, 1 x 3 x 3"
    assert images["clients"] == "not in the data: a partition makes them"
    assert "missing values" not in images and "target" not in images
    texts = {u: (["ab\n ", "b\n a"] * 10, ["a", "\n"] * 10) for u in ("one", "two")}
    leaf = summary_lines(summary(read(write.leaf(tmp_path / "all_data.json", texts))))
    assert leaf["clients"] == "2, 20 samples each: one, two"
    assert "'\\n' (20)" in leaf["classes"], "a line break can be seen"
