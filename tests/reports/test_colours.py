"""One colour per method in every picture; FedAvg on top, and never hidden."""

from pathlib import Path

import numpy as np
from matplotlib.image import imread

from fedloom.methods.registry import names
from fedloom.metrics.curve import CurveOptions
from fedloom.reports.colours import DASHES, PALETTE, drawing_order, styles
from fedloom.reports.comparison_row import ComparisonRow
from fedloom.reports.plots import curves

OFTEN = ("fedavg", "fedprox", "scaffold", "feddyn", "fedalign", "fedmlb", "fedmix", "ditto")
BLUE = tuple(int(PALETTE[0][0][i : i + 2], 16) for i in (1, 3, 5))


def colours(*methods: str) -> dict[str, int]:
    return {m: style.colour for m, style in zip(methods, styles(methods), strict=True)}


def test_the_order_of_the_rows_does_not_matter() -> None:
    assert colours(*OFTEN) == colours(*reversed(OFTEN))


def test_fedavg_has_a_colour_to_itself_in_every_company() -> None:
    for other in (name for name in names() if name != "fedavg"):
        found = colours("fedavg", other)
        assert found["fedavg"] == 0 != found[other] == colours(other)[other]


def test_methods_have_different_colours_as_long_as_there_are_any() -> None:
    shown = colours(*OFTEN, "moon")
    assert len(set(shown.values())) == len(shown) == len(PALETTE)
    many = [f"m{n}" for n in range(20)]
    looks = [(style.colour, style.dashes) for style in styles(many)]
    assert len(set(looks)) == len(looks)


def test_rows_of_one_method_share_its_colour_and_differ_in_dashes() -> None:
    found = styles(["fedprox", "fedavg", "fedprox", "fedavg"])
    assert found[0].colour == found[2].colour and found[1].colour == found[3].colour == 0
    assert len({found[0].dashes, found[2].dashes}) == len({found[1].dashes, found[3].dashes}) == 2
    assert found[0].dashes == DASHES[0] == () != found[1].dashes


def test_fedavg_is_drawn_last() -> None:
    assert drawing_order(styles(["fedavg", "ditto", "fedprox"])) == [1, 2, 0]


def test_a_curve_on_that_of_fedavg_hides_neither(tmp_path: Path) -> None:
    """Ditto's global model is FedAvg's: both colours must be on the same line."""
    flat = tuple((r, 0.5) for r in range(1, 21))

    def row(name: str) -> ComparisonRow:
        return ComparisonRow(
            name, CurveOptions(), (0.5,), flat, flat, (), (), 20, 0, 0.0, method=name
        )

    rows = [row("fedavg"), row("ditto")]
    figure = curves(rows, tmp_path / "both.png", "made")
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["fedavg  50.0", "ditto  50.0 (same curve as fedavg)"]
    pixels = (255 * np.asarray(imread(tmp_path / "both.png"))[..., :3]).round()
    for colour in (styles(["fedavg", "ditto"])[n].light for n in (0, 1)):
        rgb = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        inked = (np.abs(pixels - rgb).max(axis=2) < 4)[: pixels.shape[0] // 2 + 60]
        assert inked.any(axis=0).sum() > 100  # pixels across
