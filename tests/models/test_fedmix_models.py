"""The models of FedMix as in its appendix B: places of dropout, paddings of LeNet-5, the LSTM."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.core.spec import Spec
from fedloom.models.registry import build


def made(name: str, shape: tuple[int, ...], classes: int, **args: float) -> Chain:
    return build(Spec(name, args), shape, classes, Key.root(0))


def kinds(chain: Chain) -> str:
    """The layers in order, as letters: C convolution, P max-pool, D dropout, L linear."""
    letters = {nn.Conv2d: "C", nn.MaxPool2d: "P", nn.Dropout: "D", nn.Linear: "L"}
    return "".join(letters.get(type(layer), "") for layer in chain.modules())


def test_vgg_pools_after_every_second_convolution_and_has_dropout_in_three_places():
    chain = made("vgg", (3, 32, 32), 10)
    assert kinds(chain) == "CCPCCPDCCPDLLDL"
    assert [layer.p for layer in chain.modules() if isinstance(layer, nn.Dropout)] == [0.1] * 3
    convolutions = [layer for layer in chain.modules() if isinstance(layer, nn.Conv2d)]
    assert [c.out_channels for c in convolutions] == [32, 64, 128, 128, 256, 256]
    assert {(c.kernel_size, c.padding, c.bias is not None) for c in convolutions} == {
        ((3, 3), (1, 1), True)
    }
    linears = [
        (layer.in_features, layer.out_features)
        for layer in chain.modules()
        if isinstance(layer, nn.Linear)
    ]
    assert linears == [(4096, 512), (512, 512), (512, 10)]
    assert kinds(made("vgg", (3, 32, 32), 10, dropout=0.0)) == "CCPCCPCCPLLL"


def test_vgg_parameters_at_100_classes():
    parameters = sum(p.numel() for p in made("vgg", (3, 32, 32), 100).parameters())
    assert parameters == 3_491_530 + 90 * 513


@pytest.mark.parametrize(("padding", "inputs"), [(2, 400), (0, 256)])
def test_lenet5_with_either_padding_on_28_pixels_and_62_classes(padding, inputs):
    chain = made("lenet5", (1, 28, 28), 62, padding=padding)
    assert kinds(chain) == "CPCPLLL"
    linears = [
        (layer.in_features, layer.out_features)
        for layer in chain.modules()
        if isinstance(layer, nn.Linear)
    ]
    assert linears == [(inputs, 120), (120, 84), (84, 62)]
    assert chain(torch.zeros(2, 1, 28, 28)).shape == (2, 62)


def test_the_lstm_embeds_80_characters_in_8_dimensions_and_predicts_one_of_84():
    chain = made("lstm", (80,), 84)
    assert chain.names == ("embedding", "lstm1", "lstm2", "head")
    x = torch.arange(160).view(2, 80) % 84
    assert chain.run(x, until="embedding").shape == (2, 80, 8)
    assert chain(x).shape == (2, 84)
    layers = [layer for layer in chain.modules() if isinstance(layer, nn.LSTM)]
    assert [(layer.input_size, layer.hidden_size) for layer in layers] == [(8, 256), (256, 256)]


def test_the_lstm_uses_every_character_and_its_head_only_the_last_state():
    chain = made("lstm", (6,), 5, width=7).double().eval()
    x = torch.tensor([[0, 1, 2, 3, 4, 0]])
    for place in range(6):
        other = x.clone()
        other[0, place] = (x[0, place] + 1) % 5
        assert not torch.equal(chain(x), chain(other))
    assert torch.equal(chain(x), chain.run(chain.run(x, until="lstm2")[:, -1:], after="lstm2"))
