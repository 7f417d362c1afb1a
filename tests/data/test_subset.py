"""Part of a data set: which samples are kept, how images are scaled, what is rejected."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedloom.core.errors import UserError
from fedloom.data.client import normaliser
from fedloom.data.dataset import Dataset, Kind, Split
from fedloom.data.subset import renormalised, subset


def split(
    labels: list[int], x: torch.Tensor | None = None, users: list[int] | None = None
) -> Split:
    plain = torch.arange(len(labels), dtype=torch.float32)[:, None] if x is None else x
    return Split(plain, torch.tensor(labels), None if users is None else torch.tensor(users))


def dataset(train: Split, test: Split, kind: Kind = "table", classes: int = 3) -> Dataset:
    return Dataset("made", kind, train, test, tuple("abcdef"[:classes]))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(2, 5), st.integers(1, 6))
def test_first_samples_of_first_classes_are_kept_in_order(
    labels: list[int], classes: int, per_class: int
) -> None:
    whole = dataset(
        split([*labels, 0], users=[*range(len(labels)), 9]), split([1, 0, 4]), classes=5
    )
    part = subset(whole, classes, per_class)
    kept, counts = [], [0] * 5
    for row, label in enumerate([*labels, 0]):
        counts[label] += 1
        if label < classes and counts[label] <= per_class:
            kept.append(row)
    assert part.train.x[:, 0].tolist() == kept
    assert part.train.y.tolist() == [[*labels, 0][r] for r in kept]
    assert part.train.users is not None and whole.train.users is not None
    assert part.train.users.tolist() == whole.train.users[kept].tolist()
    assert part.classes == whole.classes[:classes]
    assert part.test.y.tolist() == [y for y in (1, 0, 4) if y < classes]


def test_pixels_are_means_of_the_area_they_cover() -> None:
    x = torch.from_numpy(np.random.default_rng(3).integers(0, 256, (5, 3, 6, 4), dtype=np.uint8))
    part = subset(dataset(split([0, 1, 2, 0, 1], x), split([0, 1, 2, 0, 1], x), "image"), pixels=2)
    means = x.numpy().astype(np.float64).reshape(5, 3, 2, 3, 2, 2).mean(axis=(3, 5))
    assert part.train.x.dtype == torch.uint8 and part.shape == (3, 2, 2)
    np.testing.assert_allclose(part.train.x.numpy(), means, atol=0.5)
    assert torch.equal(part.train.x, part.test.x)


def test_images_are_normalised_with_the_given_constants() -> None:
    x = torch.tensor([0, 51, 255], dtype=torch.uint8).view(3, 1, 1, 1)
    whole = replace(
        dataset(split([0, 1, 2], x), split([0, 1, 2], x), "image"), mean=(0.0,), std=(1.0,)
    )
    given = renormalised(whole, (0.2,), (0.5,))
    assert normaliser(given, torch.float64, torch.device("cpu"))(
        x
    ).flatten().tolist() == pytest.approx([-0.4, 0.0, 1.6])
    with pytest.raises(UserError, match="volumes, and 'made' is a table; leave them out"):
        renormalised(dataset(split([0]), split([0])), (0.2,), (0.5,))


def test_no_option_returns_the_same_data_set() -> None:
    whole = dataset(split([0, 1, 2]), split([0]))
    assert subset(whole) is whole


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": 4}, "data.classes=4 is more than the 3 classes of 'made'; use at most 3"),
        ({"classes": 2}, "data.classes=2 leaves no test sample of 'made'"),
        ({"pixels": 9}, "data.pixels=9 is more than the 8 x 8 pixels of 'made'; use at most 8"),
    ],
)
def test_options_out_of_range_are_rejected(options: dict[str, int], message: str) -> None:
    images = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
    with pytest.raises(UserError, match=message.replace(".", r"\.")):
        subset(dataset(split([0, 1], images), split([2, 2], images), "image"), **options)


@pytest.mark.parametrize("kind", ["text", "table"])
def test_only_images_have_pixels(kind: Kind) -> None:
    with pytest.raises(
        UserError, match=f"'made' is a {kind} and has no pixels; leave data.pixels out"
    ):
        subset(dataset(split([0, 1]), split([0]), kind), pixels=4)
