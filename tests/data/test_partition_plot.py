"""Plots of partitions: what is shown, and that the caption says when not everything is."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from fedloom.core.errors import UserError
from fedloom.data.partition_plot import save_png, terminal


def shown(counts: np.ndarray, width: int = 80, colour: bool = False) -> list[str]:
    console = Console(
        width=width,
        force_terminal=colour,
        color_system="truecolor" if colour else None,
        record=True,
    )
    with console.capture() as captured:
        console.print(terminal(counts))
    return captured.get().splitlines()


def test_one_line_per_client_with_shades_and_size():
    lines = shown(np.array([[100, 0, 25], [0, 4, 0]]))
    assert lines[0].startswith("2 clients by 3 classes, 129 samples")
    assert lines[1].split("▇")[0] == "0 ██  ▓▓ "
    assert lines[2].split("▇")[0] == "1   ░░   "
    assert [line.rsplit(" ", 1)[1] for line in lines[1:]] == ["125", "4"]


def test_many_clients_and_classes_fit_80_columns_and_the_caption_says_so():
    counts = np.zeros((1000, 200), dtype=np.int64)
    counts[:, 0] = np.arange(1000)
    lines = shown(counts)
    assert lines[1:3] == ["shown: one client in 42", "a block is the sum of 4 classes"]
    assert len(lines) == 3 + 24
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[3:6]] == ["0", "42", "84"]
    # the sizes are those of the clients shown
    assert [line.split()[-1] for line in lines[3:6]] == ["0", "42", "84"]


def test_colour_covers_the_blocks():
    assert "\x1b[38;2;8;38;77;48;2;8;38;77m██" in shown(np.array([[9]]), colour=True)[1]


@pytest.mark.parametrize("shape", [(1, 1), (10, 10), (500, 10), (2000, 100)])
def test_png_shows_the_counts(tmp_path, shape):
    image = pytest.importorskip("matplotlib.image")
    counts = np.zeros(shape, dtype=np.int64)
    counts[np.arange(shape[0]), np.arange(shape[0]) % shape[1]] = 50
    save_png(counts, tmp_path / "a.png", "a title")
    save_png(np.zeros_like(counts), tmp_path / "b.png", "a title")
    full, empty = image.imread(tmp_path / "a.png"), image.imread(tmp_path / "b.png")
    blue = [(picture[..., 2] - picture[..., 0] > 0.2).mean() for picture in (full, empty)]
    assert blue[0] > 0.002
    assert blue[1] == 0


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match=r"fedloom\[plots\]"):
        save_png(np.ones((2, 2)), tmp_path / "a.png")


def test_classes_are_named_if_there_is_room(tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image")
    counts = np.arange(6).reshape(2, 3)
    for name, classes in (("numbers", ()), ("names", ("calm", "wild", "asleep"))):
        save_png(counts, tmp_path / f"{name}.png", "a title", classes)
    pictures = [image.imread(tmp_path / f"{name}.png") for name in ("numbers", "names")]
    assert not np.array_equal(*pictures)
    many = np.ones((2, 40), dtype=int)
    save_png(many, tmp_path / "few.png", "a title")
    save_png(many, tmp_path / "many.png", "a title", [f"class {n}" for n in range(40)])
    assert np.array_equal(image.imread(tmp_path / "few.png"), image.imread(tmp_path / "many.png"))
