"""What averages of data show of the samples in them, measured by attacks that need nothing but the averages.

Averages are held against samples that are in them (members) and against as many others of the same classes that are not: were
the others of other classes, an attack that merely knows the class would pass for one that knows the sample.

    nearest      the sample closest to an average: its PSNR and SSIM, for members and for others; alike if nothing is shown
    membership   how often an attack puts a member above an other (AUC): 0.5 is a guess, 1 is certainty. "nearest" scores a sample
                 by its distance to the closest average; "tracing" by the likelihood that the average of M has it in it,

                     <a - m, s - m> - |s - m|^2 / 2M    in the metric of (S + M noise^2)^-1,

                 m and S being the mean and the covariance of data that the attacker has of his own

Eyes find nothing in an average of a hundred, tracing does: details too faint to be seen add up over all pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

WINDOW, BLUR = 11, 1.5  # of SSIM, as its authors have them
FLOOR = 1e-10  # of a mean square: a PSNR of 100 dB is a copy
RIDGE = 0.03  # of the mean variance, for directions in which the attacker has seen too little


@dataclass(frozen=True)
class Attacker:
    """The mean of the attacker's own data, and a root of their covariance."""

    mean: Tensor
    root: Tensor

    @staticmethod
    def of(data: Tensor, noise: float = 0.0) -> Attacker:
        """From samples (N, ...). noise: the variance of known noise, as it were on a single sample."""
        flat = data.flatten(1).double()
        covariance = torch.cov(flat.T)
        more = RIDGE * float(covariance.diagonal().mean()) + noise
        return Attacker(
            flat.mean(0),
            torch.linalg.cholesky(
                covariance + more * torch.eye(flat.shape[1], dtype=torch.float64)
            ),
        )

    def scores(self, averages: Tensor, samples: Tensor, size: float) -> Tensor:
        """How likely each sample (N, ...) is in one of the averages (E, ...) of so many."""
        a, s = self._white(averages), self._white(samples)
        return (a.T @ s).amax(dim=0) - s.square().sum(0) / (2 * size)

    def _white(self, x: Tensor) -> Tensor:
        """Of unit covariance, a column each."""
        white: Tensor = torch.linalg.solve_triangular(
            self.root, (x.flatten(1).double() - self.mean).T, upper=False
        )
        return white


@dataclass(frozen=True)
class Seen:
    """Averages beside samples. psnr, ssim: of the nearest to each average, (E,); nearest, tracing: scores of samples, (N,)."""

    psnr: Tensor
    ssim: Tensor
    nearest: Tensor
    tracing: Tensor


@dataclass(frozen=True)
class Auc:
    """How often a member scores above an other, and the standard error of that if it were a guess."""

    value: float
    error: float


def seen(averages: Tensor, samples: Tensor, tracing: Tensor, peak: float = 1.0) -> Seen:
    """How averages (E, ...) and samples (N, ...) look side by side; tracing: the attacker's scores; peak: the largest value."""
    gaps = (
        torch.cdist(averages.flatten(1).double(), samples.flatten(1).double()).square()
        / averages[0].numel()
    )
    least, which = gaps.min(dim=1)
    similar = (
        ssim(averages, samples[which], peak).double()
        if averages.dim() == 4
        else torch.full_like(least, math.nan)
    )
    return Seen(psnr(least, peak), similar, -gaps.amin(dim=0), tracing)


def psnr(squares: Tensor, peak: float = 1.0) -> Tensor:
    """Of mean squared differences, in decibels.

    >>> psnr(torch.tensor([1.0, 0.01, 0.0])).tolist()
    [0.0, 20.0, 100.0]
    """
    return 10 * torch.log10(peak**2 / squares.clamp(min=FLOOR * peak**2))


def ssim(a: Tensor, b: Tensor, peak: float = 1.0) -> Tensor:
    """The structural similarity of images (B, C, H, W), pair by pair: the mean over all places of a Gaussian window."""
    window = _window(min(WINDOW, *a.shape[2:]), a)

    def local(x: Tensor) -> Tensor:
        return F.conv2d(x.flatten(0, 1).unsqueeze(1), window)

    mean_a, mean_b = local(a), local(b)
    var_a, var_b, both = (
        local(a * a) - mean_a**2,
        local(b * b) - mean_b**2,
        local(a * b) - mean_a * mean_b,
    )
    small, smaller = (0.01 * peak) ** 2, (0.03 * peak) ** 2
    light = (2 * mean_a * mean_b + small) / (mean_a**2 + mean_b**2 + small)
    shape = (2 * both + smaller) / (var_a + var_b + smaller)
    return (light * shape).flatten(1).mean(1).view(a.shape[:2]).mean(1)


def _window(side: int, like: Tensor) -> Tensor:
    bell = torch.exp(
        -((torch.arange(side, dtype=like.dtype) - (side - 1) / 2) ** 2) / (2 * BLUR**2)
    )
    bell = (bell / bell.sum()).to(like.device)
    return (bell[:, None] * bell).view(1, 1, side, side)


def auc(members: Tensor, others: Tensor) -> Auc:
    """By ranks; a tie counts half.

    >>> auc(torch.tensor([3.0, 2.0]), torch.tensor([1.0, 2.0])).value
    0.875
    """
    m, n = len(members), len(others)
    ordered = others.sort().values
    below = torch.searchsorted(ordered, members) + torch.searchsorted(ordered, members, right=True)
    return Auc(float(below.sum()) / (2 * m * n), math.sqrt((m + n + 1) / (12 * m * n)))


def spread(values: Sequence[Tensor]) -> dict[str, float]:
    """Mean and largest of the values of all clients."""
    every = torch.cat(list(values))
    return {"mean": float(every.mean()), "largest": float(every.max())}


def leak(pairs: Sequence[tuple[Seen, Seen]]) -> dict[str, object]:
    """The figures of all clients, each with members and others."""
    sides = {"members": [m for m, _ in pairs], "others": [o for _, o in pairs]}
    scores = {
        name: [torch.cat([getattr(s, name) for s in side]) for side in sides.values()]
        for name in ("nearest", "tracing")
    }
    return {
        "averages": sum(len(m.psnr) for m, _ in pairs),
        "samples": len(scores["nearest"][0]),
        "psnr": {side: spread([s.psnr for s in found]) for side, found in sides.items()},
        "ssim": {side: spread([s.ssim for s in found]) for side, found in sides.items()},
        "auc": {name: vars(auc(*both)) for name, both in scores.items()},
    }
