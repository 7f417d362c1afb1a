"""The convolution of projection shortcuts: with few channels it subsamples first, which gives the
same function and avoids a crash in oneDNN."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from fedloom.models.residual import ShortcutConv

STEPS = """
import torch
from fedloom.models.residual import ShortcutConv
torch.set_num_threads(1)
layer = ShortcutConv(4, 8, 2).to(memory_format=torch.channels_last)
x = torch.randn(8, 4, 28, 28).to(memory_format=torch.channels_last)
for _ in range(30):
    layer.zero_grad()
    layer(x).square().sum().backward()
    torch.zeros(99)
"""


@pytest.mark.parametrize("inputs", [1, 4, 7, 8, 12])
@pytest.mark.parametrize("size", [7, 8])
def test_it_equals_a_strided_convolution(inputs: int, size: int) -> None:
    torch.manual_seed(inputs)
    ours, plain = (
        ShortcutConv(inputs, 6, 2).double(),
        nn.Conv2d(inputs, 6, 1, 2, bias=False).double(),
    )
    plain.load_state_dict(ours.state_dict())
    x = torch.randn(3, inputs, size, size, dtype=torch.float64, requires_grad=True)
    expected, actual = (
        torch.autograd.grad(layer(x).sin().sum(), [x, layer.weight]) for layer in (plain, ours)
    )
    torch.testing.assert_close(ours(x), plain(x), rtol=0, atol=1e-12)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


def test_few_channels_do_not_corrupt_the_heap() -> None:
    malloc_checks = {**os.environ, "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "7"}
    subprocess.run([sys.executable, "-c", STEPS], env=malloc_checks, check=True, timeout=120)
