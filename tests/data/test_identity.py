"""Two data sets have the same identity exactly if their content is the same."""

import json
import time
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from fedloom.data import identity
from fedloom.data.dataset import Dataset, Split
from fedloom.data.identity import DataIdentity, data_identity, identity_sha256, partition_sha256


def split(samples: int) -> Split:
    x = torch.arange(samples * 12, dtype=torch.uint8).view(samples, 1, 3, 4)
    return Split(x, torch.arange(samples) % 2, torch.arange(samples) % 3)


DATASET = Dataset(
    "a", "image", split(6), split(4), ("no", "yes"), (0.5,), (0.25,), ("u", "v", "w"), {"by": "me"}
)


def with_train(**changes: object) -> Dataset:
    return replace(DATASET, train=replace(DATASET.train, **changes))


def other_pixel() -> torch.Tensor:
    x = DATASET.train.x.clone()
    x[5, 0, 2, 3] ^= 1
    return x


@pytest.mark.parametrize(
    ("changed", "differs"),
    [
        (replace(DATASET, name="b", about={}), []),
        (with_train(x=other_pixel()), ["train"]),
        (with_train(x=DATASET.train.x.view(torch.int8)), ["train"]),
        (with_train(x=DATASET.train.x.view(6, 1, 4, 3)), ["train"]),
        (with_train(y=1 - DATASET.train.y), ["train"]),
        (with_train(users=None), ["train"]),
        (replace(DATASET, test=split(5)), ["test", "test_samples"]),
        (replace(DATASET, mean=(0.6,)), ["normalisation"]),
        (replace(DATASET, std=(0.26,)), ["normalisation"]),
        (replace(DATASET, kind="table"), ["normalisation"]),
        (replace(DATASET, classes=("yes", "no")), ["classes"]),
        (replace(DATASET, users=("u", "w", "v")), ["users"]),
    ],
)
def test_the_identity_names_what_differs(changed: Dataset, differs: list[str]) -> None:
    before, after = data_identity(DATASET), data_identity(changed)
    assert before.differences(after) == differs
    assert (identity_sha256(DATASET) == identity_sha256(changed)) is (not differs)


def test_labels_and_users_are_not_confused() -> None:
    swapped = with_train(y=DATASET.train.users, users=DATASET.train.y)
    assert data_identity(swapped).train != data_identity(DATASET).train


def test_an_identity_is_json() -> None:
    found = data_identity(DATASET)
    assert DataIdentity(**json.loads(json.dumps(asdict(found)))) == found


def test_blocks_and_memory_layout_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = data_identity(DATASET)
    x = DATASET.train.x
    transposed = x.transpose(2, 3).contiguous().transpose(2, 3)
    assert not transposed.is_contiguous()
    monkeypatch.setattr(identity, "BLOCK_BYTES", 24)
    assert data_identity(with_train(x=transposed)) == expected


def test_bfloat16_and_empty_splits_have_an_identity() -> None:
    x = torch.ones(0, 3, dtype=torch.bfloat16)
    empty = Split(x, torch.zeros(0, dtype=torch.int64))
    full = Split(torch.ones(2, 3, dtype=torch.bfloat16), torch.tensor([0, 1]))
    found = data_identity(Dataset("a", "table", full, empty, ("x", "y")))
    assert found.train != found.test


def parts(*rows: list[int]) -> list[np.ndarray]:
    return [np.array(client, dtype=np.int64) for client in rows]


def test_a_partition_is_who_has_which_rows_in_which_order() -> None:
    reference = partition_sha256(parts([0, 1], [2, 3]))
    assert reference == partition_sha256([np.array([0, 1], dtype=np.int32), np.array([2, 3])])
    for other in (
        parts([0, 1, 2], [3]),
        parts([2, 3], [0, 1]),
        parts([1, 0], [2, 3]),
        parts([0, 1], [2, 3], []),
        parts([0, 1], [2, 4]),
        [],
    ):
        assert partition_sha256(other) != reference


def test_a_million_clients_take_little_time() -> None:
    clients = list(np.arange(2_000_000).reshape(1_000_000, 2))
    start = time.process_time()
    partition_sha256(clients)
    assert time.process_time() - start < 5  # about 0.5 s: one pass, no loop in Python
