"""PSNR, SSIM and AUC against naive loops, and the attacks on data with a known answer."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.diagnostics.leakage import TracingAttacker, attack, auc, leakage_figures, psnr, ssim
from fedloom.inspect.leakage import matched


def draws(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def naive_ssim(a: np.ndarray, b: np.ndarray, side: int) -> float:
    """Wang et al. 2004, eq. (13), position by position, with a Gaussian window of sigma 1.5."""
    at = np.arange(side) - (side - 1) / 2
    weights = np.exp(-(at[:, None] ** 2 + at[None] ** 2) / (2 * 1.5**2))
    weights /= weights.sum()
    found = []
    for channel in range(len(a)):
        for i in range(a.shape[1] - side + 1):
            for j in range(a.shape[2] - side + 1):
                x, y = (
                    a[channel, i : i + side, j : j + side],
                    b[channel, i : i + side, j : j + side],
                )
                mx, my = (weights * x).sum(), (weights * y).sum()
                vx, vy = (weights * (x - mx) ** 2).sum(), (weights * (y - my) ** 2).sum()
                both = (weights * (x - mx) * (y - my)).sum()
                found.append(
                    (2 * mx * my + 1e-4)
                    * (2 * both + 9e-4)
                    / ((mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4))
                )
    return float(np.mean(found))


@pytest.mark.parametrize(("height", "width", "side"), [(14, 13, 11), (8, 9, 8)])
def test_ssim_is_that_of_its_formula(height: int, width: int, side: int) -> None:
    a = torch.rand(
        2, 3, height, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    b = (a + 0.2 * draws(2, 3, height, width)).clamp(0, 1)
    expected = [naive_ssim(x.numpy(), y.numpy(), side) for x, y in zip(a, b, strict=True)]
    assert ssim(a, b).tolist() == pytest.approx(expected, abs=1e-12)
    assert ssim(a, a).tolist() == pytest.approx([1.0, 1.0], abs=1e-12)


def test_psnr_by_hand() -> None:
    assert psnr(torch.tensor([0.25]), peak=0.5).tolist() == [0.0]
    assert psnr(torch.tensor([1e-3])).item() == pytest.approx(30)


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=12),
    st.lists(st.integers(0, 6), min_size=1, max_size=12),
)
def test_auc_counts_pairs(members: list[int], others: list[int]) -> None:
    expected = sum((m > o) + 0.5 * (m == o) for m in members for o in others) / (
        len(members) * len(others)
    )
    assert auc(
        torch.tensor(members).double(), torch.tensor(others).double()
    ).value == pytest.approx(expected)


def test_the_standard_error_of_an_auc_is_that_of_guessing() -> None:
    guesses = [auc(draws(40, seed=n), draws(60, seed=1000 + n)) for n in range(400)]
    spread = float(np.std([g.value for g in guesses]))
    assert guesses[0].error == pytest.approx(spread, rel=0.15)


def test_the_nearest_sample_is_found_and_measured() -> None:
    averages = torch.zeros(2, 1, 2, 2)
    averages[1] = 0.5
    samples = torch.tensor([0.1, 0.5, 0.9]).view(3, 1, 1, 1).expand(3, 1, 2, 2)
    found = attack(averages, samples, torch.zeros(3))
    assert found.psnr.tolist() == pytest.approx([20.0, 100.0], abs=1e-4)
    assert found.ssim[1].item() == pytest.approx(1.0) and found.ssim[0].item() < 0.1
    assert found.nearest.tolist() == pytest.approx([-0.01, 0.0, -0.16], abs=1e-6)


def test_samples_that_are_not_images_have_no_ssim() -> None:
    assert attack(draws(2, 5), draws(3, 5), torch.zeros(3)).ssim.isnan().all()


MIXING = draws(60, 60, seed=9) * torch.logspace(0, -1, 60, dtype=torch.float64)


def correlated_samples(count: int, seed: int) -> Tensor:
    """Correlated samples, whose fine details are ten times weaker than their coarse structure."""
    return draws(count, 60, seed=seed) @ MIXING.T + 3


def tracing_auc(size: int, noise: float = 0.0, seed: int = 0) -> float:
    """The AUC of tracing over forty clients that each sent one average of `size` samples."""
    attacker = TracingAttacker.fit(correlated_samples(4000, seed=77), noise=size * noise**2)
    members, others = (
        correlated_samples(40 * size, seed=seed),
        correlated_samples(40 * size, seed=seed + 500),
    )
    scores = []
    for n in range(40):
        rows = slice(n * size, (n + 1) * size)
        average = members[rows].mean(0, keepdim=True) + noise * draws(1, 60, seed=seed + n)
        scores.append([attacker.scores(average, x[rows], size) for x in (members, others)])
    ours, theirs = (torch.cat(side) for side in zip(*scores, strict=True))
    return auc(ours, theirs).value


def test_tracing_finds_members_of_large_averages() -> None:
    """Scores of members are d/M higher, with deviation sqrt(d/M): AUC about Phi(sqrt(d / 2M))."""
    found = {size: tracing_auc(size) for size in (4, 30, 240)}
    expected = {size: 0.5 * math.erfc(-math.sqrt(60 / (2 * size)) / math.sqrt(2)) for size in found}
    assert found[4] > 0.99
    for size in (30, 240):
        # the ridge costs the attacker the weakest details
        assert expected[size] - 0.1 < found[size] < expected[size] + 0.04
    assert found[30] > found[240] > 0.55


def test_noise_defeats_the_attacker() -> None:
    assert tracing_auc(4, noise=0.0) > 0.99
    assert 0.45 < tracing_auc(4, noise=100.0) < 0.56


def test_averages_of_other_samples_reveal_nothing() -> None:
    attacker, average = (
        TracingAttacker.fit(correlated_samples(3000, seed=77)),
        correlated_samples(20, seed=5).mean(0, keepdim=True),
    )
    scores = [attacker.scores(average, correlated_samples(800, seed=s), 20) for s in (6, 7)]
    assert abs(auc(*scores).value - 0.5) < 4 * auc(*scores).error


def test_the_figures_pool_all_clients() -> None:
    first, second = (
        attack(draws(2, 5, seed=s), draws(4, 5, seed=s + 1), draws(4, seed=s + 2)) for s in (1, 4)
    )
    found = leakage_figures([(first, second), (second, first)])
    assert found["averages"] == 4 and found["samples"] == 8
    assert found["auc"]["tracing"]["value"] == 0.5 and found["psnr"]["members"] == pytest.approx(
        found["psnr"]["others"]
    )
    assert found["psnr"]["members"]["largest"] == float(torch.cat([first.psnr, second.psnr]).max())


def test_members_and_others_are_of_the_same_classes() -> None:
    ours, theirs = torch.tensor([0, 0, 0, 1, 1, 4]), torch.tensor([1, 0, 2, 1, 0, 1, 2, 3])
    members, others = matched(ours, theirs, Key.root(0))
    assert sorted(ours[members].tolist()) == sorted(theirs[others].tolist()) == [0, 0, 1, 1]
    assert len(set(members.tolist())) == len(set(others.tolist())) == 4
    with pytest.raises(UserError, match="no sample of a client's classes"):
        matched(torch.tensor([4]), theirs, Key.root(0))
