"""Real data sets in their authors' formats, if the packed data lie next to the repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedloom.data.sources import read
from fedloom.data.sources.checks import warnings_about

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(
        not (DATA / "unpack.py").is_file(), reason="no ../shared/data next to the repository"
    ),
]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """Unpack the named sets once and give the folder."""
    folder = tmp_path_factory.mktemp("real")

    def unpack(*names):
        subprocess.run(
            [sys.executable, "unpack.py", str(folder), *names],
            cwd=DATA,
            check=True,
            capture_output=True,
        )
        return folder

    return unpack


def counts(values):
    return torch.bincount(values).tolist()


def test_heart(unpacked):
    dataset = read(unpacked("heart") / "heart")
    assert warnings_about(dataset) == []
    assert dataset.users == ("cleveland", "hungarian", "switzerland", "va")
    both = [
        a + b for a, b in zip(counts(dataset.train.users), counts(dataset.test.users), strict=True)
    ]
    assert both == [303, 294, 123, 200]
    assert dataset.classes == ("0", "1")
    assert [
        a + b for a, b in zip(counts(dataset.train.y), counts(dataset.test.y), strict=True)
    ] == [
        411,
        509,
    ]
    assert dataset.shape == (23,), "13 columns, 10 of them with missing values"


def test_mnist_writers(unpacked):
    dataset = read(unpacked("mnist-writers") / "mnist-writers")
    assert warnings_about(dataset) == []
    assert (len(dataset.train), len(dataset.test), dataset.shape) == (60_000, 10_000, (1, 28, 28))
    assert len(dataset.train.users.unique()) == 539
    assert len(dataset.test.users.unique()) == 297
    assert len(dataset.users) == 539 + 297
    assert dataset.train.users.max() == 538, "training users are the first 539"
    assert (dataset.mean[0], dataset.std[0]) == pytest.approx((0.1307, 0.3081), abs=5e-5)


def test_cifar10(unpacked):
    dataset = read(unpacked("cifar10") / "cifar-10-batches-bin")
    assert counts(dataset.train.y) == [2_000] * 10
    assert counts(dataset.test.y) == [500] * 10
    assert dataset.classes[:2] == ("airplane", "automobile")
    pixels = dataset.train.x.float() / 255
    assert pixels.mean(dim=(0, 2, 3)).tolist() == pytest.approx(dataset.mean, abs=0.005), (
        "channels are where they belong"
    )


@pytest.mark.long
def test_cifar100(unpacked):
    dataset = read(unpacked("cifar100") / "cifar-100-binary")
    assert counts(dataset.train.y) == [500] * 100
    assert counts(dataset.test.y) == [100] * 100


@pytest.mark.long
def test_tiny_imagenet(unpacked):
    dataset = read(unpacked("tiny-imagenet") / "tiny-imagenet-200")
    assert counts(dataset.train.y) == [500] * 20
    assert counts(dataset.test.y) == [50] * 20
    assert dataset.shape == (3, 64, 64)


@pytest.mark.long
def test_leaf(unpacked):
    folder = unpacked("leaf-chars74k", "leaf-shakespeare") / "leaf"
    letters = read(folder / "chars74k")
    assert len(letters.train) + len(letters.test) == 3_410
    assert (counts(letters.train.y), counts(letters.test.y)) == ([44] * 62, [11] * 62)
    assert len(letters.users) == 55
    text = read(folder / "shakespeare")
    assert warnings_about(letters) == warnings_about(text) == []
    assert (text.kind, text.shape) == ("text", (80,))
    assert len(text.train.users.unique()) == len(text.users)
    sixty = read(folder / "shakespeare", users=60, min_samples=250)
    assert len(sixty.users) == 60 and sixty.classes == text.classes
    assert min(counts(sixty.train.users)) >= 200, "FedMix has 60 roles of at least 200 samples"
    assert min(counts(sixty.test.users)) >= 50, "every role is tested"
