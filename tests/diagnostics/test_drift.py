"""Drift against values by hand, and the invariances of linear CKA."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.diagnostics.curvature import split_batches
from fedloom.diagnostics.drift import (
    block_grams,
    centred_gram,
    cka_per_block,
    linear_cka,
    update_drifts,
)


def test_two_updates_by_hand() -> None:
    """(3, 0) and (1, 4) have the mean (2, 2)."""
    first, second = update_drifts([torch.tensor([3.0, 0.0]), torch.tensor([1.0, 4.0])])
    assert (first.length, first.distance) == pytest.approx((3, math.sqrt(5)))
    assert first.cosine == pytest.approx(1 / math.sqrt(2))
    assert second.cosine == pytest.approx(10 / (math.sqrt(17) * math.sqrt(8)))
    assert second.distance == pytest.approx(math.sqrt(5))


def test_a_zero_update_has_no_cosine() -> None:
    assert math.isnan(update_drifts([torch.zeros(3), torch.ones(3)])[0].cosine)


def features(seed: int, samples: int, width: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(samples, width)))


seeds = st.integers(0, 10_000)


@settings(max_examples=40, deadline=None)
@given(
    seeds, st.integers(3, 12), st.integers(1, 9), st.floats(-50, 50).filter(lambda s: abs(s) > 1e-3)
)
def test_invariances_of_linear_cka(seed: int, samples: int, width: int, scale: float) -> None:
    """1 with itself; invariant to rotation, scale and shift; symmetric; between 0 and 1."""
    x, y = features(seed, samples, width), features(seed + 1, samples, 4)
    rotation = torch.linalg.qr(features(seed + 2, width, width)).Q
    plain = linear_cka(centred_gram(x), centred_gram(y))
    assert linear_cka(centred_gram(x), centred_gram(x)) == pytest.approx(1)
    assert linear_cka(centred_gram(scale * x @ rotation + 3), centred_gram(y)) == pytest.approx(
        plain, abs=1e-9
    )
    assert (
        linear_cka(centred_gram(y), centred_gram(x)) == pytest.approx(plain)
        and -1e-12 <= plain <= 1 + 1e-12
    )


def test_cka_is_the_ratio_of_cross_covariances() -> None:
    """Kornblith et al.: |Y'X|^2 / (|X'X| |Y'Y|) of centred features, without any Gram matrix."""
    x, y = features(1, 30, 5), features(2, 30, 7)
    a, b = x - x.mean(0), y - y.mean(0)
    expected = (b.T @ a).norm() ** 2 / ((a.T @ a).norm() * (b.T @ b).norm())
    assert linear_cka(centred_gram(x), centred_gram(y)) == pytest.approx(float(expected), rel=1e-12)


def chain_of(seed: int) -> Chain:
    chain = Chain(
        {
            "body": nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU()),
            "head": nn.Linear(6, 3),
        }
    ).double()
    nn.utils.vector_to_parameters(features(seed, 1, 63)[0], chain.parameters())
    return chain


def test_blocks_are_compared_one_by_one() -> None:
    """Another head changes the last block only; batch size and running statistics do not matter."""
    chain, other, x = chain_of(3), chain_of(3), features(4, 20, 4)
    with torch.no_grad():
        other.get_submodule("head").weight.copy_(features(5, 3, 6))
    before = {n: t.clone() for n, t in chain.state_dict().items()}
    ours, theirs = (
        block_grams(chain, split_batches(x, torch.zeros(20), 7)),
        block_grams(other, split_batches(x, torch.zeros(20), 20)),
    )
    cka = cka_per_block(ours, theirs)
    assert list(cka) == ["body", "head"]
    assert cka["body"] == pytest.approx(1, abs=1e-12) and cka["head"] < 0.95
    assert all(torch.equal(before[n], t) for n, t in chain.state_dict().items())
