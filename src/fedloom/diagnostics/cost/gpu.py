"""How long a number of multiply-accumulates (MACs) takes on a class of GPU; an estimate.

    seconds = 2 MACs / (peak FLOP/s x SUSTAINED_SHARE)

The peaks are those of NVIDIA's data sheets, for float32 without tensor cores. The share of it that
training sustains is an assumption and was not measured here: large networks at large batch sizes
reach more, small networks at batch size 10 less, because they wait for the launch of kernels. So a
step is assumed to take at least STEP_SECONDS, which was not measured either. Give the rate of your
own machine where you know it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fedloom.core.errors import UserError, unknown_name

FLOPS_PER_MAC = 2
SUSTAINED_SHARE = 0.25
STEP_SECONDS = 0.002  # of Python and kernel launches, which no GPU makes faster
DEFAULT_GPU = "a100"
# TFLOP/s in float32. T4 (2018), V100 SXM2 (2017), A100 (2020), H100 SXM (2022).
PEAK_TFLOPS: Mapping[str, float] = MappingProxyType(
    {"t4": 8.1, "v100": 15.7, "a100": 19.5, "h100": 66.9}
)


def sustained_flops(gpu: str = DEFAULT_GPU, tflops: float | None = None) -> float:
    """FLOP/s that training is assumed to sustain. tflops: the user's own figure, used instead.

    >>> sustained_flops("v100") / 1e12
    3.925
    """
    if tflops is not None:
        if tflops <= 0:
            raise UserError(f"--tflops {tflops:g} must be above 0: the rate that training sustains")
        return tflops * 1e12
    if gpu not in PEAK_TFLOPS:
        raise unknown_name("GPU class", gpu, PEAK_TFLOPS)
    return PEAK_TFLOPS[gpu] * 1e12 * SUSTAINED_SHARE


def hours(macs: float, flops: float) -> float:
    """The hours that this number of multiply-accumulates takes at a rate of FLOP/s.

    >>> hours(1.8e15, 1e12)
    1.0
    """
    return FLOPS_PER_MAC * macs / flops / 3600


def training_hours(macs: float, steps: float, flops: float) -> float:
    """The hours of training: those of its MACs or those of its steps, whichever are more.

    >>> training_hours(1.8e15, 3600, 1e12), training_hours(0, 3_600_000, 1e12)
    (1.0, 2.0)
    """
    return max(hours(macs, flops), steps * STEP_SECONDS / 3600)
