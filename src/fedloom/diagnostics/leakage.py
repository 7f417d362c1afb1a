"""What averages of data reveal about their samples, measured by two attacks on the averages alone.

The attacks compare samples that are in the averages (members) with as many samples of the same
classes that are not (others). With other classes, an attack that only recognises the class would
look like one that recognises the sample.

    nearest      For each average the closest sample: its PSNR and SSIM, among members and among
                 others. They are alike if the averages reveal nothing.
    membership   The AUC of membership inference, the probability that a member scores higher than
                 an other: 0.5 is guessing, 1 is certainty. The attack "nearest" scores a sample by
                 its distance to the closest average. The attack "tracing" uses the log-likelihood
                 ratio that an average a of M samples contains the sample s,

                     <a - m, s - m> - |s - m|^2 / 2M    in the metric of (S + M noise^2)^-1,

                 where m and S are the mean and covariance of data that the attacker has.

In an average of a hundred samples one cannot see any of them, but tracing still finds members:
faint differences add up over all pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

SSIM_WINDOW, SSIM_SIGMA = 11, 1.5  # pixels, as in Wang et al. 2004
MIN_MSE = 1e-10  # for a peak of 1; limits the PSNR to 100 dB, that of a copy
RIDGE = 0.03  # of the mean variance, for directions of which the attacker has seen too little


@dataclass(frozen=True)
class TracingAttacker:
    """The mean of the attacker's data, and the Cholesky factor of their covariance."""

    mean: Tensor
    root: Tensor

    @staticmethod
    def fit(data: Tensor, noise: float = 0.0) -> TracingAttacker:
        """Learn from samples (N, ...). noise: variance of the known noise, per single sample."""
        flat = data.flatten(1).double()
        covariance = torch.cov(flat.T)
        added_variance = RIDGE * float(covariance.diagonal().mean()) + noise
        identity = torch.eye(flat.shape[1], dtype=torch.float64)
        root = torch.linalg.cholesky(covariance + added_variance * identity)
        return TracingAttacker(flat.mean(0), root)

    def scores(self, averages: Tensor, samples: Tensor, size: float) -> Tensor:
        """For each sample (N, ...), the best score over averages (E, ...) of `size` samples."""
        a, s = self._whitened(averages), self._whitened(samples)
        return (a.T @ s).amax(dim=0) - s.square().sum(0) / (2 * size)

    def _whitened(self, x: Tensor) -> Tensor:
        """Centred and scaled to unit covariance, one column per sample."""
        whitened: Tensor = torch.linalg.solve_triangular(
            self.root, (x.flatten(1).double() - self.mean).T, upper=False
        )
        return whitened


@dataclass(frozen=True)
class AttackResult:
    """Both attacks on a set of samples, all members or all others.

    psnr, ssim: of the sample nearest to each average, (E,). nearest, tracing: the score of each
    sample by each attack, (N,).
    """

    psnr: Tensor
    ssim: Tensor
    nearest: Tensor
    tracing: Tensor


@dataclass(frozen=True)
class Auc:
    """The area under the ROC curve, and its standard error if the attack were guessing."""

    value: float
    error: float


def attack(averages: Tensor, samples: Tensor, tracing: Tensor, peak: float = 1.0) -> AttackResult:
    """Compare averages (E, ...) with samples (N, ...).

    tracing: the scores of a `TracingAttacker`. peak: the largest possible value. The SSIM is NaN
    for samples that are not images.
    """
    distances = torch.cdist(averages.flatten(1).double(), samples.flatten(1).double())
    mse = distances.square() / averages[0].numel()
    nearest_mse, nearest = mse.min(dim=1)
    if averages.dim() == 4:
        similarity = ssim(averages, samples[nearest], peak).double()
    else:
        similarity = torch.full_like(nearest_mse, math.nan)
    return AttackResult(psnr(nearest_mse, peak), similarity, -mse.amin(dim=0), tracing)


def psnr(mse: Tensor, peak: float = 1.0) -> Tensor:
    """The peak signal-to-noise ratio of mean squared errors, in decibels, at most 100.

    >>> psnr(torch.tensor([1.0, 0.01, 0.0])).tolist()
    [0.0, 20.0, 100.0]
    """
    return 10 * torch.log10(peak**2 / mse.clamp(min=MIN_MSE * peak**2))


def ssim(a: Tensor, b: Tensor, peak: float = 1.0) -> Tensor:
    """The structural similarity of images (B, C, H, W), pair by pair (Wang et al. 2004, eq. 13).

    The mean over all positions of a Gaussian window, and over channels.
    """
    window = _gaussian_window(min(SSIM_WINDOW, *a.shape[2:]), a)

    def local_mean(x: Tensor) -> Tensor:
        return F.conv2d(x.flatten(0, 1).unsqueeze(1), window)

    mean_a, mean_b = local_mean(a), local_mean(b)
    var_a = local_mean(a * a) - mean_a**2
    var_b = local_mean(b * b) - mean_b**2
    covariance = local_mean(a * b) - mean_a * mean_b
    c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
    luminance = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
    structure = (2 * covariance + c2) / (var_a + var_b + c2)
    return (luminance * structure).flatten(1).mean(1).view(a.shape[:2]).mean(1)


def _gaussian_window(side: int, like: Tensor) -> Tensor:
    offsets = torch.arange(side, dtype=like.dtype) - (side - 1) / 2
    bell = torch.exp(-(offsets**2) / (2 * SSIM_SIGMA**2))
    bell = (bell / bell.sum()).to(like.device)
    return (bell[:, None] * bell).view(1, 1, side, side)


def auc(members: Tensor, others: Tensor) -> Auc:
    """The AUC of scores, by ranks; a tie counts half.

    >>> auc(torch.tensor([3.0, 2.0]), torch.tensor([1.0, 2.0])).value
    0.875
    """
    m, n = len(members), len(others)
    ordered = others.sort().values
    below = torch.searchsorted(ordered, members) + torch.searchsorted(ordered, members, right=True)
    return Auc(float(below.sum()) / (2 * m * n), math.sqrt((m + n + 1) / (12 * m * n)))


def leakage_figures(results: Sequence[tuple[AttackResult, AttackResult]]) -> dict[str, object]:
    """Counts, PSNR, SSIM and AUC over all clients. results: per client of members and of others."""
    members = _pooled([m for m, _ in results])
    others = _pooled([o for _, o in results])
    return {
        "averages": len(members.psnr),
        "samples": len(members.nearest),
        "psnr": {"members": _spread(members.psnr), "others": _spread(others.psnr)},
        "ssim": {"members": _spread(members.ssim), "others": _spread(others.ssim)},
        "auc": {
            "nearest": vars(auc(members.nearest, others.nearest)),
            "tracing": vars(auc(members.tracing, others.tracing)),
        },
    }


def _pooled(results: Sequence[AttackResult]) -> AttackResult:
    """The results of all clients as one."""
    return AttackResult(
        psnr=torch.cat([r.psnr for r in results]),
        ssim=torch.cat([r.ssim for r in results]),
        nearest=torch.cat([r.nearest for r in results]),
        tracing=torch.cat([r.tracing for r in results]),
    )


def _spread(values: Tensor) -> dict[str, float]:
    return {"mean": float(values.mean()), "largest": float(values.max())}
