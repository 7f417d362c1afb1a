"""Trace and diagonal of a matrix, with standard errors, from its products with random sign vectors.

    Hutchinson   E[v * Hv] = diag(H),  E[v . Hv] = tr(H)          v: independent signs (Rademacher)
    Hutch++      tr(H) = tr(Q'HQ) + E[g . Hg],  g = (I - QQ')v    Q: orthonormal basis of H S,
                                                                  S: a third of the probes

Given Q, the first term of Hutch++ is exact, and the second is a mean of independent, unbiased
draws. The spread of these draws alone therefore gives a valid standard error, and no products are
needed for repetitions.
References: Hutchinson 1990; Meyer, Musco, Musco and Woodruff, SOSA 2021.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedloom.core.key import Key
from fedloom.diagnostics.time_budget import KeepGoing, unlimited

Products = Callable[[Tensor], Tensor]  # the matrix applied to each row

PROBES_PER_PASS = 4  # probes that share a forward pass
MAX_SKETCH = 2**28  # numbers in the basis Q of Hutch++
MAX_KEPT = 2**24  # numbers in the single draws kept with an estimate


@dataclass(frozen=True)
class Estimate:
    """A value, its standard error (0: exact), and the number of probes it is the mean of.

    draws: what each probe gave, one row each, if that was kept.
    """

    value: Tensor
    error: Tensor
    probes: int
    draws: Tensor | None = None


class RunningMean:
    """A running mean with its standard error, by Welford's algorithm. keep: also keep the draws."""

    def __init__(self, keep: bool = False) -> None:
        self.count, self._mean, self._squares = 0, torch.zeros(()), torch.zeros(())
        self._draws: list[Tensor] | None = [] if keep else None

    def add(self, x: Tensor) -> None:
        """Add one draw."""
        self.count += 1
        deviation = x - self._mean
        self._mean = self._mean + deviation / self.count
        self._squares = self._squares + deviation * (x - self._mean)
        if self._draws is not None:
            self._draws.append(x)

    @property
    def estimate(self) -> Estimate:
        """The mean so far. The standard error needs two draws; with fewer it is 0."""
        error = (self._squares.clamp(min=0) / max(self.count - 1, 1) / max(self.count, 1)).sqrt()
        draws = torch.stack(self._draws) if self._draws else None
        return Estimate(self._mean, error, self.count, draws)


@dataclass(frozen=True)
class DiagonalEstimates:
    """The diagonal, its sum over each weight tensor, and its sum over all, from the same probes."""

    diagonal: Estimate
    tensors: Estimate
    trace: Estimate


def rademacher(key: Key, numbers: Sequence[int], like: Tensor) -> Tensor:
    """One row of independent random signs per number, with the length and dtype of `like`.

    A row depends on the key and its number alone.
    """
    rows = [
        torch.randint(0, 2, (len(like),), generator=key.fold(n).generator(), dtype=torch.int8)
        for n in numbers
    ]
    return (2 * torch.stack(rows) - 1).to(like)


def estimate_diagonal(
    products: Products,
    like: Tensor,
    sizes: Sequence[int],
    key: Key,
    probes: int,
    keep_going: KeepGoing = unlimited,
) -> DiagonalEstimates:
    """Diagonal, trace of each tensor's block, and trace; exact if there are as many probes as rows.

    like: any vector with the matrix's length and dtype. sizes: of the tensors, in order.
    """
    if len(like) <= probes:
        return exact_diagonal(products, like, sizes)
    return hutchinson(products, like, sizes, key, probes, keep_going)


def hutchinson(
    products: Products,
    like: Tensor,
    sizes: Sequence[int],
    key: Key,
    probes: int,
    keep_going: KeepGoing = unlimited,
) -> DiagonalEstimates:
    """The same by Hutchinson's estimator, with standard errors."""
    means = RunningMean(keep=probes * len(like) <= MAX_KEPT), RunningMean(keep=True), RunningMean()
    for numbers in _passes(probes, keep_going):
        vectors = rademacher(key, numbers, like)
        for row in vectors * products(vectors):
            for mean, x in zip(means, _sums(row, sizes), strict=True):
                mean.add(x)
    return DiagonalEstimates(*(mean.estimate for mean in means))


def exact_diagonal(products: Products, like: Tensor, sizes: Sequence[int]) -> DiagonalEstimates:
    """The same without error, from one unit vector per row of the matrix."""
    parts = [_diagonal_entries(products, rows, like) for rows in _passes(len(like), unlimited)]
    return DiagonalEstimates(
        *(Estimate(x, torch.zeros_like(x), len(like)) for x in _sums(torch.cat(parts), sizes))
    )


def _diagonal_entries(products: Products, rows: list[int], like: Tensor) -> Tensor:
    units = torch.zeros(len(rows), len(like)).to(like)
    units[torch.arange(len(rows)), rows] = 1
    return products(units)[torch.arange(len(rows)), rows]


def _sums(diagonal: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """A diagonal, its sum over each tensor, and its sum over all.

    Sums are in float64, since they have many terms of both signs.
    """
    wide = diagonal.double()
    tensors = torch.stack([part.sum() for part in torch.split(wide, list(sizes))])
    return diagonal, tensors, wide.sum()


def hutch_plus_plus(
    products: Products,
    like: Tensor,
    key: Key,
    probes: int,
    keep_going: KeepGoing = unlimited,
) -> Estimate:
    """The trace by Hutch++, from 3 (probes // 3) products.

    It beats Hutchinson's estimator if a few eigenvalues make up most of the trace.
    """
    rank = max(1, min(probes // 3, len(like), MAX_SKETCH // len(like)))
    sketch_key, rest_key = key.fold("sketch"), key.fold("rest")
    sketch = torch.cat(
        [products(rademacher(sketch_key, numbers, like)) for numbers in _passes(rank, keep_going)]
    )
    basis = torch.linalg.qr(sketch.T).Q
    projected_trace = sum(
        (basis[:, columns].T * products(basis[:, columns].T)).double().sum()
        for columns in _passes(basis.shape[1], _report_only(keep_going))
    )
    rest = RunningMean()
    for numbers in _passes(rank, keep_going):
        vectors = rademacher(rest_key, numbers, like)
        vectors = vectors - (vectors @ basis) @ basis.T
        for x in (vectors * products(vectors)).double().sum(1):
            rest.add(x)
    remainder = rest.estimate
    return Estimate(
        remainder.value + projected_trace,
        remainder.error,
        len(sketch) + basis.shape[1] + remainder.probes,
    )


def _report_only(keep_going: KeepGoing) -> KeepGoing:
    """Reports progress but never stops: the trace over a part of the basis would be wrong."""
    return lambda: keep_going() or True


def _passes(count: int, keep_going: KeepGoing) -> Iterator[list[int]]:
    """The numbers below count, grouped by forward pass, as long as there is time.

    There are at least two, for a standard error.
    """
    group: list[int] = []
    for number in range(count):
        if not keep_going() and number >= 2:
            break
        group.append(number)
        if len(group) == PROBES_PER_PASS:
            yield group
            group = []
    if group:
        yield group
