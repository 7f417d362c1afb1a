"""H_N and H_D worked out by hand, and what the noise of probes does to them."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.core.key import Key
from fedloom.diagnostics.alignment import Indicators, indicators
from fedloom.diagnostics.probes import Estimate, hutchinson


def known(*numbers: float) -> Estimate:
    value = torch.tensor(numbers, dtype=torch.float64)
    return Estimate(value, torch.zeros_like(value), 1)


def test_by_hand() -> None:
    """Lengths 5, 5 and 10; the cosines of the pairs are 24/25, 1 and 24/25."""
    found = indicators([known(3, 4), known(4, 3), known(8, 6)])
    assert found.norm.pairs == pytest.approx((0 + 25 + 25) / 3)
    assert found.direction.pairs == pytest.approx((0.96 + 0.96 + 1) / 3)
    assert found.norm.full == pytest.approx(2 * 50 / 9)
    assert found.direction.full == pytest.approx((2 * 2.92 + 3) / 9)
    assert found.noise == [0, 0, 0] and found.norm.error == found.direction.error == 0


def test_opposite_and_orthogonal() -> None:
    assert indicators([known(1, 0), known(-2, 0)]).direction.pairs == pytest.approx(-1)
    assert indicators([known(1, 0), known(0, 7)]).direction.pairs == 0


vectors = st.lists(st.tuples(*[st.floats(0.1, 9)] * 3), min_size=2, max_size=6)


@settings(max_examples=60, deadline=None)
@given(vectors)
def test_the_authors_mean_is_the_pair_mean_diluted(rows: list[tuple[float, ...]]) -> None:
    """The full matrix holds C (C - 1) pairs and, on its diagonal, C zeros or ones."""
    found, share = indicators([known(*row) for row in rows]), (len(rows) - 1) / len(rows)
    assert found.norm.full == pytest.approx(share * found.norm.pairs)
    assert found.direction.full == pytest.approx(share * found.direction.pairs + (1 - share))


def test_noise_is_taken_off() -> None:
    """A length of 5 seen as 13 through an error of 12 is a length of 5."""
    seen = Estimate(torch.tensor([13.0, 0.0]), torch.tensor([0.0, 12.0]), 9)
    found = indicators([seen, known(2, 0)])
    assert found.norm.pairs == pytest.approx(9) and found.noise == pytest.approx([144 / 169, 0])


def test_nothing_but_noise_has_no_direction() -> None:
    found = indicators([Estimate(torch.ones(4), 2 * torch.ones(4), 5), known(1, 1, 1, 1)])
    assert (
        math.isnan(found.direction.pairs) and math.isnan(found.norm.pairs) and found.noise[0] == 4
    )


def test_few_probes_are_right_on_average() -> None:
    """Through eight probes the diagonal of a full matrix is mostly noise; its length and products come out right all the same."""
    generator = torch.Generator().manual_seed(3)
    mixed = torch.randn(40, 40, generator=generator, dtype=torch.float64)
    matrix = mixed + mixed.T
    rough = [
        hutchinson(lambda v: v @ matrix, matrix[0], [40], Key.root(n), 8).diagonal
        for n in range(200)
    ]
    squares = torch.stack([r.value.square().sum() - r.error.square().sum() for r in rough])
    true = float(matrix.diagonal().square().sum())
    assert abs(float(squares.mean()) - true) < 4 * float(squares.std()) / math.sqrt(200)
    assert float(torch.stack([r.value.square().sum() for r in rough]).mean()) > 2 * true
    dots = torch.stack([a.value @ b.value for a, b in zip(rough[::2], rough[1::2], strict=True)])
    assert abs(float(dots.mean()) - true) < 4 * float(dots.std()) / 10


def test_the_standard_errors_are_the_spread_over_many_keys() -> None:
    generator = torch.Generator().manual_seed(4)
    mixed = torch.randn(3, 12, 12, generator=generator, dtype=torch.float64)
    matrices = (
        mixed
        + mixed.mT
        + 6 * torch.eye(12, dtype=torch.float64) * torch.tensor([1.0, 2.0, 3.0])[:, None, None]
    )

    def seen(number: int) -> Indicators:
        keys = [Key.root(number).fold(client) for client in range(3)]
        every = [
            hutchinson(lambda v, m=m: v @ m, m[0], [5, 7], key, 40)
            for m, key in zip(matrices, keys, strict=True)
        ]
        return indicators([e.tensors if number % 2 else e.diagonal for e in every])

    for parity in (0, 1):
        found = [seen(n) for n in range(parity, 120, 2)]
        for name in ("norm", "direction"):
            values = torch.tensor([getattr(f, name).pairs for f in found])
            errors = torch.tensor([getattr(f, name).error for f in found])
            assert float(errors.square().mean().sqrt()) == pytest.approx(
                float(values.std()), rel=0.3
            )
