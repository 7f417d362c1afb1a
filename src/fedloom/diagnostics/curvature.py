"""Curvature of the loss on fixed data: Hessian-vector products, and top eigenvalues by Lanczos.

The loss is the mean cross-entropy over the same samples in every product, and the model is in
evaluation mode: norms use their running statistics and dropout is off. Otherwise the products would
not belong to one matrix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from fedloom.core.chain import Chain
from fedloom.core.errors import RunError, UserError
from fedloom.core.key import Key
from fedloom.diagnostics.time_budget import KeepGoing, unlimited

Batch = tuple[Tensor, Tensor]
MAX_RESTARTS = 50  # of Lanczos; then only the converged eigenvalues are returned


def split_batches(x: Tensor, y: Tensor, size: int = 64) -> list[Batch]:
    """Split samples into batches that fit the cache; the loss is a sum over batches."""
    return list(zip(torch.split(x, size), torch.split(y, size), strict=True))


class LossSurface:
    """A model's loss on fixed data as a function of its weights.

    Vectors hold all trainable weights, concatenated. They are on the CPU wherever the model is,
    because not every device supports float64 and QR.
    """

    def __init__(self, chain: Chain, batches: Sequence[Batch]) -> None:
        self.chain, self.batches = chain.eval(), batches
        self.weights = {n: p for n, p in chain.named_parameters() if p.requires_grad}
        self.sizes = [p.numel() for p in self.weights.values()]
        self._samples = sum(len(y) for _, y in batches)

    @property
    def weight_vector(self) -> Tensor:
        """The current weights as one vector."""
        return torch.cat([p.detach().reshape(-1).cpu() for p in self.weights.values()])

    def loss(self, at: Tensor | None = None) -> float:
        """The mean loss at the current weights, or at the weight vector `at`."""
        weights = {} if at is None else dict(zip(self.weights, self._unflatten(at), strict=True))
        total: float = 0
        with torch.no_grad():
            for x, y in self.batches:
                logits = functional_call(self.chain, weights, (x,))
                total += float(F.cross_entropy(logits, y, reduction="sum"))
        return total / self._samples

    def hessian_products(self, vectors: Tensor) -> Tensor:
        """The Hessian times each row. All rows share a batch's forward and first backward pass."""
        total, weights = torch.zeros_like(vectors), list(self.weights.values())
        for x, y in self.batches:
            loss = F.cross_entropy(self.chain(x), y, reduction="sum") / self._samples
            gradient = torch.autograd.grad(loss, weights, create_graph=True)
            directions = map(self._unflatten, vectors)
            for row, product in enumerate(_gradient_products(gradient, weights, directions)):
                total[row] += product.cpu()
        return total

    def _unflatten(self, vector: Tensor) -> list[Tensor]:
        """The vector as tensors with the shapes and devices of the weights."""
        return [
            v.view_as(p).to(p.device)
            for v, p in zip(torch.split(vector, self.sizes), self.weights.values(), strict=True)
        ]


def _gradient_products(
    gradient: Sequence[Tensor], weights: Sequence[Tensor], directions: Iterable[list[Tensor]]
) -> Iterator[Tensor]:
    """For each direction v, the derivative of gradient . v by the weights, as one vector.

    It is zero for weights on which the gradient does not depend.
    """
    differentiable = [i for i, g in enumerate(gradient) if g.requires_grad]
    for direction in directions:
        products = torch.autograd.grad(
            [gradient[i] for i in differentiable],
            weights,
            [direction[i] for i in differentiable],
            retain_graph=True,
            materialize_grads=True,
        )
        yield torch.cat([product.reshape(-1) for product in products])


@dataclass(frozen=True)
class Eigenpairs:
    """Eigenvalues of largest magnitude, largest first, with unit eigenvectors as rows.

    residuals: |H v - value v|; some eigenvalue of H lies within this distance of the value.
    products: Hessian-vector products used. lower_bound: for the largest magnitude, from all
    products made; it is the only result if the time ran out before anything converged.
    """

    values: Tensor
    vectors: Tensor
    residuals: Tensor
    products: int
    lower_bound: float


def top_eigenpairs(
    surface: LossSurface,
    count: int,
    key: Key,
    tolerance: float = 0.0,
    keep_going: KeepGoing = unlimited,
) -> Eigenpairs:
    """The `count` eigenvalues of largest magnitude, by Lanczos (ARPACK).

    key: draws the starting vector. tolerance: relative; 0 is machine precision.
    """
    like, norms = surface.weight_vector, [0.0]
    count = min(count, len(like) - 1)

    def product(v: np.ndarray) -> np.ndarray:
        if not keep_going():
            raise _OutOfTime
        row = torch.from_numpy(v.reshape(1, -1)).to(like)
        result = surface.hessian_products(row)[0].double().cpu().numpy()
        norms.append(float(np.linalg.norm(result) / np.linalg.norm(v)))
        return result

    start = torch.randn(len(like), generator=key.generator(), dtype=torch.float64).numpy()
    eigenvalues, eigenvectors = _arpack(product, start, count, tolerance)
    order = np.argsort(-np.abs(eigenvalues), kind="stable")
    values = torch.from_numpy(eigenvalues[order].copy()).to(like)
    rows = torch.from_numpy(eigenvectors[:, order].T.copy()).to(like)
    residuals = surface.hessian_products(rows) - values[:, None] * rows if len(rows) else rows
    return Eigenpairs(values, rows, residuals.norm(dim=1), len(norms) - 1 + len(rows), max(norms))


class _OutOfTime(Exception):
    """Raised inside a product, to leave ARPACK."""


def _arpack(
    product: object, start: np.ndarray, count: int, tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """The converged eigenvalues, and their eigenvectors as columns; none if the time ran out."""
    try:
        from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, eigsh
    except ImportError:
        raise UserError(
            'eigenvalues need scipy; install it with: pip install "fedloom[analysis]"'
        ) from None
    size = len(start)
    operator = LinearOperator((size, size), matvec=product, dtype=np.float64)
    try:
        values, vectors = eigsh(
            operator, count, which="LM", v0=start, tol=tolerance, maxiter=MAX_RESTARTS
        )
    except ArpackNoConvergence as partial:
        return partial.eigenvalues, partial.eigenvectors
    except _OutOfTime:
        return np.empty(0), np.empty((size, 0))
    except ArpackError as error:
        raise RunError(
            f"Lanczos failed ({error}); the loss may have no curvature on these samples: "
            "use more samples, or float64"
        ) from error
    return values, vectors
