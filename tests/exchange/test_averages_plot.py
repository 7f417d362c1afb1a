"""Averages of samples from the command line: as a picture, and their leakage to an attacker."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from cli import talk
from fedloom.data import averages_plot, store
from fedloom.data.averages_plot import ImageGrid, denormalised
from fedloom.data.client import normaliser
from fedloom.inspect.averages import averages_grid


@pytest.fixture(scope="module", autouse=True)
def home() -> Iterator[Path]:
    """A folder with FEDLOOM_HOME and the tiny data set in it."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDLOOM_HOME", f"{folder}/home")
        talk.fedloom("data", "add", "tiny", "--from", talk.write_tiny(Path(folder) / "tiny.npz"))
        yield Path(folder)


def test_pixels_undo_the_normalisation() -> None:
    data = store.load("tiny")
    x = data.train.x[:5]
    torch.testing.assert_close(denormalised(normaliser(data), normaliser(data)(x)), x / 255)


def test_the_picture_shows_samples_and_means() -> None:
    settings, shown = averages_grid({"data": {"name": "tiny", "clients": 8, "partition": "iid"}})
    whole = store.load("tiny").train.x / 255
    assert settings.data.name == "tiny" and shown.images.shape == (5, 4, 1, 8, 8)
    assert list(shown.columns) == ["1 sample", "5 samples", "20 samples", "all"]
    assert list(shown.rows) == [f"client {n}, 30 samples" for n in (0, 1, 3, 4, 6)]
    single = shown.images[:, 0].flatten(1)
    assert (
        float(torch.cdist(single.double(), whole.flatten(1).double()).amin(1).max()) < 1e-4
    )  # each is a sample
    apart = (shown.images[:, :, 0] - whole.mean(0)[0]).square().mean((0, 2, 3))
    # Averages of more samples are closer to the overall mean.
    assert apart[0] > 3 * apart[1] > 6 * apart[3]


def test_only_averages_of_images_can_be_shown(home: Path) -> None:
    rows = np.random.default_rng(1).normal(size=(12, 5))
    np.savez(
        home / "rows.npz",
        x_train=rows,
        y_train=np.arange(12) % 2,
        x_test=rows,
        y_test=np.arange(12) % 2,
    )
    talk.fedloom("data", "add", "rows", "--from", home / "rows.npz")
    said = talk.fedloom(
        "data",
        "show",
        "rows",
        "--averages",
        "--clients",
        2,
        "--partition",
        "iid",
        code=2,
    )
    assert "are of kind 'table', and averages can be shown of images only" in said.flat


def picture(value: float) -> ImageGrid:
    images = torch.full((1, 2, 1, 4, 4), value)
    images[0, 1] = 1 - value
    return ImageGrid(images, ["a", "b"], ["client 0, 3 samples"])


def written(shown: ImageGrid, colour: bool) -> str:
    console = Console(force_terminal=True, color_system="truecolor" if colour else None, width=120)
    with console.capture() as seen:
        console.print(averages_plot.terminal(shown, colour))
    return seen.get()


def test_a_terminal_shows_two_pixels_per_character_or_their_shade() -> None:
    coloured, plain = written(picture(1.0), True), written(picture(1.0), False)
    assert (
        coloured.count("▀") == 2 * 16 * 8
        and "38;2;255;255;255" in coloured
        and "48;2;0;0;0" in coloured
    )
    lines = plain.splitlines()
    assert len(lines) == 2 + 8 and all(line.startswith("█" * 16 + " " * 18) for line in lines[2:])
    assert "▓" in written(picture(0.7), False)


def test_a_png_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs fedloom[plots]")
    talk.fedloom(
        "data",
        "show",
        "tiny",
        "--averages",
        "--clients",
        8,
        "--partition",
        "iid",
        "--png",
        tmp_path / "m.png",
    )
    from matplotlib.image import imread

    drawn = imread(tmp_path / "m.png")
    assert drawn.shape[0] > 900 and drawn.shape[1] > 800 and float(drawn[..., :3].std()) > 0.1


def test_the_numbers_behind_the_picture_as_json() -> None:
    said = talk.fedloom(
        "data",
        "show",
        "tiny",
        "--averages",
        "--clients",
        8,
        "--partition",
        "iid",
        "--json",
    ).json
    assert said["averages_of"][-1] == "all" and len(said["pixel_std"]) == len(said["clients"]) == 5
    assert all(row[0] > row[3] for row in said["pixel_std"])


def test_raw_samples_leak_and_large_averages_do_not(home: Path) -> None:
    found = {}
    for size in (1, 0):
        talk.run(
            home / f"of {size}",
            "--method",
            f"naivemix(size={size})",
            "--partition",
            "iid",
            rounds=1,
        )
        found[size] = talk.fedloom("analyze", home / f"of {size}", "--only", "leak", "--json").json[
            "leak"
        ]
    raw, means = found[1], found[0]
    assert raw["averages"] == 240 and means["averages"] == 8
    assert (
        raw["auc"]["nearest"]["value"] > 0.99
        and raw["auc"]["tracing"]["value"] > 0.99
        and raw["psnr"]["members"]["mean"] > 60
    )
    assert (
        abs(means["auc"]["nearest"]["value"] - 0.5) < 0.2 and means["psnr"]["members"]["mean"] < 25
    )
    assert means["auc"]["tracing"]["value"] > means["auc"]["nearest"]["value"] - 0.1


def test_the_analysis_as_text(home: Path) -> None:
    talk.run(home / "read", "--method", "naivemix(size=5)", rounds=1)
    said = talk.fedloom("analyze", home / "read", "--only", "leak")
    assert "membership, tracing" in said.out and "0.5 is guessing" in said.out


def test_without_an_exchange_there_is_nothing_to_analyse(home: Path) -> None:
    talk.run(home / "plain", "--method", "fedavg", rounds=1)
    said = talk.fedloom("analyze", home / "plain", "--only", "leak", code=2)
    assert "a run of 'fedavg' exchanges no averages of samples" in said.flat
