"""Initial weights, shortcuts, and the error messages for inputs and arguments that do not fit."""

import math

import pytest
import torch
from torch import nn

from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.spec import Spec
from fedloom.models.registry import build
from fedloom.models.residual import PadShortcut

KEY = Key.root(0)


@pytest.mark.parametrize(
    ("spec", "shape", "message"),
    [
        (Spec("resnet65"), (3, 32, 32), "did you mean 'resnet56'?"),
        (
            Spec("lstm"),
            (3, 32, 32),
            r"takes text .* not samples of shape \(3, 32, 32\); choose mlp",
        ),
        (
            Spec("resnet8"),
            (80,),
            r"takes images .* not samples of shape \(80,\); choose mlp, or lstm",
        ),
        (Spec("lenet5"), (12, 1000), "takes images .* choose cnn1d for signals, or mlp"),
        (Spec("cnn"), (1, 8, 8, 8), "takes images .* choose cnn3d for volumes, or mlp"),
        (Spec("cnn1d"), (1, 8, 8, 8), "takes signals .* choose cnn3d for volumes, or mlp"),
        (Spec("cnn3d"), (3, 32, 32), "takes volumes .* choose mlp, lenet5 or a resnet"),
        (Spec("cnn3d"), (2, 3, 4, 5, 6), "takes volumes .* choose mlp$"),
        (Spec("vgg"), (3, 7, 32), "8x8 pixels or more, not 7x32"),
        (Spec("vgg9"), (3, 32, 7), "8x8 pixels or more, not 32x7"),
        (Spec("squeezenet"), (3, 4, 4), "8x8 pixels or more, not 4x4"),
        (Spec("cnn"), (1, 3, 3), "4x4 pixels or more, not 3x3"),
        (Spec("lenet5"), (1, 11, 28), "12x12 pixels or more, not 11x28"),
        (Spec("lenet5", {"padding": 0}), (1, 15, 28), "16x16 pixels or more, not 15x28"),
        (
            Spec("resnet", {"depth": 21}),
            (3, 32, 32),
            r"depth=21 with block 'basic' must be 6n \+ 2; the nearest is 20",
        ),
        (Spec("resnet", {"depth": 8, "block": "bottleneck"}), (3, 32, 32), "the nearest is 11"),
        (Spec("resnet8", {"groups": 3}), (3, 32, 32), "3 groups do not divide 16 channels"),
        (
            Spec("resnet8", {"norm": "layer"}),
            (3, 32, 32),
            "norm='layer' must be 'batch' or 'group'",
        ),
        (Spec("vgg", {"dropout": 1}), (3, 32, 32), "dropout=1 must be below 1"),
        (Spec("mlp", {"depth": 1}), (4,), "no parameter 'depth'"),
    ],
)
def test_errors_for_inputs_and_arguments(spec, shape, message):
    with pytest.raises(UserError, match=message):
        build(spec, shape, 10, KEY)


def test_zero_classes_are_rejected():
    with pytest.raises(UserError, match="at least one class, not 0"):
        build(Spec("mlp"), (4,), 0, KEY)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("lenet5", (1, 12, 12)),
        ("lenet5", (1, 28, 12)),
        ("cnn", (1, 4, 4)),
        ("vgg", (3, 8, 8)),
        ("squeezenet", (3, 8, 8)),
    ],
)
def test_the_smallest_image_is_accepted(name, shape):
    assert build(Spec(name), shape, 10, KEY, device="meta")(
        torch.empty(2, *shape, device="meta")
    ).shape == (2, 10)


@pytest.mark.parametrize("name", ["resnet32", "resnet56", "vgg9"])
def test_convolutions_are_initialised_by_he_fan_out(name):
    chain = build(Spec(name), (3, 32, 32), 10, KEY)
    large = [m for m in chain.modules() if isinstance(m, nn.Conv2d) and m.weight.numel() > 4000]
    assert large
    for layer in large:
        wanted = math.sqrt(2 / (layer.kernel_size[0] * layer.kernel_size[1] * layer.out_channels))
        assert layer.weight.std().item() == pytest.approx(wanted, rel=0.06)
        assert layer.bias is None or not layer.bias.any()


def test_only_fedafa_initialises_the_linear_layer_by_he():
    fedafa, fedalign = (
        build(Spec(n), (3, 32, 32), 100, KEY).get_submodule("head.fc")
        for n in ("resnet32", "resnet56")
    )
    assert fedafa.weight.std().item() == pytest.approx(math.sqrt(2 / 64), rel=0.05)
    assert not fedafa.bias.any()
    bound = 1 / math.sqrt(256)  # PyTorch's default: uniform within 1 / sqrt(fan-in)
    assert fedalign.weight.abs().max().item() <= bound


@pytest.mark.parametrize("name", ["resnet8", "resnet18"])
def test_pytorch_default_initialisation_where_the_paper_uses_it(name):
    first = build(Spec(name), (3, 32, 32), 10, KEY).get_submodule("layer1.0.body.conv1")
    bound = 1 / math.sqrt(9 * first.in_channels)
    assert 0.9 * bound < first.weight.abs().max().item() <= bound


def test_pad_shortcut_subsamples_pixels_and_adds_zero_channels():
    x = torch.arange(2 * 2 * 5 * 4, dtype=torch.float32).view(2, 2, 5, 4)
    y = PadShortcut(2, 6, 2, nn.BatchNorm2d)(x)
    assert y.shape == (2, 6, 3, 2)
    assert torch.equal(y[:, :2], nn.AvgPool2d(1, stride=2)(x))
    assert not y[:, 2:].any()


def test_pad_shortcut_rejects_widths_that_are_no_multiple():
    with pytest.raises(UserError, match="cannot widen 4 channels to 6"):
        PadShortcut(4, 6, 2, nn.BatchNorm2d)
