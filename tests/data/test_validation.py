"""Validation samples: a share of every client, disjoint from what it trains on; no test data."""

import numpy as np
import pytest
import torch

from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.data.dataset import Dataset, Split
from fedloom.data.validation import evaluated_on, hold_out
from fedloom.experiment.build import load_data, partition_rows
from fedloom.settings.config import load

KEY = Key.root(3).fold("validation")


def rows(*sizes: int) -> list[np.ndarray]:
    stops = np.cumsum(sizes)
    return [np.arange(stop - size, stop) for size, stop in zip(sizes, stops, strict=True)]


def test_every_client_holds_out_its_share_rounded_down() -> None:
    trained, held = hold_out(rows(10, 1, 4, 100), 0.29, KEY)
    assert [len(h) for h in held] == [2, 0, 1, 29]
    for own, kept, out in zip(rows(10, 1, 4, 100), trained, held, strict=True):
        assert sorted([*kept, *out]) == own.tolist()


def test_the_draw_depends_on_the_key_alone() -> None:
    once, again = hold_out(rows(50), 0.2, KEY), hold_out(rows(50), 0.2, KEY)
    other = hold_out(rows(50), 0.2, Key.root(4).fold("validation"))
    assert np.array_equal(once[1][0], again[1][0])
    assert not np.array_equal(once[1][0], other[1][0])


def tiny() -> Dataset:
    """The first pixel of a sample is its row; those of the test split are 255."""
    x = torch.arange(60, dtype=torch.uint8).view(60, 1, 1, 1).expand(60, 1, 2, 2).clone()
    test = Split(torch.full((20, 1, 2, 2), 255, dtype=torch.uint8), torch.arange(20) % 3)
    return Dataset("tiny", "image", Split(x, torch.arange(60) % 3), test, ("a", "b", "c"))


def test_a_run_is_evaluated_on_held_out_rows_and_sees_no_test_sample() -> None:
    settings = {"data": {"clients": 3, "partition": "iid", "validation": 0.25}}
    config = load(settings)
    dataset = load_data(config, tiny())
    trained = np.concatenate(partition_rows(config, dataset))
    evaluated = dataset.test.x[:, 0, 0, 0].numpy()
    assert len(evaluated) == 15 and len(trained) == 45
    assert sorted([*trained, *evaluated]) == list(range(60))
    assert torch.equal(dataset.test.y, torch.from_numpy(evaluated % 3).long())
    assert set(map(len, partition_rows(config, dataset))) == {15}


def test_without_it_nothing_changes() -> None:
    config = load({"data": {"clients": 3, "partition": "iid"}})
    dataset = load_data(config, tiny())
    assert torch.equal(dataset.test.x, tiny().test.x)
    assert sum(map(len, partition_rows(config, dataset))) == 60


def test_a_share_that_holds_out_nothing_is_an_error() -> None:
    with pytest.raises(UserError, match=r"data\.validation holds out no sample"):
        evaluated_on(tiny(), hold_out(rows(1, 1), 0.5, KEY)[1])
    with pytest.raises(UserError, match=r"validation=1\.0 should be less than or equal to 0\.9"):
        load({"data": {"validation": 1.0}})
