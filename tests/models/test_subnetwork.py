"""A sub-network equals the full model with its other channels set to zero, and changes only its
slices of the weights."""

import copy
import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fedloom.core import chain_from_module
from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.spec import Spec
from fedloom.models.registry import build
from fedloom.models.subnetwork import SubNetworks
from fedloom.models.width_tracing import slimmed_channels

CLASSES = 20


class Sides(nn.Module):
    """Two concatenated branches: the kept features are not simply the first channels."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Sequential(nn.Conv2d(16, 24, 1), nn.BatchNorm2d(24), nn.Sigmoid())
        self.other = nn.Sequential(nn.Conv2d(16, 40, 3, padding=1), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.one(x), self.other(x)], dim=1)


class UserModel(nn.Module):
    """A user's model."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn, self.conv2 = (
            nn.Conv2d(3, 16, 3),
            nn.BatchNorm2d(16),
            nn.Conv2d(16, 32, 3, stride=2),
        )
        self.fc1, self.fc2 = nn.Linear(32 * 9, 40), nn.Linear(40, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv2(torch.relu(self.bn(self.conv1(x))))
        return self.fc2(torch.relu(self.fc1(torch.flatten(torch.relu(h), 1))))


def registered(name: str, **args: object) -> Callable[[], Chain]:
    shape = (7,) if name == "lstm" else (3, 16, 16)
    return lambda: build(Spec(name, args), shape, CLASSES, Key.root(3), dtype=torch.float64)


def concatenated_branches() -> Chain:
    head = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64 * 4, CLASSES))
    return Chain(
        {"stem": nn.Conv2d(3, 16, 3), "sides": Sides(), "last": nn.Conv2d(64, 64, 1), "head": head}
    ).double()


MODELS = {
    "mlp": registered("mlp", width=40),
    "lenet5": registered("lenet5"),
    "cnn": registered("cnn"),
    "resnet20, padded shortcuts": registered("resnet20"),
    "resnet56 of 29 layers": registered(
        "resnet", depth=29, block="bottleneck", shortcut="projection"
    ),
    "lstm": registered("lstm", width=24),
    "concatenated branches": concatenated_branches,
    "user-defined": lambda: chain_from_module.cut(UserModel().double(), at=["bn", "fc1"]),
}
every_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
every_width = pytest.mark.parametrize("width", [0.25, 0.5, 0.8, 0.93])


def sample(chain: Chain, count: int = 3) -> Tensor:
    draws = torch.Generator().manual_seed(1)
    if isinstance(chain.block(chain.names[0]), nn.Embedding):
        return torch.randint(CLASSES, (count, 7), generator=draws)
    side = 10 if "bn" in chain.names else 16
    return torch.randn(count, 3, side, side, generator=draws, dtype=torch.float64)


def rows(layer: nn.Module, width: float) -> dict[str, Tensor]:
    """A mask of the rows of each weight that are kept; for an embedding, of its columns."""
    if isinstance(layer, nn.LSTM):
        stay = torch.arange(layer.hidden_size) < slimmed_channels(layer.hidden_size, width)
        return {n: stay.repeat(4) for n, _ in layer.named_parameters()}
    if isinstance(layer, nn.Embedding):
        return {
            "weight": torch.arange(layer.embedding_dim)
            < slimmed_channels(layer.embedding_dim, width)
        }
    return {
        n: torch.arange(len(p)) < slimmed_channels(len(p), width)
        for n, p in layer.named_parameters(recurse=False)
    }


def with_zeroed_channels(chain: Chain, width: float) -> Chain:
    """The full model with zero weights for the dropped channels, so that they output zero."""
    full = copy.deepcopy(chain)
    layers = [layer for _, layer in full.layers()]
    with torch.no_grad():
        for layer in layers[:-1]:
            for name, stay in rows(layer, width).items():
                weight = layer.get_parameter(name)
                weight *= (
                    stay
                    if isinstance(layer, nn.Embedding)
                    else stay.view(-1, *[1] * (weight.dim() - 1))
                )
    return full


@every_model
@every_width
def test_equals_the_full_model_with_zeroed_channels(
    make: Callable[[], Chain], width: float
) -> None:
    chain = make()
    x = sample(chain)
    expected = with_zeroed_channels(chain, width)
    if "sides" in chain.names:  # sigmoid(0) is not 0, so the next layer must ignore it
        kept = slimmed_channels(24, width)
        with torch.no_grad():
            expected.get_parameter("last.weight")[:, kept:24] = 0
    torch.testing.assert_close(
        SubNetworks()(chain, x, width).run(x), expected(x), rtol=0, atol=1e-11
    )


@every_model
def test_full_width_equals_the_chain_bit_for_bit(make: Callable[[], Chain]) -> None:
    chain = make()
    x = sample(chain)
    assert torch.equal(SubNetworks()(chain, x, 1.0).run(x), chain(x))


@every_model
def test_gradients_reach_the_slices_only_and_no_state_changes(
    make: Callable[[], Chain],
) -> None:
    chain, width = make(), 0.5
    before = {n: t.clone() for n, t in chain.state_dict().items()}
    x = sample(chain)
    SubNetworks()(chain, x, width).run(x).square().sum().backward()
    for number, (name, layer) in enumerate(layers := list(chain.layers())):
        for weight, stay in rows(layer, 1.0 if number == len(layers) - 1 else width).items():
            grad = layer.get_parameter(weight).grad.movedim(
                -1 if isinstance(layer, nn.Embedding) else 0, 0
            )
            assert grad[stay].any(), name
            assert not grad[~stay].any(), name
    assert all(torch.equal(t, before[n]) for n, t in chain.state_dict().items())


def test_a_part_of_it_starts_from_the_kept_features() -> None:
    chain = concatenated_branches()
    x = sample(chain)
    slim, taps = SubNetworks()(chain, x, 0.5), with_zeroed_channels(chain, 0.5).taps(x)
    assert slim.kept_of(taps["sides"], "sides").shape[1] == slimmed_channels(
        24, 0.5
    ) + slimmed_channels(40, 0.5)
    whole = slim.run(slim.run(x, until="sides"), after="sides")
    torch.testing.assert_close(slim.run(slim.kept_of(taps["sides"], "sides"), after="sides"), whole)


def test_weights_are_read_at_every_run() -> None:
    chain, narrow = registered("resnet20")(), SubNetworks()
    x = sample(chain)
    first = narrow(chain, x, 0.5).run(x)
    with torch.no_grad():
        chain.get_parameter("stem.conv.weight").mul_(-1)
    again = narrow(chain, x, 0.5)
    assert again is narrow(chain, x, 0.5)
    assert not torch.allclose(again.run(x), first)
    torch.testing.assert_close(again.run(x), SubNetworks()(chain, x, 0.5).run(x))


def test_chains_are_held_weakly() -> None:
    narrow, chain = SubNetworks(), registered("mlp")()
    narrow(chain, sample(chain), 0.5)
    held = weakref.ref(chain)
    del chain
    gc.collect()
    assert held() is None


def test_tracing_draws_no_random_numbers() -> None:
    chain = registered("vgg", dropout=0.5)()
    x = sample(chain)
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    SubNetworks()(chain, x, 0.5)
    assert torch.equal(torch.random.get_rng_state(), before)


@given(count=st.integers(1, 600), width=st.floats(0.01, 1.0))
def test_number_of_kept_channels(count: int, width: float) -> None:
    kept = slimmed_channels(count, width)
    assert 1 <= kept <= count
    assert kept >= min(count, 0.9 * count * width) or count < 16


REJECTED = {
    "groups": (
        registered("mobilenetv2"),
        0.5,
        "layer 'stage1.0.3' is a convolution in 32 groups, which cannot be slimmed",
    ),
    "group norm": (
        registered("resnet20", norm="group", groups=16),
        0.5,
        "layer 'stem.norm' has 16 groups, which do not divide the 8 of 16 channels that are kept",
    ),
    "unknown": (
        lambda: Chain(
            {"a": nn.Linear(16, 32), "b": nn.LayerNorm(32), "head": nn.Linear(32, CLASSES)}
        ).double(),
        0.5,
        "layer 'b' is a LayerNorm, which cannot be slimmed",
    ),
}


@pytest.mark.parametrize(("make", "width", "reason"), REJECTED.values(), ids=REJECTED)
def test_layers_that_cannot_be_slimmed_are_rejected(
    make: Callable[[], Chain], width: float, reason: str
) -> None:
    chain = make()
    with pytest.raises(UserError) as error:
        SubNetworks()(chain, torch.zeros(2, 3, 16, 16, dtype=torch.float64), width)
    remedy = "choose a model without such layers, for example a resnet or vgg9"
    assert str(error.value) == f"model at width {width:g}: {reason}; {remedy}"


class Mean(nn.Module):
    """Subtracts the mean over channels, which mixes all of them."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(1, keepdim=True)


def test_a_layer_that_mixes_channels_is_rejected() -> None:
    chain = Chain({"a": nn.Linear(16, 32), "mean": Mean(), "head": nn.Linear(32, CLASSES)})
    with pytest.raises(UserError, match=r"does not run at width 0\.5 \(.*mixes channels"):
        SubNetworks()(chain, torch.zeros(2, 16), 0.5)


def test_channels_of_signals_come_before_the_positions_also_if_all_are_kept() -> None:
    """Features (batch, channels, positions) of a convolution look like those of text."""
    chain = Chain(
        {
            "conv": nn.Conv1d(2, 16, 3, padding=1),  # 16 channels keep all of them at width 0.8
            "pool": nn.MaxPool1d(2),
            "head": nn.Sequential(nn.Flatten(), nn.Linear(64, 3)),
        }
    )
    slim = SubNetworks()(chain, torch.zeros(2, 2, 8), 0.8)
    assert slim.channels["conv"] == slim.channels["pool"] == (1, None)
    text = build(Spec("lstm", {"width": 16}), (6,), 5, Key.root(0))
    slim = SubNetworks()(text, torch.zeros(2, 6, dtype=torch.int64), 0.8)
    assert slim.channels["lstm1"] == (2, None)
