"""Tiny float64 models, nested, so that selecting tensors by substrings of names would fail."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.models.layers import Residual

FEATURES, WIDTH, CLASSES = 6, 5, 3
Build = Callable[[], Chain]


class Unit(nn.Module):
    """A residual unit whose second norm is called `downsample.1`."""

    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.unit = nn.Sequential(nn.Linear(WIDTH, WIDTH), norm(WIDTH), nn.Tanh())
        self.downsample = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), norm(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return self.unit(x) + self.downsample(x)


def _nested(norm: Callable[[int], nn.Module]) -> Chain:
    stem = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh())
    return Chain(
        {
            "stem": stem,
            "body": nn.Sequential(Unit(norm), nn.Tanh()),
            "head": nn.Linear(WIDTH, CLASSES),
        }
    ).double()


def nested() -> Chain:
    """Three blocks, with nested batch norms in the second."""
    return _nested(nn.BatchNorm1d)


def bare() -> Chain:
    """The same without norms, so without buffers."""
    return _nested(lambda width: nn.Identity())


def noisy() -> Chain:
    """With dropout, so that training draws random numbers."""
    return Chain(
        {
            "stem": nn.Linear(FEATURES, WIDTH),
            "drop": nn.Dropout(0.5),
            "head": nn.Linear(WIDTH, CLASSES),
        }
    ).double()


class Vector(nn.Module):
    """Just a weight vector, for objectives given by a formula."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(size, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x


def vector(size: int) -> Build:
    """Builds a model whose only tensor is `point.w`."""
    return lambda: Chain({"point": Vector(size)})


NORMS = frozenset(
    f"body.0.{layer}.1.{tensor}"
    for layer in ("unit", "downsample")
    for tensor in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
)


def _residual(norm: Callable[[int], nn.Module]) -> Chain:
    def block(shortcut: nn.Module | None = None) -> Residual:
        return Residual(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), norm(WIDTH)), shortcut, nn.ReLU(inplace=True)
        )

    projection = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), norm(WIDTH))
    stem = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU(inplace=True))
    body = nn.Sequential(block(), block(projection), block())
    return Chain({"stem": stem, "body": body, "head": nn.Linear(WIDTH, CLASSES)}).double()


def residual() -> Chain:
    """Three residual blocks with in-place ReLU; the second has weights in its shortcut."""
    return _residual(nn.BatchNorm1d)


def residual_bare() -> Chain:
    """The same without norms."""
    return _residual(lambda width: nn.Identity())


class Family(NamedTuple):
    """A model with batch norms, the same without, and the names of its norms' tensors."""

    normed: Build
    bare: Build
    norms: frozenset[str]


NESTED = Family(nested, bare, NORMS)
RESIDUAL = Family(
    residual,
    residual_bare,
    frozenset(
        f"body.{layer}.1.{tensor}"
        for layer in ("0.body", "1.body", "1.shortcut", "2.body")
        for tensor in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    ),
)
