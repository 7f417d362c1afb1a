"""Curvature against the dense Hessian of a golden file, and estimators against known traces."""

import math
import re
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.errors import RunError, UserError
from fedloom.core.key import Key
from fedloom.diagnostics.curvature import LossSurface, split_batches, top_eigenpairs
from fedloom.diagnostics.time_budget import TimeBudget
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


def dense(surface: LossSurface) -> Tensor:
    return surface.hessian_products(torch.eye(len(surface.weight_vector), dtype=torch.float64))


def test_products_with_unit_vectors_give_the_dense_hessian(gold: dict[str, Tensor]) -> None:
    torch.testing.assert_close(dense(golden_surface(gold)), gold["hessian"], atol=1e-9, rtol=0)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 25))
def test_the_batch_size_changes_nothing(chunk: int) -> None:
    gold = golden("fedalign/h_hessian")
    whole, cut = golden_surface(gold, 20), golden_surface(gold, chunk)
    vectors = rademacher(KEY, range(3), whole.weight_vector)
    torch.testing.assert_close(
        cut.hessian_products(vectors), whole.hessian_products(vectors), atol=1e-14, rtol=0
    )
    assert cut.loss() == pytest.approx(whole.loss(), abs=1e-14)


def test_eigenpairs(gold: dict[str, Tensor]) -> None:
    surface = golden_surface(gold)
    found = top_eigenpairs(surface, 5, KEY)
    exact = gold["eig_exact"][gold["eig_exact"].abs().argsort(descending=True)]
    torch.testing.assert_close(found.values, exact[:5], atol=1e-9, rtol=0)
    torch.testing.assert_close(
        found.values[:2], gold["eig_top2_official_converged"], atol=1e-5, rtol=0
    )
    assert float(found.values[0]) == pytest.approx(
        float(gold["eig_top1_official_default"]), rel=4e-3
    )
    torch.testing.assert_close(
        found.vectors @ found.vectors.T, torch.eye(5, dtype=torch.float64), atol=1e-9, rtol=0
    )
    torch.testing.assert_close(
        found.vectors @ gold["hessian"], found.values[:, None] * found.vectors, atol=1e-8, rtol=0
    )
    assert (
        float(found.residuals.max()) < 1e-8 and found.lower_bound <= float(exact[0].abs()) + 1e-12
    )


def test_residuals_bound_the_error_of_loose_eigenvalues(gold: dict[str, Tensor]) -> None:
    found = top_eigenpairs(golden_surface(gold), 2, KEY, tolerance=0.05)
    for value, residual in zip(found.values, found.residuals, strict=True):
        assert float((gold["eig_exact"] - value).abs().min()) <= float(residual) + 1e-12
    assert found.products < top_eigenpairs(golden_surface(gold), 2, KEY).products


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


def test_a_sign_vector_depends_on_its_number_alone() -> None:
    like = torch.zeros(9, dtype=torch.float64)
    assert torch.equal(rademacher(KEY, range(3), like), rademacher(KEY, range(20), like)[:3])
    assert set(rademacher(KEY, range(20), like).flatten().tolist()) == {-1.0, 1.0}


def test_every_part_stops_when_its_time_is_up(gold: dict[str, Tensor]) -> None:
    """With a clock that advances a second per look, all three parts are truncated and say so."""
    ticks = iter(range(10_000))
    surface = golden_surface(gold)
    budget = TimeBudget(1.0, 3, lambda *progress: None, lambda: float(next(ticks)))
    eigen = top_eigenpairs(surface, 2, KEY, keep_going=budget.start_part("eigen"))
    assert len(eigen.values) == 0 and 0 < eigen.lower_bound <= float(gold["eig_exact"].abs().max())
    diagonal = estimate_diagonal(
        surface.hessian_products,
        surface.weight_vector,
        surface.sizes,
        KEY,
        50,
        budget.start_part("probes", 50),
    )
    assert 2 <= diagonal.trace.probes < 50
    plus = hutch_plus_plus(
        surface.hessian_products, surface.weight_vector, KEY, 50, budget.start_part("hutch++", 48)
    )
    assert 6 <= plus.probes < 48
    assert budget.truncated == ["eigen", "probes", "hutch++"]


def test_norms_use_their_running_statistics() -> None:
    """So the batch size does not matter, and the running statistics do not change."""
    chain = Chain(
        {
            "body": nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU()),
            "head": nn.Linear(3, 2),
        }
    ).double()
    nn.utils.vector_to_parameters(
        torch.sin(torch.arange(29.0, dtype=torch.float64)), chain.parameters()
    )
    x, y = torch.cos(torch.arange(48.0, dtype=torch.float64)).view(12, 4), torch.arange(12) % 2
    before = {n: t.clone() for n, t in chain.state_dict().items()}
    torch.testing.assert_close(
        dense(LossSurface(chain, split_batches(x, y, 5))),
        dense(LossSurface(chain, split_batches(x, y, 12))),
        atol=1e-13,
        rtol=0,
    )
    assert all(torch.equal(before[n], t) for n, t in chain.state_dict().items())


def test_a_loss_without_curvature_is_an_error(gold: dict[str, Tensor]) -> None:
    """Logits so far apart that every probability is 0 or 1."""
    surface = golden_surface(gold)
    with torch.no_grad():
        surface.weights["head.bias"].copy_(torch.tensor([1e6, 0, 0]))
    flat = LossSurface(surface.chain, [(x, torch.zeros_like(y)) for x, y in surface.batches])
    assert float(dense(flat).abs().max()) == 0
    with pytest.raises(RunError, match="the loss may have no curvature on these samples"):
        top_eigenpairs(flat, 2, KEY)


def test_without_scipy_the_error_names_the_extra(
    gold: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "scipy.sparse.linalg", None)
    with pytest.raises(UserError, match=re.escape('pip install "fedloom[analysis]"')):
        top_eigenpairs(golden_surface(gold), 2, KEY)
