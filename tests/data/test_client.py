"""Client data against naive indexing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedloom.core.spec import Spec
from fedloom.data.augment import build
from fedloom.data.client import EvaluationBatches, federate, normaliser
from fedloom.data.dataset import Dataset, Split

MEAN, STD = (0.5, 0.25, 0.75), (0.2, 0.3, 0.4)
PARTS = [np.array([4, 1, 7]), np.array([0]), np.array([9, 8, 2, 3])]


def images(channels: int = 3) -> Dataset:
    draws = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (10, channels, 5, 4), generator=draws).to(torch.uint8)
    split = Split(x, torch.arange(10) % 4)
    return Dataset("toy", "image", split, split, tuple("abcd"), MEAN[:channels], STD[:channels])


def naive(image: torch.Tensor) -> torch.Tensor:
    planes = [(plane.double() / 255 - m) / s for plane, m, s in zip(image, MEAN, STD, strict=False)]
    return torch.stack(planes)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-6), (torch.float64, 1e-14)])
def test_batch_equals_naive_indexing(channels, dtype, close):
    data = images(channels)
    client = federate(data, PARTS, dtype=dtype)[2]
    x, y = client.batch(torch.tensor([3, 0]))
    assert x.dtype == dtype
    for got, row in zip(x, (3, 9), strict=True):
        torch.testing.assert_close(got.double(), naive(data.train.x[row]), rtol=0, atol=close)
    assert y.tolist() == [3, 1]


def test_images_without_constants_are_scaled_to_the_unit_interval():
    data = images()
    plain = Dataset("toy", "image", data.train, data.test, data.classes)
    x, _ = federate(plain, PARTS)[1].batch(torch.tensor([0]))
    torch.testing.assert_close(x[0], data.train.x[0] / 255)


def test_client_facts():
    client = federate(images(), PARTS)[0]
    assert len(client) == 3
    assert client.labels.tolist() == [0, 1, 3]
    assert client.class_counts(4).tolist() == [1, 1, 0, 1]


def test_augmentation_needs_training_and_a_generator_and_precedes_normalisation():
    data = images()
    blackout = build([Spec("cutout", {"size": 20})])  # larger than the image: every pixel becomes 0
    client, positions = federate(data, PARTS, blackout)[0], torch.tensor([0, 1])
    black, _ = client.batch(positions, torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        black,
        torch.tensor([-m / s for m, s in zip(MEAN, STD, strict=True)])
        .view(3, 1, 1)
        .expand(2, 3, 5, 4),
    )
    expected, _ = federate(data, PARTS)[0].batch(positions)
    for x, _ in (client.batch(positions), client.batch(positions, torch.Generator(), train=False)):
        assert torch.equal(x, expected)


def test_batches_never_change_the_stored_samples():
    data = images()
    stored = data.train.x.clone()
    client = federate(data, PARTS)[0]
    client.batch(torch.tensor([0]))[0].zero_()
    assert torch.equal(data.train.x, stored)
    floats = Split(stored.float(), data.train.y)
    EvaluationBatches(floats, normaliser(data))[0]
    assert torch.equal(floats.x, stored.float())


def test_text_stays_integer_and_tables_are_cast():
    y = torch.arange(10) % 4
    words = Split(torch.arange(30).view(10, 3), y)
    x, _ = federate(Dataset("t", "text", words, words, tuple("abcd")), PARTS, dtype=torch.float64)[
        1
    ].batch(torch.tensor([0]))
    assert x.dtype == torch.int64
    assert x.tolist() == [[0, 1, 2]]
    table = Split(torch.arange(30.0).view(10, 3), y)
    x, _ = federate(Dataset("t", "table", table, table, tuple("abcd")), PARTS, dtype=torch.float64)[
        1
    ].batch(torch.tensor([0]))
    assert x.dtype == torch.float64
    assert x.tolist() == [[0.0, 1.0, 2.0]]


def test_clients_are_a_sequence_of_views():
    all_clients = federate(images(), PARTS)
    assert len(all_clients) == 3
    assert all_clients.sizes.tolist() == [3, 1, 4]
    assert [client.rows.tolist() for client in all_clients] == [list(part) for part in PARTS]
    assert all_clients[-1].rows.tolist() == [9, 8, 2, 3]
    assert [client.rows.tolist() for client in all_clients[::2]] == [[4, 1, 7], [9, 8, 2, 3]]
    assert all_clients[2].rows.data_ptr() == all_clients.rows[4:].data_ptr()
    assert all_clients[2].split is all_clients[0].split
    with pytest.raises(IndexError):
        all_clients[3]


def test_evaluation_batches_cover_the_split_in_order():
    data = images()
    batches = list(EvaluationBatches(data.test, normaliser(data, torch.float64), batch=4))
    assert [len(y) for _, y in batches] == [4, 4, 2]
    assert torch.equal(torch.cat([y for _, y in batches]), data.test.y)
    everything = torch.stack([naive(image) for image in data.test.x])
    torch.testing.assert_close(torch.cat([x for x, _ in batches]), everything, rtol=0, atol=1e-14)
