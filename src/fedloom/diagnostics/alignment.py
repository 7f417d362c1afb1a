"""Similarity of the clients' Hessians, measured on their diagonals d_k (FedAlign: Mendieta et al.,
CVPR 2022, eqs. 3 and 4).

    H_N^{k,j} = (|d_k| - |d_j|)^2        H_D^{k,j} = d_k . d_j / (|d_k| |d_j|)

The paper leaves two things open. "Diagonal" may be the true diagonal, or, as in the authors' code,
one number per weight tensor: the trace of that tensor's block. "Mean" may be over the pairs k != j,
or, as in the authors' code, over the full matrix, where k = j adds zeros to H_N and ones to H_D.
Only (per tensor, full matrix) is comparable with the paper's Table 1.

A diagonal estimated from probes is longer than the true one because of its noise:
E|d^|^2 = |d|^2 + the sum of squared standard errors. This bias is subtracted; `noise` reports its
share. Since every client has its own probes, d_k . d_j needs no correction. The quotient is still
biased when there are few probes, and an estimated H_D may exceed 1; the authors correct nothing.
Standard errors are by the jackknife, which leaves out each probe of each client once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedloom.diagnostics.trace_estimation import Estimate


@dataclass(frozen=True)
class AlignmentIndicator:
    """H_N or H_D: its mean over the pairs, its mean over the full matrix, and the standard error of
    the mean over the pairs.

    NaN if a diagonal is nothing but noise. The error is NaN also if the single draws of an estimate
    were too large to keep.
    """

    pairs: float
    full: float
    error: float


@dataclass(frozen=True)
class HessianAlignment:
    """H_N, H_D, and for each client the share of noise in the squared norm of its diagonal."""

    norm: AlignmentIndicator
    direction: AlignmentIndicator
    noise: list[float]


def hessian_alignment(diagonals: Sequence[Estimate]) -> HessianAlignment:
    """H_N and H_D of two or more clients, from their estimated Hessian diagonals."""
    values = torch.stack([d.value.double() for d in diagonals])
    noise = torch.stack([d.error.double().square().sum() for d in diagonals])
    matrices = _pairwise(values @ values.T, noise)
    errors = _jackknife_errors(diagonals, values, noise)
    norm, direction = (
        AlignmentIndicator(float(_mean_of_pairs(matrix)), float(matrix.mean()), float(error))
        for matrix, error in zip(matrices, errors, strict=True)
    )
    return HessianAlignment(norm, direction, (noise / values.square().sum(1)).tolist())


def _pairwise(products: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """H_N and H_D of every two clients, from the inner products of their diagonals.

    products: (..., clients, clients), noise: (..., clients); leading dimensions are a batch.
    """
    squares = products.diagonal(dim1=-2, dim2=-1)
    lengths = (squares - noise).sqrt()  # NaN if the noise is longer than the diagonal
    rows, columns = lengths[..., :, None], lengths[..., None, :]
    cosines = products / (rows * columns)
    same_client = torch.eye(products.shape[-1], dtype=torch.bool) & cosines.isfinite()
    return (rows - columns).square(), cosines.masked_fill(same_client, 1)


def _mean_of_pairs(matrices: Tensor) -> Tensor:
    """The mean of the entries off the diagonal."""
    count = matrices.shape[-1]
    off_diagonal = matrices.sum((-2, -1)) - matrices.diagonal(dim1=-2, dim2=-1).sum(-1)
    return off_diagonal / (count * (count - 1))


def _jackknife_errors(diagonals: Sequence[Estimate], values: Tensor, noise: Tensor) -> Tensor:
    """Standard errors of H_N and H_D over the pairs.

    The clients' probes are independent, so their jackknife variances add up.
    """
    variance = torch.zeros(2, dtype=torch.float64)
    for client, diagonal in enumerate(diagonals):
        if diagonal.draws is not None:
            means, errors = _leave_one_out(diagonal.draws.double())
            replaced = _with_replaced_diagonal(values, noise, client, means, errors)
            replicates = torch.stack([_mean_of_pairs(matrix) for matrix in _pairwise(*replaced)])
            variance += replicates.var(1, correction=0) * (len(means) - 1)
        elif diagonal.error.any():
            variance += torch.nan
    return variance.sqrt()


def _leave_one_out(draws: Tensor) -> tuple[Tensor, Tensor]:
    """For each draw, the mean of the others, and the sum of the squared standard errors of that."""
    count = len(draws) - 1
    means = (draws.sum(0) - draws) / count
    squares = (draws.square().sum(0) - draws.square()) / count
    return means, ((squares - means.square()).clamp(min=0) / max(count - 1, 1)).sum(1)


def _with_replaced_diagonal(
    values: Tensor, noise: Tensor, client: int, means: Tensor, errors: Tensor
) -> tuple[Tensor, Tensor]:
    """Inner products and noise of all clients, a batch with each mean as the client's diagonal."""
    products, noises = (t.expand(len(means), *t.shape).clone() for t in (values @ values.T, noise))
    products[:, client, :] = products[:, :, client] = means @ values.T
    products[:, client, client], noises[:, client] = means.square().sum(1), errors
    return products, noises
