"""The packaged data set."""

from __future__ import annotations

import hashlib
import importlib.util
import time
from importlib import resources
from pathlib import Path

import pytest
import torch

from fedloom.core.errors import UserError
from fedloom.data import fashion

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "make_fashion_subset.py"
WHOLE = Path("/usr/share/datasets/fashion-mnist")


def test_counts_types_and_constants():
    dataset = fashion.load()
    assert dataset.train.x.shape == (10_000, 1, 28, 28)
    assert dataset.test.x.shape == (2_000, 1, 28, 28)
    assert dataset.train.x.dtype == torch.uint8
    assert torch.bincount(dataset.train.y).tolist() == [1_000] * 10
    assert torch.bincount(dataset.test.y).tolist() == [200] * 10
    assert dataset.classes[0] == "T-shirt/top"
    assert dataset.classes[9] == "Ankle boot"
    assert (dataset.mean, dataset.std) == ((0.2860,), (0.3530,))
    # the constants of the whole set fit the subset
    pixels = dataset.train.x.double() / 255
    assert (pixels.mean().item(), pixels.std().item()) == pytest.approx((0.2860, 0.3530), abs=0.002)


def test_it_is_small_and_loads_quickly():
    files = [
        f
        for f in resources.files("fedloom.data").joinpath("packaged").iterdir()
        if f.name.endswith(".gz")
    ]
    assert len(files) == 4
    assert sum(len(f.read_bytes()) for f in files) < 6_000_000
    start = time.process_time()
    fashion.load()
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize("how", ["flip", "truncate", "foreign"])
def test_damage_is_noticed(monkeypatch, how):
    good = fashion._packaged

    def damaged(name):
        data = good(name)
        if name != "t10k-labels-idx1-ubyte.gz":
            return data
        return {
            "flip": data[:200] + bytes([data[200] ^ 1]) + data[201:],
            "truncate": data[:-20],
            "foreign": b"hello",
        }[how]

    monkeypatch.setattr(fashion, "_packaged", damaged)
    with pytest.raises(
        UserError, match=r"t10k-labels-idx1-ubyte\.gz is damaged .* reinstall fedloom"
    ):
        fashion.load()


@pytest.mark.skipif(
    not WHOLE.is_dir(), reason="Debian's package dataset-fashion-mnist is not installed"
)
def test_the_script_reproduces_the_packaged_files():
    spec = importlib.util.spec_from_file_location("make_fashion_subset", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    made = {name: hashlib.sha256(data).hexdigest() for name, data in script.subset(WHOLE).items()}
    assert made == fashion._checksums()
