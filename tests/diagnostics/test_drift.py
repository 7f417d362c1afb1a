"""Distances by hand, and the laws of CKA."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.diagnostics.curvature import chunks
from fedloom.diagnostics.drift import by_block, cka, drifts, gram, grams


def test_updates_by_hand() -> None:
    """(3, 0) and (1, 4) have the mean (2, 2)."""
    first, second = drifts([torch.tensor([3.0, 0.0]), torch.tensor([1.0, 4.0])])
    assert (first.length, first.distance) == pytest.approx((3, math.sqrt(5)))
    assert first.cosine == pytest.approx(1 / math.sqrt(2))
    assert second.cosine == pytest.approx(10 / (math.sqrt(17) * math.sqrt(8)))
    assert second.distance == pytest.approx(math.sqrt(5))


def test_an_update_of_nothing_has_no_direction() -> None:
    assert math.isnan(drifts([torch.zeros(3), torch.ones(3)])[0].cosine)


def features(seed: int, samples: int, width: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(samples, width)))


seeds = st.integers(0, 10_000)


@settings(max_examples=40, deadline=None)
@given(
    seeds, st.integers(3, 12), st.integers(1, 9), st.floats(-50, 50).filter(lambda s: abs(s) > 1e-3)
)
def test_laws_of_cka(seed: int, samples: int, width: int, scale: float) -> None:
    """1 with itself; blind to rotation, scale and shift; symmetric; between 0 and 1."""
    x, y = features(seed, samples, width), features(seed + 1, samples, 4)
    turn = torch.linalg.qr(features(seed + 2, width, width)).Q
    plain = cka(gram(x), gram(y))
    assert cka(gram(x), gram(x)) == pytest.approx(1)
    assert cka(gram(scale * x @ turn + 3), gram(y)) == pytest.approx(plain, abs=1e-9)
    assert cka(gram(y), gram(x)) == pytest.approx(plain) and -1e-12 <= plain <= 1 + 1e-12


def test_cka_is_the_ratio_of_cross_covariances() -> None:
    """Kornblith et al.: |Y'X|^2 / (|X'X| |Y'Y|) of centred features, without any Gram matrix."""
    x, y = features(1, 30, 5), features(2, 30, 7)
    a, b = x - x.mean(0), y - y.mean(0)
    expected = (b.T @ a).norm() ** 2 / ((a.T @ a).norm() * (b.T @ b).norm())
    assert cka(gram(x), gram(y)) == pytest.approx(float(expected), rel=1e-12)


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
    """Another head moves the last block only; chunks change nothing, and statistics stay."""
    chain, other, x = chain_of(3), chain_of(3), features(4, 20, 4)
    with torch.no_grad():
        other.get_submodule("head").weight.copy_(features(5, 3, 6))
    before = {n: t.clone() for n, t in chain.state_dict().items()}
    memories, theirs = (
        grams(chain, chunks(x, torch.zeros(20), 7)),
        grams(other, chunks(x, torch.zeros(20), 20)),
    )
    found = by_block(memories, theirs)
    assert list(found) == ["body", "head"]
    assert found["body"] == pytest.approx(1, abs=1e-12) and found["head"] < 0.95
    assert all(torch.equal(before[n], t) for n, t in chain.state_dict().items())
