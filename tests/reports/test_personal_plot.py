"""The plot of the clients' models: mean, lowest and highest seed of each method."""

from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from fedloom.metrics.client_scores import ClientScores, Spread
from fedloom.metrics.curve import CurveOptions
from fedloom.reports.comparison import Comparison
from fedloom.reports.comparison_row import ComparisonRow
from fedloom.reports.personal_plot import draw
from fedloom.reports.plots import canvas

CURVE = ((1, 0.5),)


def scores(mean: float, **groups: float) -> ClientScores:
    spread = Spread(mean, 0.0, mean)
    return ClientScores(spread, spread, group_recall=groups)


def row(name: str, *seeds: ClientScores) -> ComparisonRow:
    return ComparisonRow(
        name, CurveOptions(), (0.5,), CURVE, CURVE, (), (), 1, 0, 0.0, True, seeds, name
    )


def drawn(*rows: ComparisonRow) -> tuple[list[str], dict[str, list[tuple[float, float, float]]]]:
    """The groups on the axis, and by label of a row the mean, lowest and highest of each group."""
    axes = Figure().add_subplot()
    draw(axes, Comparison(rows, {}))
    points = {}
    for container in axes.containers:
        means = container[0].get_ydata()
        lines = [segment[:, 1] for segment in container[2][0].get_segments()]
        points[container.get_label()] = [
            (float(mean), float(min(line)), float(max(line)))
            for mean, line in zip(means, lines, strict=True)
        ]
    return [text.get_text() for text in axes.get_xticklabels()], points


def test_each_group_has_the_mean_of_the_seeds_and_their_range() -> None:
    one, two = (
        scores(0.5, head=0.8, middle=0.4, tail=0.0),
        scores(0.7, head=0.9, middle=0.6, tail=0.2),
    )
    groups, points = drawn(row("fedavg", one, two), row("fedafa", two, two))
    assert [group.split()[0] for group in groups] == ["all", "frequent", "middle", "rare"]
    assert list(points) == ["fedavg  60.0", "fedafa  70.0"]
    expected = [(60, 50, 70), (85, 80, 90), (50, 40, 60), (10, 0, 20)]
    assert points["fedavg  60.0"] == [pytest.approx(each) for each in expected]


def test_without_frequent_and_rare_classes_there_is_one_group() -> None:
    groups, points = drawn(row("fedavg", scores(0.5)), row("ditto", scores(0.75)))
    assert len(groups) == 1
    assert points["ditto  75.0"] == [pytest.approx((75, 75, 75))]


def test_the_printed_comparison_has_a_column_for_personal_models() -> None:
    rows = row("fedavg", scores(0.5)), row("ditto", scores(0.75))
    head, *lines = str(Comparison(rows, {})).splitlines()
    assert head.split() == ["personal", "%", "accuracy", "%", "std", "rounds"]
    assert [line.split() for line in lines] == [
        ["fedavg", "50.00", "50.00", "0.00", "1"],
        ["ditto", "75.00", "50.00", "0.00", "1"],
    ]
    assert "personal" not in str(Comparison((replace(rows[0], personalised=False),), {}))


def test_notebooks_can_show_a_figure() -> None:
    figure, _ = canvas()
    assert figure._repr_png_().startswith(b"\x89PNG")
