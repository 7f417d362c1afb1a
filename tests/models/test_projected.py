"""The shortcut's convolution: the pixels first where channels are few, which is the same function and spares the process."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from fedloom.models.residual import Projected

STEPS = """
import torch
from fedloom.models.residual import Projected
torch.set_num_threads(1)
layer = Projected(4, 8, 2).to(memory_format=torch.channels_last)
x = torch.randn(8, 4, 28, 28).to(memory_format=torch.channels_last)
for _ in range(30):
    layer.zero_grad()
    layer(x).square().sum().backward()
    torch.zeros(99)
"""


@pytest.mark.parametrize("inputs", [1, 4, 7, 8, 12])
@pytest.mark.parametrize("size", [7, 8])
def test_it_is_a_convolution_with_a_stride(inputs: int, size: int) -> None:
    torch.manual_seed(inputs)
    ours, plain = Projected(inputs, 6, 2).double(), nn.Conv2d(inputs, 6, 1, 2, bias=False).double()
    plain.load_state_dict(ours.state_dict())
    x = torch.randn(3, inputs, size, size, dtype=torch.float64, requires_grad=True)
    wanted, found = (
        torch.autograd.grad(layer(x).sin().sum(), [x, layer.weight]) for layer in (plain, ours)
    )
    torch.testing.assert_close(ours(x), plain(x), rtol=0, atol=1e-12)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


def test_a_narrow_one_leaves_the_heap_whole() -> None:
    checked = {**os.environ, "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "7"}
    subprocess.run([sys.executable, "-c", STEPS], env=checked, check=True, timeout=120)
