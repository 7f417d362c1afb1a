"""Descriptions of data sets read from info.json agree with the loaded data sets."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedloom.core.errors import UserError
from fedloom.data import listing, store
from fedloom.data.dataset import Dataset


def described(dataset: Dataset) -> dict[str, Any]:
    return {
        "name": dataset.name,
        "kind": dataset.kind,
        "train": len(dataset.train),
        "test": len(dataset.test),
        "task": dataset.task,
        "classes": len(dataset.classes),
        "shape": " x ".join(map(str, dataset.shape)),
        "users": len(dataset.users),
        **dataset.about,
    }


def add(root: Path, name: str, **arrays: np.ndarray) -> None:
    np.savez(root / f"{name}.npz", **arrays)
    store.add(name, root / f"{name}.npz", root=root)


def test_the_packaged_data_set() -> None:
    listed, loaded = listing.describe(listing.PACKAGED), described(store.load(listing.PACKAGED))
    assert listed == loaded


def test_added_data_sets(tmp_path: Path) -> None:
    labels, users = np.arange(40) % 4, np.array([f"u{i % 3}" for i in range(40)])
    add(tmp_path, "table", x=np.random.default_rng(1).normal(size=(40, 6)), y=labels)
    pixels = np.random.default_rng(2).integers(0, 255, (40, 3, 5, 4)).astype(np.uint8)
    add(tmp_path, "images", x=pixels, y=labels, users=users)
    assert listing.names(tmp_path) == ["fashion-mnist", "images", "table"]
    for name in ("images", "table"):
        assert listing.describe(name, tmp_path) == described(store.load(name, tmp_path))
    assert [d["name"] for d in listing.describe_all(tmp_path)] == listing.names(tmp_path)
    images = listing.describe("images", tmp_path)
    assert (images["shape"], images["users"]) == ("3 x 5 x 4", 3)


def test_the_store_lists_the_same_names_in_the_same_place(tmp_path: Path) -> None:
    assert listing.names(tmp_path) == store.names(tmp_path)
    assert listing.home() == store.home() and listing.home(tmp_path) == store.home(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 2, "name": "broken"}'])
def test_a_damaged_description(text: str, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "info.json").write_text(text)
    with pytest.raises(UserError, match=r"info\.json is damaged .*data add broken --from PATH"):
        listing.describe("broken", tmp_path)


def test_a_damaged_data_set_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "info.json").write_text("{")
    add(tmp_path, "good", x=np.arange(40.0).reshape(20, 2), y=np.arange(20) % 2)
    broken, packaged, good = listing.describe_all(tmp_path)
    assert (packaged["name"], good["train"]) == (listing.PACKAGED, 16)
    assert broken["name"] == "broken" and "is damaged" in broken["problem"]


def test_another_version_and_an_unknown_name(tmp_path: Path) -> None:
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "info.json").write_text('{"version": 99}')
    with pytest.raises(UserError, match="has version 99"):
        listing.describe("newer", tmp_path)
    with pytest.raises(UserError, match=r"did you mean 'newer'\?.*fedloom data add NAME"):
        listing.describe("never", tmp_path)
