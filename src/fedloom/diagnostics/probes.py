"""Trace and diagonal of a matrix that is known by its products only, from random signs, each with its standard error.

    Hutchinson   E[v * Hv] = diag(H),  E[v . Hv] = tr(H)              for v of independent signs
    Hutch++      tr(H) = tr(Q'HQ) + E[g . Hg],  g = (I - QQ')v        Q: an orthonormal basis of H times a third of the probes

Given Q, the first term of Hutch++ is exact and the second is a mean of independent draws with the right expectation. So the
spread of these draws alone gives an honest standard error, and no product is spent on repeats.
Hutchinson 1990; Meyer, Musco, Musco and Woodruff, SOSA 2021.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedloom.core.key import Key
from fedloom.diagnostics.time_budget import Go, always

Products = Callable[[Tensor], Tensor]  # rows in, rows out: the matrix applied to each

BLOCK = 4  # probes that share a forward pass
SKETCH = 2**28  # numbers that the basis of Hutch++ may hold
KEPT = 2**24  # numbers that the single draws behind an estimate may hold


@dataclass(frozen=True)
class Estimate:
    """A value, its standard error (0: exact), how many probes it comes from, and what each of them said, if that is kept."""

    value: Tensor
    error: Tensor
    probes: int
    draws: Tensor | None = None


class Mean:
    """A running mean with its standard error, after Welford; the draws are kept if that is asked for."""

    def __init__(self, keep: bool = False) -> None:
        self.count, self._mean, self._squares = 0, torch.zeros(()), torch.zeros(())
        self._draws: list[Tensor] | None = [] if keep else None

    def add(self, x: Tensor) -> None:
        """One more draw."""
        self.count += 1
        away = x - self._mean
        self._mean = self._mean + away / self.count
        self._squares = self._squares + away * (x - self._mean)
        if self._draws is not None:
            self._draws.append(x)

    @property
    def estimate(self) -> Estimate:
        """The mean so far; a standard error needs two draws."""
        error = (self._squares.clamp(min=0) / max(self.count - 1, 1) / max(self.count, 1)).sqrt()
        return Estimate(
            self._mean, error, self.count, torch.stack(self._draws) if self._draws else None
        )


@dataclass(frozen=True)
class Probed:
    """One pass of probes, read three ways: number by number, summed over each tensor, summed over all."""

    diagonal: Estimate
    tensors: Estimate
    trace: Estimate


def signs(key: Key, numbers: Sequence[int], like: Tensor) -> Tensor:
    """A row of independent signs for each number, of the length and type of `like`; a row hangs on its number alone."""
    rows = [
        torch.randint(0, 2, (len(like),), generator=key.fold(n).generator(), dtype=torch.int8)
        for n in numbers
    ]
    return (2 * torch.stack(rows) - 1).to(like)


def probed(
    products: Products, like: Tensor, sizes: Sequence[int], key: Key, probes: int, go: Go = always
) -> Probed:
    """Trace, diagonal and the trace of each tensor: exact where the matrix has no more rows than there are probes.

    like: any vector, for length and type. sizes: of the tensors, in order.
    """
    small = len(like) <= probes
    return (
        exact(products, like, sizes)
        if small
        else hutchinson(products, like, sizes, key, probes, go)
    )


def hutchinson(
    products: Products, like: Tensor, sizes: Sequence[int], key: Key, probes: int, go: Go = always
) -> Probed:
    """The same from random signs, with standard errors."""
    readings = Mean(keep=probes * len(like) <= KEPT), Mean(keep=True), Mean()
    for block in _blocks(probes, go):
        vectors = signs(key, block, like)
        for row in vectors * products(vectors):
            for reading, x in zip(readings, _read(row, sizes), strict=True):
                reading.add(x)
    return Probed(*(reading.estimate for reading in readings))


def exact(products: Products, like: Tensor, sizes: Sequence[int]) -> Probed:
    """The same from unit vectors, one a row of the matrix."""
    columns = [_diagonal_of(products, block, like) for block in _blocks(len(like), always)]
    return Probed(
        *(Estimate(x, torch.zeros_like(x), len(like)) for x in _read(torch.cat(columns), sizes))
    )


def _diagonal_of(products: Products, block: list[int], like: Tensor) -> Tensor:
    units = torch.zeros(len(block), len(like)).to(like)
    units[torch.arange(len(block)), block] = 1
    return products(units)[torch.arange(len(block)), block]


def _read(row: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """A diagonal, its sum over each tensor, and over all; sums in float64, for there are many terms of both signs."""
    wide = row.double()
    tensors = torch.stack([part.sum() for part in torch.split(wide, list(sizes))])
    return row, tensors, wide.sum()


def hutch_plus_plus(
    products: Products, like: Tensor, key: Key, probes: int, go: Go = always
) -> Estimate:
    """The trace from three times probes // 3 products; better than Hutchinson where a few eigenvalues make most of it."""
    rank = max(1, min(probes // 3, len(like), SKETCH // len(like)))
    sketch = [products(signs(key.fold("sketch"), block, like)) for block in _blocks(rank, go)]
    basis = torch.linalg.qr(torch.cat(sketch).T).Q
    caught = sum(
        (basis[:, b].T * products(basis[:, b].T)).double().sum()
        for b in _blocks(basis.shape[1], _counted(go))
    )
    rest = Mean()
    for block in _blocks(rank, go):
        vectors = signs(key.fold("rest"), block, like)
        vectors = vectors - (vectors @ basis) @ basis.T
        for x in (vectors * products(vectors)).double().sum(1):
            rest.add(x)
    found = rest.estimate
    return Estimate(
        found.value + caught, found.error, len(torch.cat(sketch)) + basis.shape[1] + found.probes
    )


def _counted(go: Go) -> Go:
    """Counts as work, and is never stopped: a basis is projected on as a whole, or its trace is wrong."""
    return lambda: go() or True


def _blocks(count: int, go: Go) -> Iterator[list[int]]:
    """The numbers below count in blocks, as long as there is time; two at least, for a standard error."""
    block: list[int] = []
    for number in range(count):
        if not go() and number >= 2:
            break
        block.append(number)
        if len(block) == BLOCK:
            yield block
            block = []
    if block:
        yield block
