"""How alike the clients' Hessians are, by their diagonals d_k (Mendieta et al., CVPR 2022, eqs. 3 and 4).

    H_N^{k,j} = (|d_k| - |d_j|)^2        H_D^{k,j} = d_k . d_j / (|d_k| |d_j|)

Two things may be called diagonal: the true one, and what the authors' code takes for it, one number a tensor, the trace of that
tensor's part. Two things may be called a mean: over the pairs k != j, and over the full matrix as in the authors' code, where
k = j adds zeros and ones. Only (per tensor, full matrix) can be compared with the paper's Table 1.

A diagonal estimated from probes is longer than the true one by its noise: E|d^|^2 = |d|^2 + sum of squared standard errors. That
is taken off, and told as `noise`, its share. With probes of its own for every client, d_k . d_j needs no correction. The
quotient is still skewed when probes are few, and an estimated H_D may pass 1; the authors correct nothing. Standard errors are
the jackknife's: each probe of each client is left out once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedloom.diagnostics.probes import Estimate


@dataclass(frozen=True)
class Alignment:
    """An indicator over the pairs, over the full matrix, and the standard error of the first.

    Not a number where a diagonal is nothing but noise; an error also where single probes were too long to keep.
    """

    pairs: float
    full: float
    error: float


@dataclass(frozen=True)
class Indicators:
    """H_N, H_D, and for each client the share of noise in the squared length of its diagonal."""

    norm: Alignment
    direction: Alignment
    noise: list[float]


def indicators(diagonals: Sequence[Estimate]) -> Indicators:
    """H_N and H_D of two clients or more."""
    values = torch.stack([d.value.double() for d in diagonals])
    noise = torch.stack([d.error.double().square().sum() for d in diagonals])
    matrices, errors = _matrices(values @ values.T, noise), _jackknife(diagonals, values, noise)
    norm, direction = (
        Alignment(float(_off(m)), float(m.mean()), float(e))
        for m, e in zip(matrices, errors, strict=True)
    )
    return Indicators(norm, direction, (noise / values.square().sum(1)).tolist())


def _matrices(products: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """H_N and H_D of every two clients, from the products of their diagonals; what stands before clients by clients is a batch."""
    lengths = (
        products.diagonal(dim1=-2, dim2=-1) - noise
    ).sqrt()  # not a number where the noise is longer
    across, along = lengths[..., :, None], lengths[..., None, :]
    cosines = products / (across * along)
    same = torch.eye(products.shape[-1], dtype=torch.bool) & cosines.isfinite()
    return (across - along).square(), cosines.masked_fill(same, 1)


def _off(matrices: Tensor) -> Tensor:
    """The mean off the diagonal."""
    count = matrices.shape[-1]
    return (matrices.sum((-2, -1)) - matrices.diagonal(dim1=-2, dim2=-1).sum(-1)) / (
        count * (count - 1)
    )


def _jackknife(diagonals: Sequence[Estimate], values: Tensor, noise: Tensor) -> Tensor:
    """Standard errors of H_N and H_D over the pairs; the clients' probes are independent, so their variances add up."""
    variance = torch.zeros(2, dtype=torch.float64)
    for client, found in enumerate(diagonals):
        if found.draws is not None:
            means, errors = _left_out(found.draws.double())
            spread = torch.stack(
                [_off(m) for m in _matrices(*_instead(values, noise, client, means, errors))]
            )
            variance += spread.var(1, correction=0) * (len(means) - 1)
        elif found.error.any():
            variance += torch.nan
    return variance.sqrt()


def _left_out(draws: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of the draws without each of them, and the sum of its squared standard errors."""
    count = len(draws) - 1
    means, squares = (
        (draws.sum(0) - draws) / count,
        (draws.square().sum(0) - draws.square()) / count,
    )
    return means, ((squares - means.square()).clamp(min=0) / max(count - 1, 1)).sum(1)


def _instead(
    values: Tensor, noise: Tensor, client: int, means: Tensor, errors: Tensor
) -> tuple[Tensor, Tensor]:
    """Products and noise of all clients, with each of the means in the place of the client's diagonal."""
    products, noises = (t.expand(len(means), *t.shape).clone() for t in (values @ values.T, noise))
    products[:, client, :] = products[:, :, client] = means @ values.T
    products[:, client, client], noises[:, client] = means.square().sum(1), errors
    return products, noises
