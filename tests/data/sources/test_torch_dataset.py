"""Any map-style torch Dataset."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset

from fedloom.core.errors import UserError
from fedloom.data.sources import from_torch


def pictures(count, label=lambda i: i % 2):
    from PIL import Image

    return [(Image.fromarray(np.full((5, 6, 3), i, np.uint8)), label(i)) for i in range(count)]


def test_tensors():
    x = torch.rand(6, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    dataset = from_torch(
        TensorDataset(x, torch.arange(6) % 2),
        TensorDataset(x[:2], torch.tensor([1, 0])),
        "mine",
        ["a", "b"],
    )
    assert (dataset.name, dataset.kind, dataset.classes) == ("mine", "image", ("a", "b"))
    assert torch.equal(dataset.train.x, (x * 255).round().to(torch.uint8))
    assert dataset.test.y.tolist() == [1, 0]


def test_pil_images_and_a_held_out_test_split():
    dataset = from_torch(pictures(10))
    assert dataset.shape == (3, 5, 6)
    assert (len(dataset.train), len(dataset.test)) == (8, 2)
    assert set(dataset.train.x[:, 0, 0, 0].tolist()) | set(
        dataset.test.x[:, 0, 0, 0].tolist()
    ) == set(range(10))


def test_features():
    x = torch.tensor([[0.0], [2.0]])
    dataset = from_torch(
        TensorDataset(x, torch.tensor([0, 1])), TensorDataset(x, torch.tensor([0, 1]))
    )
    assert dataset.kind == "table"
    assert dataset.train.x.tolist() == [[-1.0], [1.0]]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (Stream(), "expected a map-style torch Dataset"),
        ([], "found no samples"),
        (
            [(torch.zeros(1, 2, 2), 0), (torch.zeros(1, 3, 3), 0)],
            "sample 1 of shape (1, 3, 3), expected (1, 2, 2)",
        ),
        ([torch.zeros(2)], "a Tensor as sample 0, expected a pair (x, label)"),
        ([(torch.zeros(1, 2, 2), "cat")], "label 'cat' at sample 0, expected a whole number"),
        ([(torch.full((1, 2, 2), -1.0), 0)] * 5, "pass the raw pixels: fedloom normalises them"),
    ],
)
def test_unreadable_datasets_are_rejected(source, says):
    with pytest.raises(UserError) as caught:
        from_torch(source)
    assert says in str(caught.value)


def test_share_is_checked():
    with pytest.raises(UserError, match="test_share=1 must lie between 0 and 1"):
        from_torch(pictures(3), test_share=1)
