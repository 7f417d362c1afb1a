"""Hessian products and eigenpairs against the dense Hessian of a golden file."""

import re
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.errors import RunError, UserError
from fedloom.core.key import Key
from fedloom.diagnostics.curvature import LossSurface, split_batches, top_eigenpairs
from fedloom.diagnostics.trace_estimation import rademacher
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
