"""Hutchinson and Hutch++ against exact traces and diagonals, and the validity of their errors."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from fedloom.core.key import Key
from fedloom.diagnostics.curvature import top_eigenpairs
from fedloom.diagnostics.trace_estimation import (
    estimate_diagonal,
    hutch_plus_plus,
    hutchinson,
    rademacher,
)
from support.golden import golden
from support.golden_surface import golden_surface

KEY = Key.root(5)


@pytest.fixture(scope="module")
def gold() -> dict[str, Tensor]:
    return golden("fedalign/h_hessian")


def test_as_many_probes_as_rows_give_the_exact_diagonal(gold: dict[str, Tensor]) -> None:
    surface = golden_surface(gold)
    found = estimate_diagonal(
        surface.hessian_products, surface.weight_vector, surface.sizes, KEY, probes=53
    )
    assert surface.sizes == gold["param_sizes"].tolist()
    torch.testing.assert_close(found.diagonal.value, gold["diag_exact"], atol=1e-9, rtol=0)
    torch.testing.assert_close(
        found.tensors.value, gold["diag_per_tensor_exact"], atol=1e-9, rtol=0
    )
    assert float(found.trace.value) == pytest.approx(float(gold["trace_exact"]), abs=1e-9)
    assert float(found.trace.error) == 0 and float(found.diagonal.error.max()) == 0


def test_hutchinson_with_4000_probes(gold: dict[str, Tensor]) -> None:
    """The standard error is the theoretical one, 0.061, and estimates lie within four of theirs."""
    h, sizes = gold["hessian"], gold["param_sizes"].tolist()
    found = hutchinson(lambda v: v @ h, gold["params_flat"], sizes, KEY, 4000)
    spread = math.sqrt(2 * float(h.square().sum() - h.diagonal().square().sum()) / 4000)
    assert float(found.trace.error) == pytest.approx(spread, rel=0.1) and spread == pytest.approx(
        0.061, abs=5e-4
    )
    assert abs(float(found.trace.value - gold["trace_exact"])) < 4 * float(found.trace.error)
    assert abs(float(found.trace.value - gold["trace_official_4000"])) < 4 * math.sqrt(2) * float(
        found.trace.error
    )
    assert bool(
        (
            (found.tensors.value - gold["diag_per_tensor_exact"]).abs() < 4 * found.tensors.error
        ).all()
    )
    assert bool(
        ((found.diagonal.value - gold["diag_exact"]).abs() < 5 * found.diagonal.error).all()
    )


def few_large_eigenvalues(size: int, seed: int) -> Tensor:
    """A symmetric matrix with a few large eigenvalues, some of them negative."""
    draws = np.random.default_rng(seed)
    basis = np.linalg.qr(draws.normal(size=(size, size)))[0]
    return torch.from_numpy(
        (basis * (draws.choice([-1, 1, 1], size) * 30.0 / np.arange(1, size + 1) ** 2)) @ basis.T
    )


def test_hutch_plus_plus_is_unbiased_with_a_valid_standard_error() -> None:
    """Over 300 keys: the mean is within three standard errors, 80 % of estimates within two."""
    matrix = few_large_eigenvalues(40, 3)
    found = [hutch_plus_plus(lambda v: v @ matrix, matrix[0], KEY.fold(n), 24) for n in range(300)]
    values = torch.stack([f.value for f in found])
    errors = torch.stack([f.error for f in found])
    errors_made = values - matrix.trace()
    assert abs(float(errors_made.mean())) < 3 * float(values.std()) / math.sqrt(300)
    assert float((errors_made.abs() < 2 * errors).double().mean()) > 0.8
    assert float(errors.square().mean().sqrt()) == pytest.approx(float(values.std()), rel=0.15)
    assert all(f.probes == 24 for f in found)


def test_hutch_plus_plus_beats_hutchinson_if_few_eigenvalues_dominate() -> None:
    matrix = few_large_eigenvalues(200, 4)
    plain = estimate_diagonal(lambda v: v @ matrix, matrix[0], [200], KEY, 60).trace
    better = hutch_plus_plus(lambda v: v @ matrix, matrix[0], KEY, 60)
    assert better.probes == plain.probes == 60 and float(better.error) < float(plain.error) / 5


def test_a_sign_vector_depends_on_its_number_alone() -> None:
    like = torch.zeros(9, dtype=torch.float64)
    assert torch.equal(rademacher(KEY, range(3), like), rademacher(KEY, range(20), like)[:3])
    assert set(rademacher(KEY, range(20), like).flatten().tolist()) == {-1.0, 1.0}


def test_the_same_key_gives_the_same_numbers(gold: dict[str, Tensor]) -> None:
    def estimates(key: Key) -> list[Tensor]:
        surface = golden_surface(gold)
        diagonal = estimate_diagonal(
            surface.hessian_products, surface.weight_vector, surface.sizes, key, 10
        )
        eigen = top_eigenpairs(surface, 3, key)
        return [
            diagonal.diagonal.value,
            eigen.vectors,
            hutch_plus_plus(surface.hessian_products, surface.weight_vector, key, 12).value,
        ]

    first, again, other = estimates(KEY), estimates(KEY), estimates(Key.root(6))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))
