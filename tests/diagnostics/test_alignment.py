"""H_N and H_D against values by hand, and the effect of the noise of probes."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.core.key import Key
from fedloom.diagnostics.alignment import HessianAlignment, hessian_alignment
from fedloom.diagnostics.trace_estimation import Estimate, hutchinson


def exact(*numbers: float) -> Estimate:
    value = torch.tensor(numbers, dtype=torch.float64)
    return Estimate(value, torch.zeros_like(value), 1)


def test_three_clients_by_hand() -> None:
    """Lengths 5, 5 and 10; the cosines of the pairs are 24/25, 1 and 24/25."""
    found = hessian_alignment([exact(3, 4), exact(4, 3), exact(8, 6)])
    assert found.norm.pairs == pytest.approx((0 + 25 + 25) / 3)
    assert found.direction.pairs == pytest.approx((0.96 + 0.96 + 1) / 3)
    assert found.norm.full == pytest.approx(2 * 50 / 9)
    assert found.direction.full == pytest.approx((2 * 2.92 + 3) / 9)
    assert found.noise == [0, 0, 0] and found.norm.error == found.direction.error == 0


def test_opposite_and_orthogonal() -> None:
    assert hessian_alignment([exact(1, 0), exact(-2, 0)]).direction.pairs == pytest.approx(-1)
    assert hessian_alignment([exact(1, 0), exact(0, 7)]).direction.pairs == 0


vectors = st.lists(st.tuples(*[st.floats(0.1, 9)] * 3), min_size=2, max_size=6)


@settings(max_examples=60, deadline=None)
@given(vectors)
def test_the_full_matrix_mean_follows_from_the_pair_mean(rows: list[tuple[float, ...]]) -> None:
    """The full matrix holds C (C - 1) pairs and, on its diagonal, C zeros or ones."""
    found, share = hessian_alignment([exact(*row) for row in rows]), (len(rows) - 1) / len(rows)
    assert found.norm.full == pytest.approx(share * found.norm.pairs)
    assert found.direction.full == pytest.approx(share * found.direction.pairs + (1 - share))


def test_noise_is_subtracted() -> None:
    """A norm of 5 measured as 13 with an error of 12 is corrected to 5."""
    noisy = Estimate(torch.tensor([13.0, 0.0]), torch.tensor([0.0, 12.0]), 9)
    found = hessian_alignment([noisy, exact(2, 0)])
    assert found.norm.pairs == pytest.approx(9) and found.noise == pytest.approx([144 / 169, 0])


def test_a_diagonal_of_pure_noise_gives_nan() -> None:
    found = hessian_alignment([Estimate(torch.ones(4), 2 * torch.ones(4), 5), exact(1, 1, 1, 1)])
    assert (
        math.isnan(found.direction.pairs) and math.isnan(found.norm.pairs) and found.noise[0] == 4
    )


def test_norms_and_products_from_few_probes_are_unbiased() -> None:
    """With eight probes the estimated diagonal is mostly noise; norms and products are unbiased."""
    generator = torch.Generator().manual_seed(3)
    mixed = torch.randn(40, 40, generator=generator, dtype=torch.float64)
    matrix = mixed + mixed.T
    estimates = [
        hutchinson(lambda v: v @ matrix, matrix[0], [40], Key.root(n), 8).diagonal
        for n in range(200)
    ]
    squares = torch.stack([r.value.square().sum() - r.error.square().sum() for r in estimates])
    true = float(matrix.diagonal().square().sum())
    assert abs(float(squares.mean()) - true) < 4 * float(squares.std()) / math.sqrt(200)
    assert float(torch.stack([r.value.square().sum() for r in estimates]).mean()) > 2 * true
    dots = torch.stack(
        [a.value @ b.value for a, b in zip(estimates[::2], estimates[1::2], strict=True)]
    )
    assert abs(float(dots.mean()) - true) < 4 * float(dots.std()) / 10


def test_jackknife_errors_equal_the_spread_over_many_keys() -> None:
    generator = torch.Generator().manual_seed(4)
    mixed = torch.randn(3, 12, 12, generator=generator, dtype=torch.float64)
    matrices = (
        mixed
        + mixed.mT
        + 6 * torch.eye(12, dtype=torch.float64) * torch.tensor([1.0, 2.0, 3.0])[:, None, None]
    )

    def alignment(number: int) -> HessianAlignment:
        keys = [Key.root(number).fold(client) for client in range(3)]
        estimates = [
            hutchinson(lambda v, m=m: v @ m, m[0], [5, 7], key, 40)
            for m, key in zip(matrices, keys, strict=True)
        ]
        return hessian_alignment([e.tensors if number % 2 else e.diagonal for e in estimates])

    for parity in (0, 1):
        results = [alignment(n) for n in range(parity, 120, 2)]
        for name in ("norm", "direction"):
            values = torch.tensor([getattr(r, name).pairs for r in results])
            errors = torch.tensor([getattr(r, name).error for r in results])
            assert float(errors.square().mean().sqrt()) == pytest.approx(
                float(values.std()), rel=0.3
            )
