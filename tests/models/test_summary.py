"""Parameters, blocks, output shapes and MACs against counts by hand and from the papers' code."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.core.spec import Spec
from fedloom.models.registry import build
from fedloom.models.summary import Summary, rough_macs, summary

IMAGENET = {"stem": "imagenet", "norm": "batch", "init": "he"}


def counted(name: str, args: dict, shape: tuple[int, ...], classes: int) -> Summary:
    return summary(build(Spec(name, args), shape, classes, Key.root(0), device="meta"), shape)


@pytest.mark.parametrize(
    ("name", "args", "shape", "classes", "parameters"),
    [
        ("resnet56", {}, (3, 32, 32), 100, 614_452),
        ("resnet56", {}, (3, 32, 32), 10, 591_322),
        ("resnet18", {}, (3, 32, 32), 100, 11_220_132),
        ("resnet18", IMAGENET, (3, 224, 224), 200, 11_279_112),
        ("resnet32", {}, (3, 32, 32), 10, 464_154),
        ("resnet32", {}, (3, 32, 32), 100, 470_004),
        ("resnet20", {}, (3, 32, 32), 10, 269_722),
        ("resnet", {"depth": 110}, (3, 32, 32), 10, 1_727_962),
        ("vgg", {}, (3, 32, 32), 10, 3_491_530),
        ("vgg9", {}, (3, 32, 32), 10, 3_491_530 + 2 * (32 + 64 + 128 + 128 + 256 + 256)),
        ("cnn", {}, (1, 28, 28), 10, 1_663_370),
        ("lenet5", {}, (1, 28, 28), 10, 61_706),
        ("lenet5", {"padding": 0}, (3, 32, 32), 10, 62_006),
        ("mlp", {}, (1, 28, 28), 10, 199_210),
        ("mlp", {"layers": 1, "width": 64}, (1, 28, 28), 10, 784 * 64 + 64 + 64 * 10 + 10),
        (
            "lstm",
            {},
            (80,),
            84,
            84 * 8 + 4 * 256 * (8 + 256 + 2) + 4 * 256 * (256 + 256 + 2) + 256 * 84 + 84,
        ),
    ],
)
def test_parameters_as_published(name, args, shape, classes, parameters):
    assert counted(name, args, shape, classes).parameters == parameters


def test_resnet8_parameters_by_hand():
    convolutions = (
        9 * (3 * 16 + 2 * 16 * 16 + 16 * 32 + 32 * 32 + 32 * 64 + 64 * 64) + 16 * 32 + 32 * 64
    )
    norms = 2 * (16 + 2 * 16 + 3 * 32 + 3 * 64)
    assert (
        counted("resnet8", {}, (3, 32, 32), 10).parameters == convolutions + norms + 650 == 78_042
    )


def conv(inputs: int, outputs: int, size: int, groups: int = 1) -> int:
    """Weights and bias of a convolution, and scale and shift of the norm after it."""
    return inputs * outputs * size * size // groups + outputs + 2 * outputs


def test_mobilenet_by_hand():
    def bottleneck(i, o, t):
        return conv(i, i * t, 1) + conv(i * t, i * t, 3, i * t) + conv(i * t, o, 1)

    stages = [(16, 24, 2), (24, 32, 3), (32, 64, 4), (64, 96, 3), (96, 160, 3), (160, 320, 1)]
    body = sum(bottleneck(i, o, 6) + (n - 1) * bottleneck(o, o, 6) for i, o, n in stages)
    expected = conv(3, 32, 1) + bottleneck(32, 16, 1) + body + conv(320, 1280, 1) + 1280 * 100 + 100
    assert counted("mobilenetv2", {}, (3, 32, 32), 100).parameters == expected


def test_shufflenet_by_hand():
    def unit(i, o, inner):
        return conv(i, inner, 1, 3) + conv(inner, inner, 3, inner) + conv(inner, o, 1, 3)

    stages = [(24, 240, 4), (240, 480, 8), (480, 960, 4)]
    body = sum(unit(i, o - i, o // 4) + (n - 1) * unit(o, o, o // 4) for i, o, n in stages)
    assert (
        counted("shufflenet", {}, (3, 32, 32), 100).parameters
        == conv(3, 24, 3) + body + 960 * 100 + 100
    )


def test_squeezenet_by_hand():
    def fire(i, o, inner):
        return conv(i, inner, 1) + conv(inner, o // 2, 1) + conv(inner, o // 2, 3)

    widths = [96, 128, 128, 256, 256, 384, 384, 512, 512]
    squeezed = [16, 16, 32, 32, 48, 48, 64, 64]
    body = sum(fire(i, o, s) for i, o, s in zip(widths, widths[1:], squeezed, strict=False))
    assert (
        counted("squeezenet", {}, (3, 32, 32), 100).parameters
        == conv(3, 96, 3) + body + 512 * 100 + 100
    )


@pytest.mark.parametrize(
    ("name", "pathways"),
    [("resnet18", 5), ("vgg9", 6), ("mobilenetv2", 7), ("shufflenet", 4), ("squeezenet", 8)],
)
def test_number_of_blocks_before_the_head_where_fedmlb_branches(name, pathways):
    assert len(counted(name, {}, (3, 32, 32), 10).blocks) - 1 == pathways


@pytest.mark.parametrize(
    ("name", "shape", "taps"),
    [
        (
            "resnet18",
            (3, 32, 32),
            [(64, 32, 32), (64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4), (10,)],
        ),
        ("resnet56", (3, 32, 32), [(16, 32, 32), (64, 32, 32), (128, 16, 16), (256, 8, 8), (10,)]),
        ("resnet32", (3, 32, 32), [(16, 32, 32), (16, 32, 32), (32, 16, 16), (64, 8, 8), (10,)]),
        (
            "vgg9",
            (3, 32, 32),
            [
                (32, 32, 32),
                (64, 16, 16),
                (128, 16, 16),
                (128, 8, 8),
                (256, 8, 8),
                (256, 4, 4),
                (10,),
            ],
        ),
        ("shufflenet", (3, 32, 32), [(24, 32, 32), (240, 16, 16), (480, 8, 8), (960, 4, 4), (10,)]),
        (
            "mobilenetv2",  # the padding of the 1x1 stem widens the image
            (3, 32, 32),
            [
                (32, 34, 34),
                (16, 34, 34),
                (24, 17, 17),
                (32, 9, 9),
                (64, 5, 5),
                (96, 5, 5),
                (160, 5, 5),
                (10,),
            ],
        ),
        ("lstm", (7,), [(7, 8), (7, 256), (7, 256), (10,)]),
    ],
)
def test_output_shapes_of_the_blocks(name, shape, taps):
    assert [block.output for block in counted(name, {}, shape, 10).blocks] == taps


@pytest.mark.parametrize(
    ("name", "args", "shape", "classes", "macs"),
    [
        ("resnet56", {}, (3, 32, 32), 100, 87_237_632),
        ("lstm", {}, (80,), 84, 80 * 4 * 256 * (8 + 256) + 80 * 4 * 256 * (256 + 256) + 256 * 84),
        (
            "lenet5",
            {},
            (1, 28, 28),
            10,
            28 * 28 * 6 * 25 + 100 * 16 * 150 + 400 * 120 + 120 * 84 + 840,
        ),
    ],
)
def test_multiply_accumulates(name, args, shape, classes, macs):
    assert counted(name, args, shape, classes).macs == macs


def test_small_cnns_by_hand():
    signals = counted("cnn1d", {"width": 4}, (3, 21), 5)
    # lengths 21, 11 and 6; kernels 7, 5 and 3; no biases before norms
    assert [block.macs for block in signals.blocks] == [
        3 * 4 * 7 * 21,
        4 * 8 * 5 * 11,
        8 * 16 * 3 * 6,
        16 * 5,
    ]
    assert signals.parameters == 3 * 4 * 7 + 4 * 8 * 5 + 8 * 16 * 3 + 2 * (4 + 8 + 16) + 16 * 5 + 5
    volumes = counted("cnn3d", {"width": 4}, (2, 5, 8, 12), 5)
    # sides 5x8x12, 3x4x6 and 2x2x3
    assert [block.macs for block in volumes.blocks] == [
        2 * 4 * 27 * 5 * 8 * 12,
        4 * 8 * 27 * 3 * 4 * 6,
        8 * 16 * 27 * 2 * 2 * 3,
        16 * 5,
    ]
    assert volumes.parameters == 27 * (2 * 4 + 4 * 8 + 8 * 16) + 2 * (4 + 8 + 16) + 16 * 5 + 5


def test_resnet18_macs_are_those_of_the_papers():
    by_block = {
        block.name: round(block.macs / 1e6)
        for block in counted("resnet18", {}, (3, 32, 32), 100).blocks
    }
    assert by_block == {
        "stem": 2,
        "layer1": 151,
        "layer2": 134,
        "layer3": 134,
        "layer4": 134,
        "head": 0,
    }
    assert round(counted("resnet18", IMAGENET, (3, 224, 224), 200).macs / 1e9, 4) == 1.8137


@given(
    features=st.integers(1, 40),
    width=st.integers(1, 30),
    layers=st.integers(0, 4),
    classes=st.integers(1, 9),
    seed=st.integers(0),
)
def test_a_linear_layer_has_a_weight_for_each_product(features, width, layers, classes, seed):
    chain = build(
        Spec("mlp", {"width": width, "layers": layers}), (features,), classes, Key.root(seed)
    )
    counts = summary(chain, (features,))
    assert counts.parameters == sum(p.numel() for p in chain.parameters())
    assert counts.macs == counts.parameters - layers * width - classes


def test_the_summary_does_not_change_the_model():
    chain = build(Spec("resnet8", {"norm": "batch"}), (3, 8, 8), 10, Key.root(0))
    before = {n: t.clone() for n, t in chain.state_dict().items()}
    summary(chain, (3, 8, 8))
    assert chain.training
    assert all(
        t.device.type == "cpu" and (t == before[n]).all() for n, t in chain.state_dict().items()
    )


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("lenet5", (1, 28, 28)),
        ("resnet8", (3, 16, 16)),
        ("mlp", (1, 28, 28)),
        ("lstm", (20,)),
        ("cnn1d", (3, 21)),
        ("cnn3d", (2, 5, 8, 12)),
    ],
)
def test_the_rough_count_is_exact_for_layers_without_groups(name, shape):
    chain = build(Spec(name), shape, 10, Key.root(0))
    x = torch.zeros(1, *shape, dtype=torch.int64 if name == "lstm" else torch.float32)
    assert rough_macs(chain, x) == summary(chain, shape).macs
    assert chain.training


class Temperature(nn.Module):
    """Holds a weight itself, and returns a tensor of no dimension."""

    def __init__(self):
        super().__init__()
        self.log = nn.Parameter(torch.zeros(()))

    def forward(self):
        return self.log.exp()


class Patches(nn.Module):
    """Holds a weight itself, numbers the positions by an embedding, and returns no tensor."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.first, self.temperature = (
            kind,
            nn.Parameter(torch.ones(1, 8)),
            Temperature(),
        )
        self.patch, self.position = nn.Conv2d(3, 8, 4, 4), nn.Embedding(4, 8)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        h = self.patch(x).flatten(2).transpose(1, 2) + self.position.weight
        logits = self.head(h.mean(1) * self.first) * self.temperature()
        return self.kind(logits=logits)


@pytest.mark.parametrize("kind", [dict, SimpleNamespace, lambda logits: (None, [], logits)])
def test_the_rough_count_takes_whatever_a_layer_returns(kind):
    """It is made for every run with engine=auto, and failed for models such as these."""
    of_layers = 4 * 8 * 3 * 4 * 4 + 8 * 10  # the patches, then the classifier
    of_own_weight = 8  # held by the model itself, which returns one row
    assert rough_macs(Chain({"model": Patches(kind)}), torch.zeros(1, 3, 8, 8)) == (
        of_layers + of_own_weight
    )
