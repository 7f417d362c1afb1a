"""Groups of a client's samples: their sizes, and their means of clipped samples."""

from collections import Counter
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedloom.core.key import Key
from fedloom.exchange import group_means
from fedloom.exchange.averaged_data_exchange import averaged_data_exchange
from fedloom.exchange.group_means import clipped, smallest_group, split_into_groups
from support.averages import CLIENTS, answer
from support.clients import TensorClient


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=40),
    st.integers(0, 12),
    st.sampled_from(["random", "same-class"]),
    st.sampled_from(["keep", "drop"]),
)
def test_every_sample_is_in_one_group_of_its_size(
    labels: list[int], size: int, split: str, tail: str
) -> None:
    groups = split_into_groups(torch.tensor(labels), size, split, tail, Key.root(1))
    seen = Counter(i for g in groups for i in g.tolist())
    assert set(seen.values()) <= {1}
    piles = Counter(labels) if split == "same-class" else Counter({0: len(labels)})
    whole = sum(n // size for n in piles.values()) if size else len(piles)
    tails = sum(n % size > 0 for n in piles.values()) if size and tail == "keep" else 0
    assert len(groups) == whole + tails
    assert (tail == "drop" and size > 0) or len(seen) == len(labels)
    if split == "same-class":
        assert all(len({labels[i] for i in g.tolist()}) == 1 for g in groups)
    if groups:
        assert smallest_group([len(labels)], size, split, tail) <= min(len(g) for g in groups)
    if groups and split == "random":
        assert smallest_group([len(labels)], size, split, tail) == min(len(g) for g in groups)


def test_groups_depend_on_the_key() -> None:
    labels = torch.zeros(50, dtype=torch.int64)
    first, again, other = (
        split_into_groups(labels, 5, "random", "keep", Key.root(k)) for k in (1, 1, 2)
    )
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    assert sorted(first[0].tolist()) != [0, 1, 2, 3, 4]


@dataclass(frozen=True)
class Plain(TensorClient):
    """Fails if it is read as in training."""

    def batch(
        self, positions: Tensor, generator: torch.Generator | None = None, train: bool = True
    ) -> tuple[Tensor, Tensor]:
        assert generator is None and not train and len(positions) <= group_means.CHUNK
        return self.x[positions], self.y[positions]


def test_samples_are_not_augmented_and_large_clients_are_read_in_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = answer(averaged_data_exchange(), 6)
    monkeypatch.setattr(group_means, "CHUNK", 4)
    pieces = answer(averaged_data_exchange(), 0, [Plain(CLIENTS[6].x, CLIENTS[6].y)])
    torch.testing.assert_close(pieces["x"], whole["x"])
    torch.testing.assert_close(pieces["y"], whole["y"])


def test_clipping_scales_long_samples_and_leaves_short_ones() -> None:
    x = torch.tensor([[[3.0, 4.0]], [[0.3, 0.4]]])
    torch.testing.assert_close(clipped(x, 1.0), torch.tensor([[[0.6, 0.8]], [[0.3, 0.4]]]))
    assert clipped(x, None) is x
    data = TensorClient(x, torch.tensor([0, 1]))
    torch.testing.assert_close(
        answer(averaged_data_exchange(clip=1.0), 0, [data])["x"], torch.tensor([[[0.45, 0.6]]])
    )
