"""Plots: a moving average over the accuracies it averages, changes by class, a table's results."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from fedloom.metrics.curve import CurveOptions
from fedloom.reports.colours import styles
from fedloom.reports.comparison_row import ComparisonRow
from fedloom.reports.paper_table import CellResult
from fedloom.reports.plots import changes, curves, effects
from fedloom.settings.paper_table import Printed

FLAT = tuple((r, 0.5) for r in range(1, 21))
ALTERNATING = tuple((r, 0.2 if r % 2 else 0.8) for r in range(1, 21))


def height_of_blue(path: Path, curve: tuple[tuple[int, float], ...]) -> float:
    """Share of the plot's height that the first row's colour spans, left of the legend.

    The moving average is flat, so only the accuracies that it averages can span any height.
    """
    reading = CurveOptions(targets=(0.1, 0.9), ema=0.9)
    row = ComparisonRow("fedavg", reading, (0.5,), curve, FLAT, (), ((None,), (None,)), 20, 0, 0.0)
    curves([row], path, "made")
    pixels = np.asarray(imread(path))
    blue = (pixels[..., 2] - pixels[..., 0] > 0.15)[:, : pixels.shape[1] // 2]
    rows = np.flatnonzero(blue.any(axis=1))
    return float(rows[-1] - rows[0]) / pixels.shape[0]


def test_the_averaged_accuracies_are_drawn_under_the_moving_average(tmp_path: Path) -> None:
    assert height_of_blue(tmp_path / "alone.png", FLAT) < 0.05
    assert height_of_blue(tmp_path / "both.png", ALTERNATING) > 0.4


@pytest.mark.parametrize("name", ["fedavg", "runs/a-long-way/to/a-folder/of-its-own/seed-0"])
def test_long_names_leave_space_for_the_axes(tmp_path: Path, name: str) -> None:
    """The axis of rounds spans most of the plot, however long the names of the runs are."""
    row = ComparisonRow(name, CurveOptions(), (0.5,), FLAT, FLAT, (), (), 20, 0, 0.0)
    curves([row], tmp_path / "wide.png", "made")
    pixels = np.asarray(imread(tmp_path / "wide.png"))[..., :3]
    assert (pixels.max(axis=2) < 0.5).sum(axis=1).max() > 0.7 * pixels.shape[1]


def row_of(evaluations: int) -> ComparisonRow:
    """A row with one accuracy per round."""
    curve = tuple((r, r / 10) for r in range(1, evaluations + 1))
    return ComparisonRow("fedavg", CurveOptions(), (0.5,), curve, curve, (), (), 20, 0, 0.0)


def test_no_round_lies_between_two_rounds(tmp_path: Path) -> None:
    ticks = curves([row_of(2)], None, "made").axes[0].get_xticks()
    assert all(tick == int(tick) for tick in ticks)


@pytest.mark.parametrize(
    ("evaluations", "title"),
    [
        ((20, 20), "mean of the last 5"),
        ((2, 2), "mean of the last 2"),
        ((1,), "the last evaluation"),
        ((2, 3), "mean of the last 5 evaluations, or of all if there are fewer"),
    ],
)
def test_the_legend_says_how_many_evaluations_are_averaged(
    evaluations: tuple[int, ...], title: str
) -> None:
    figure = curves([row_of(number) for number in evaluations], None, "made")
    assert figure.axes[0].get_legend().get_title().get_text() == title


def colour(path: Path, rgb: tuple[int, int, int]) -> np.ndarray:
    """Where the left part of the plot, without the legend, has this colour."""
    pixels = np.asarray(imread(path))[..., :3]
    same = np.abs(pixels - np.array(rgb) / 255).max(axis=2) < 0.02
    return same[:, : int(0.7 * pixels.shape[1])]


def colours_of(*methods: str) -> list[tuple[int, int, int]]:
    """The colours that these methods have in every picture."""
    hexes = [style.light for style in styles(methods)]
    return [(int(x[1:3], 16), int(x[3:5], 16), int(x[5:], 16)) for x in hexes]


COLUMN = colours_of("c")[0]


def test_gains_are_above_the_line_and_losses_below(tmp_path: Path) -> None:
    recalls = {"base": [0.5, 0.5, None], "fedmix": [0.9, 0.9, 0.9], "fedprox": [0.1, 0.1, None]}
    changes(recalls, ["0", "1", "2"], tmp_path / "both.png", "made")
    (up, left), (down, right) = (
        np.nonzero(colour(tmp_path / "both.png", c)) for c in colours_of(*recalls)[1:]
    )
    assert up.max() <= down.min() + 3 and len(up) > 1000
    assert abs((up.max() - up.min()) - (down.max() - down.min())) <= 3  # forty points each
    assert left.min() < right.min()  # side by side
    changes({"base": [0.5, 0.5], "fedmix": [0.9, 0.7]}, ["0", "1"], tmp_path / "half.png", "made")
    inked = colour(tmp_path / "half.png", colours_of("base", "fedmix")[1])
    places = np.flatnonzero(inked.any(axis=0))
    heights = [inked[:, places[len(places) // 4 * k]].sum() for k in (1, 3)]
    assert heights[1] / heights[0] == pytest.approx(0.5, abs=0.02)


def result(row: str, ours: tuple[float, ...], printed: float | None = None) -> CellResult:
    return CellResult(row, "c", ours, None if printed is None else Printed(printed), 1.0)


def test_results_follow_the_rows_with_error_bars_over_seeds(tmp_path: Path) -> None:
    effects([result(f"p={n}", (10.0 * n,)) for n in range(1, 4)], tmp_path / "line.png", "made")
    inked = colour(tmp_path / "line.png", COLUMN)
    columns = np.flatnonzero(inked.any(axis=0))
    tops = [int(np.flatnonzero(inked[:, c])[0]) for c in columns[:: len(columns) // 8]]
    assert tops[0] - tops[-1] > 300 and all(a >= b - 8 for a, b in itertools.pairwise(tops))
    effects([result(f"p{n}", (10.0 * n,)) for n in range(1, 4)], tmp_path / "apart.png", "made")
    apart = colour(tmp_path / "apart.png", COLUMN)
    assert apart.any(axis=0).sum() < 60 < len(columns)  # three markers and no line
    for name, spread in (("tight", 0.0), ("wide", 8.0)):
        results = [result("a", (50 - spread, 50 + spread)), result("b", (70.0, 70.0))]
        effects(results, tmp_path / f"{name}.png", "made")
    first = [colour(tmp_path / f"{name}.png", COLUMN) for name in ("tight", "wide")]
    heights = [np.ptp(np.flatnonzero(x[:, np.flatnonzero(x.any(axis=0))[0] + 5])) for x in first]
    assert heights[1] > heights[0]


def test_missing_values_leave_a_gap_and_printed_numbers_are_hollow(tmp_path: Path) -> None:
    plain = [result("a", (50.0,)), result("b", (60.0,)), CellResult("c", "c", (None,), None, 1.0)]
    effects(plain, tmp_path / "plain.png", "made")
    effects([result("a", (50.0,), 55.0), *plain[1:]], tmp_path / "printed.png", "made")
    pieces = [pieces_at_first_marker(tmp_path / f"{name}.png") for name in ("plain", "printed")]
    assert pieces == [1, 3]  # a ring has two sides


def pieces_at_first_marker(path: Path) -> int:
    """Coloured segments on a vertical line through the leftmost marker, about 13 pixels wide."""
    inked = colour(path, COLUMN)
    line = inked[:, np.flatnonzero(inked.any(axis=0))[0] + 6].astype(int)
    return int((np.diff(line, prepend=0) == 1).sum())
