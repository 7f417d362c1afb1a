"""The curvature of a model's loss on fixed data: products with the Hessian, and its largest eigenvalues by Lanczos.

The loss is the mean cross-entropy over the same samples at every product, in evaluation mode: norms use their running
statistics, layers such as dropout rest. Otherwise there would be no one matrix to speak of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from fedloom.core.chain import Chain
from fedloom.core.errors import RunError, UserError
from fedloom.core.key import Key
from fedloom.diagnostics.time_budget import Go, always

Batch = tuple[Tensor, Tensor]
RESTARTS = 50  # of Lanczos, before it ends with the eigenvalues that have converged


def chunks(x: Tensor, y: Tensor, size: int = 64) -> list[Batch]:
    """Samples in pieces that fit the cache; sums over pieces are the same sums."""
    return list(zip(torch.split(x, size), torch.split(y, size), strict=True))


class Surface:
    """A model's loss on fixed data as a function of its weights.

    Vectors hold the weights one after the other, on the CPU wherever the model is: not every device has float64 or a QR.
    """

    def __init__(self, chain: Chain, batches: Sequence[Batch]) -> None:
        self.chain, self.batches = chain.eval(), batches
        self.weights = {n: p for n, p in chain.named_parameters() if p.requires_grad}
        self.sizes = [p.numel() for p in self.weights.values()]
        self._samples = sum(len(y) for _, y in batches)

    @property
    def vector(self) -> Tensor:
        """The weights as they are."""
        return torch.cat([p.detach().reshape(-1).cpu() for p in self.weights.values()])

    def loss(self, at: Tensor | None = None) -> float:
        """The mean loss, at other weights if some are given."""
        named = {} if at is None else self._named(at)
        with torch.no_grad():
            logits = ((functional_call(self.chain, named, (x,)), y) for x, y in self.batches)
            return (
                sum(float(F.cross_entropy(z, y, reduction="sum")) for z, y in logits)
                / self._samples
            )

    def products(self, vectors: Tensor) -> Tensor:
        """The Hessian applied to each row. A batch's forward and first backward pass serve all rows."""
        total, weights = torch.zeros_like(vectors), list(self.weights.values())
        for x, y in self.batches:
            loss = F.cross_entropy(self.chain(x), y, reduction="sum") / self._samples
            gradient = torch.autograd.grad(loss, weights, create_graph=True)
            for row, product in enumerate(_second(gradient, weights, map(self._parts, vectors))):
                total[row] += product.cpu()
        return total

    def _parts(self, vector: Tensor) -> list[Tensor]:
        return [
            v.view_as(p).to(p.device)
            for v, p in zip(torch.split(vector, self.sizes), self.weights.values(), strict=True)
        ]

    def _named(self, vector: Tensor) -> dict[str, Tensor]:
        return dict(zip(self.weights, self._parts(vector), strict=True))


def _second(
    gradient: Sequence[Tensor], weights: Sequence[Tensor], along: Iterator[list[Tensor]]
) -> Iterator[Tensor]:
    """The derivative of gradient . vector for each vector. A weight that the gradient does not depend on has none."""
    steep = [(g, i) for i, g in enumerate(gradient) if g.requires_grad]
    for parts in along:
        found = torch.autograd.grad(
            [g for g, _ in steep],
            weights,
            [parts[i] for _, i in steep],
            retain_graph=True,
            materialize_grads=True,
        )
        yield torch.cat([f.reshape(-1) for f in found])


@dataclass(frozen=True)
class Eigen:
    """Eigenvalues of largest magnitude, largest first, with unit eigenvectors as rows, and the norms of H v - value v.

    An eigenvalue of H lies within the residual of each value. at_least: a bound below the largest magnitude, from every product
    made; it is all that is known where the time ran out before anything converged.
    """

    values: Tensor
    vectors: Tensor
    residuals: Tensor
    products: int
    at_least: float


def top_eigen(
    surface: Surface, count: int, key: Key, tolerance: float = 0.0, go: Go = always
) -> Eigen:
    """Lanczos (ARPACK) from a start drawn from the key; tolerance: relative, 0 for the precision of the machine."""
    like, norms = surface.vector, [0.0]
    count = min(count, len(like) - 1)

    def product(v: np.ndarray) -> np.ndarray:
        if not go():
            raise _OutOfTime
        result = (
            surface.products(torch.from_numpy(v.reshape(1, -1)).to(like))[0].double().cpu().numpy()
        )
        norms.append(float(np.linalg.norm(result) / np.linalg.norm(v)))
        return result

    start = torch.randn(len(like), generator=key.generator(), dtype=torch.float64).numpy()
    values, vectors = _arpack(product, start, count, tolerance)
    order = np.argsort(-np.abs(values), kind="stable")
    found, rows = (
        torch.from_numpy(values[order].copy()).to(like),
        torch.from_numpy(vectors[:, order].T.copy()).to(like),
    )
    away = surface.products(rows) - found[:, None] * rows if len(rows) else rows
    return Eigen(found, rows, away.norm(dim=1), len(norms) - 1 + len(rows), max(norms))


class _OutOfTime(Exception):
    """Leaves ARPACK from within a product."""


def _arpack(
    product: object, start: np.ndarray, count: int, tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors as columns; those that have converged, or none where the time ran out."""
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
            operator, count, which="LM", v0=start, tol=tolerance, maxiter=RESTARTS
        )
    except ArpackNoConvergence as partial:
        return partial.eigenvalues, partial.eigenvectors
    except _OutOfTime:
        return np.empty(0), np.empty((size, 0))
    except ArpackError as error:
        raise RunError(
            f"Lanczos cannot go on ({error}); the loss may have no curvature on these samples: take more of them, or float64"
        ) from error
    return values, vectors
