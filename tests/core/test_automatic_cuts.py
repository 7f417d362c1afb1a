"""Where models are cut if nobody says where; the chain computes what the model computes."""

from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedloom.core.automatic_cuts import MOST_BLOCKS, automatic_cuts
from fedloom.core.chain import Chain
from fedloom.core.chain_from_module import cut
from fedloom.core.errors import UserError


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs))
        self.side = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.side(x))


class ResNet(nn.Module):
    """As torchvision writes one."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(2)
        self.layer1 = nn.Sequential(Residual(4, 4), Residual(4, 4))
        self.layer2 = nn.Sequential(Residual(4, 6), Residual(6, 6))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(self.avgpool(self.layer2(self.layer1(x))), 1))


class Attention(nn.Module):
    """An encoder layer, with a ModuleList of its own, which is not to be cut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.ModuleList([nn.Linear(width, width), nn.Linear(width, width)])

    def forward(self, h: Tensor) -> tuple[Tensor, None]:
        scores = self.mix[0](h) @ h.transpose(1, 2)
        return h + self.mix[1](scores.softmax(-1) @ h), None


class Encoder(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layer = nn.ModuleList([Attention(width) for _ in range(layers)])

    def forward(self, h: Tensor) -> Tensor:
        for layer in self.layer:
            h = layer(h)[0]
        return h


class Transformer(nn.Module):
    """Takes token ids, returns a dictionary, and computes positions from the length of a text."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(11, 4), nn.Embedding(16, 4)
        self.encoder, self.drop, self.classifier = Encoder(4, layers), nn.Dropout(), nn.Linear(4, 3)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        h = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        h = self.encoder(h if mask is None else h * mask)
        return {"hidden": h, "logits": self.classifier(self.drop(h[:, 0]))}


class Masked(Transformer):
    """The mask is used in all layers, so more than one tensor would cross a cut."""

    def forward(self, ids: Tensor) -> Any:  # type: ignore[override]
        mask = (ids != 0).unsqueeze(2)
        h = self.words(ids)
        for layer in self.encoder.layer:
            h = layer(h)[0] * mask
        return self.classifier(h[:, 0])


class Around(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Any:
        return self.net(x)


IMAGES = torch.linspace(-2, 2, 2 * 3 * 8 * 8).sin().view(2, 3, 8, 8)
TEXTS = torch.arange(14).view(2, 7) % 11
LINE = nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 4), nn.Linear(4, 5)


@pytest.mark.parametrize(
    ("model", "example", "places"),
    [
        (nn.Sequential(*LINE), IMAGES, ["2", "3"]),
        (Around(nn.Sequential(*LINE)), IMAGES, ["net.2", "net.3"]),
        (ResNet(), IMAGES, ["maxpool", "layer1", "avgpool"]),
        (Around(Around(ResNet())), IMAGES, ["net.net.maxpool", "net.net.layer1",
                                            "net.net.avgpool"]),
        (Transformer(2), TEXTS, ["encoder.layer.0", "drop"]),
        (Around(Transformer(3)), TEXTS, [f"net.encoder.layer.{n}" for n in (0, 1)] + ["net.drop"]),
    ],
)  # fmt: skip
def test_places_and_bits(model: nn.Module, example: Tensor, places: list[str]) -> None:
    assert automatic_cuts(model) == places
    chain = cut(model, example=example)  # compares outputs and buffers in both modes
    assert chain.names == (*(place.replace(".", "_") for place in places), "head")
    assert all(isinstance(tap, Tensor) for tap in chain.taps(example).values())
    assert chain(example[:1, ..., :5]).shape[0] == 1 if example is TEXTS else True


def test_a_deep_stack_becomes_few_blocks() -> None:
    names = cut(Transformer(12), example=TEXTS).names
    assert len(names) == MOST_BLOCKS
    assert names == ("encoder_layer_0", "encoder_layer_2", "encoder_layer_5", "encoder_layer_8",
                     "drop", "head")  # fmt: skip


@pytest.mark.parametrize("model", [nn.Linear(4, 2), Masked(2), nn.Sequential(nn.Linear(4, 2))])
def test_no_place_to_cut(model: nn.Module) -> None:
    assert automatic_cuts(model) == []
    with pytest.raises(UserError, match=r"no place .* write it as fedloom\.Chain"):
        cut(model)


def linear_layers(**names: nn.Module) -> nn.Sequential:
    return nn.Sequential(OrderedDict(names))


def test_a_module_with_a_name_that_a_chain_uses_itself() -> None:
    net = linear_layers(layers=nn.Linear(4, 3), names=nn.Linear(3, 3), out=nn.Linear(3, 2))
    chain = cut(net, example=torch.ones(2, 4))
    assert chain.names == ("layers_", "names_", "head")


def test_a_module_called_head_that_is_not_the_last() -> None:
    net = linear_layers(head=nn.Linear(4, 3), middle=nn.Linear(3, 3), out=nn.Linear(3, 2))
    assert cut(net, example=torch.ones(2, 4)).names == ("middle", "head")


def test_no_cut_between_layers_that_share_weights() -> None:
    a, b, c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
    c.weight = b.weight
    assert automatic_cuts(nn.Sequential(a, b, c, nn.Linear(4, 2))) == ["0", "2"]
    assert automatic_cuts(nn.Sequential(a, b, a, b)) == []
    assert cut(nn.Sequential(a, b, c), example=torch.ones(2, 4)).names == ("0", "head")


class WorksInPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(4, 4) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.a(x), inplace=True)
        x = self.b(x).relu_()
        return self.d(self.c(x).relu())


def test_no_cut_before_a_function_that_overwrites_its_input() -> None:
    assert automatic_cuts(WorksInPlace()) == ["c"]
    assert cut(WorksInPlace(), example=torch.ones(2, 4)).names == ("c", "head")


def test_a_chain_of_several_blocks_is_left_alone() -> None:
    chain = Chain({"body": nn.Linear(4, 3), "head": nn.Linear(3, 2)})
    assert cut(chain) is chain
    assert cut(Chain({"model": nn.Sequential(*LINE)})).names == ("2", "3", "head")
