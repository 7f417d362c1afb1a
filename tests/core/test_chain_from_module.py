"""Any torch model as a chain: valid cuts give the same bits, others are rejected."""

import random
from collections import OrderedDict
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedloom.core import chain_from_module
from fedloom.core.chain import Chain
from fedloom.core.errors import UserError


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm = nn.BatchNorm2d(outputs)
        self.side = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x)) + self.side(x))


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True))
        self.stage1 = nn.Sequential(Block(4, 4), Block(4, 6))
        self.stage2 = Block(6, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.stage2(self.stage1(self.first(x)))


class Net(nn.Module):
    """Nested, with functions between layers, a direct parameter and an input with a default."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Body()
        self.scale = nn.Parameter(torch.full((8,), 0.5))
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.body(x)
        x = F.adaptive_avg_pool2d(x, 1).view(x.size(0), -1)
        x = x if mask is None else x * mask
        return self.fc(self.drop(x * self.scale))


@pytest.fixture
def net() -> Net:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return Net()


X = torch.linspace(-2, 2, 4 * 3 * 8 * 8).sin().view(4, 3, 8, 8)
CUTS = ["body.first", "body.stage1.0", "body.stage1", "body", "drop"]


def test_without_cuts_it_is_one_block(net):
    chain = chain_from_module.cut(net, at=[])
    assert chain.names == ("model",)
    assert chain.block("model") is net
    assert chain_from_module.cut(chain, at=[]) is chain


@pytest.mark.parametrize("cuts", [[cut] for cut in CUTS] + [CUTS, CUTS[::-1]])
def test_same_bits_as_the_model_in_both_modes(net, cuts):
    state = {n: t.clone() for n, t in net.state_dict().items()}
    draws = torch.get_rng_state()
    chain = chain_from_module.cut(net, cuts, example=X)
    assert chain.names == (*(c.replace(".", "_") for c in CUTS if c in cuts), "head")
    assert torch.equal(torch.get_rng_state(), draws)
    assert all(torch.equal(t, state[n]) for n, t in net.state_dict().items())
    assert torch.equal(chain.eval()(X), net.eval()(X))


def test_taps_are_the_outputs_of_the_modules(net):
    seen = {}
    for cut in CUTS:
        net.get_submodule(cut).register_forward_hook(
            lambda _m, _x, y, cut=cut: seen.update({cut: y})
        )
    net.eval()(X)
    expected = dict(seen)
    taps = chain_from_module.cut(net, CUTS).taps(X)
    assert all(torch.equal(taps[cut.replace(".", "_")], y) for cut, y in expected.items())


def test_the_chain_shares_the_models_tensors_and_names(net):
    chain = chain_from_module.cut(net, ["body.stage1"])
    own = dict(net.named_parameters())
    found = dict(chain.named_parameters())
    assert {n.split(".", 1)[1] for n in found} == set(own)
    assert all(p is own[n.split(".", 1)[1]] for n, p in found.items())
    F.cross_entropy(chain(X), torch.arange(4)).backward()
    torch.optim.SGD(chain.parameters(), lr=0.5).step()
    assert torch.equal(chain.eval()(X), net.eval()(X))


def test_modes_of_single_layers_are_restored(net):
    net.body.stage2.norm.eval()
    modes = [m.training for m in net.modules()]
    chain_from_module.cut(net, ["body"], example=X)
    assert [m.training for m in net.modules()] == modes


def rejects(model: nn.Module, cuts: list[str], *parts: str, example: Tensor | None = None) -> None:
    with pytest.raises(UserError) as caught:
        chain_from_module.cut(model, cuts, example)
    for part in parts:
        assert part in str(caught.value)


def test_a_cut_inside_a_shortcut(net):
    rejects(
        net,
        ["body.stage2.conv"],
        "after 'body.stage2.conv' 2 values are still used ('body.stage1', 'body.stage2.conv')",
        "usable cuts nearby: body.stage1, body.first, ",
    )


class Skip(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep, self.up = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        low = self.down(x)
        return self.up(self.deep(low) + low)


def test_a_skip_over_a_cut():
    chain_from_module.cut(Skip(), ["down"], torch.ones(2, 4))
    rejects(
        Skip(),
        ["deep"],
        "after 'deep' 2 values are still used ('down', 'deep')",
        "usable cuts nearby: down",
    )


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x) if x.sum() > 0 else x)


def test_control_flow_on_data():
    rejects(Branching(), ["a"], "Branching.forward cannot be traced", "use the model without cuts")
    wrapped = nn.Sequential(Branching(), nn.Tanh(), nn.Linear(2, 2))
    assert chain_from_module.cut(wrapped, ["0"], example=torch.ones(2, 4)).names == ("0", "head")
    rejects(wrapped, ["0.a"], "cannot be traced")


class AsksMode(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(F.dropout(self.a(x), 0.5, self.training))


def test_functions_that_read_the_mode():
    rejects(AsksMode(), ["a"], "different things in training and in evaluation", "nn.Dropout")


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.act = nn.Linear(4, 4), nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.act(self.a(x)), self.a.weight)


class Pair(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, -x


class Second(nn.Module):
    def forward(self, pair: tuple[Tensor, Tensor]) -> Tensor:
        return pair[1]


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.a(x) + y


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.act, self.spare = nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.a(self.act(x)))


def test_other_rejections(net):
    line = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    rejects(line, ["3"], "no module '3'")
    rejects(line, ["2"], "nothing follows '2'")
    rejects(line, ["0", "0"], "cut '0' has the name or the position of another block")
    same_place = "cut 'body' has the name or the position of another block"
    rejects(net, ["body.stage2", "body"], same_place)
    rejects(
        nn.Sequential(OrderedDict(head=nn.Linear(4, 2), last=nn.Tanh())),
        ["head"],
        "cut 'head' has the name",
    )
    rejects(Twice(), ["spare"], "'spare' returns a tensor 0 times")
    rejects(Twice(), ["act"], "'act' returns a tensor 2 times")
    rejects(Tied(), ["act"], "blocks 'act' and 'head' share 'a.weight'")
    rejects(TwoInputs(), ["a"], "must take one tensor and return one")
    rejects(
        nn.Sequential(Pair(), Second(), nn.Tanh()),
        ["0"],
        "block '0' returns a tuple of 2 values, not one tensor",
        example=torch.ones(2, 4),
    )
    rejects(net, ["body"], "cannot take the example of shape (4, 2, 8, 8)", example=X[:, :2])
    rejects(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), ["0", "7", "1"], "no module '7'")


def test_a_block_that_would_overwrite_a_tap():
    inplace = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    assert chain_from_module.cut(inplace, ["1"], torch.linspace(-1, 1, 8).view(2, 4)).names == (
        "1",
        "head",
    )
    first = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 3), nn.Linear(3, 2))
    rejects(
        first,
        ["1"],
        "block '1' begins with a layer that overwrites",
        example=(x := torch.linspace(-1, 1, 8).view(2, 4)),
    )
    assert torch.equal(x, torch.linspace(-1, 1, 8).view(2, 4))
    for example in (torch.linspace(-1, 1, 8).view(2, 4), torch.zeros(2, 4)):
        nn.init.ones_(inplace[0].bias)  # with zeros the ReLU changes nothing, but it still writes
        rejects(inplace, ["0"], "block 'head' begins with a layer that overwrites", example=example)


def test_two_bad_cuts_are_reported_at_once():
    rejects(Skip(), ["deep", "up"], "2 problems", "after 'deep'", "nothing follows 'up'")


def test_a_batch_of_one_is_not_enough_for_batch_norm():
    flat = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    rejects(flat, ["1"], "Expected more than 1 value", example=torch.ones(1, 4))


def test_a_chain_can_be_cut_again(net):
    chain = chain_from_module.cut(net, ["body"])
    again = chain_from_module.cut(
        Chain({"body": chain.block("body"), "head": chain.block("head")}),
        ["body.body.stage1"],
        example=X,
    )
    assert again.names == ("body_body_stage1", "head")


def test_layers_of_a_sequential_may_be_given_as_numbers() -> None:
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    assert chain_from_module.cut(net, at=[1]).names == ("1", "head")
    with pytest.raises(UserError, match="no module '7'"):
        chain_from_module.cut(net, at=[7])


@pytest.mark.parametrize("model", [3, None, nn.Linear])
def test_only_a_module_can_be_cut(model: Any) -> None:
    for at in (None, ["1"]):
        with pytest.raises(UserError, match=r"fedloom\.cut takes an nn\.Module, not "):
            chain_from_module.cut(model, at)


class Forward(nn.Module):
    """Two layers, with `between` after the first, which gets the module and the features."""

    def __init__(self, between: Any) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 5), nn.Linear(5, 3)
        self.register_buffer("mean", torch.ones(5))
        self.register_buffer("mask", torch.full((5,), -torch.inf), persistent=False)
        self.last: Any = None
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.between(self, self.body(x)))
        return scores


def remember(net: Forward, h: Tensor) -> Tensor:
    before, net.last = net.last, h
    return h if before is None else h + before


@pytest.mark.parametrize(
    "between",
    [
        lambda net, h: h + torch.randn(5),
        lambda net, h: h if torch.rand(1) < 0.5 else -h,
        lambda net, h: h * random.random(),
        lambda net, h: h - net.mean.mul_(0.5),
        remember,
    ],
)
@pytest.mark.parametrize("at", [None, ["body"]])
def test_what_a_trace_would_do_once_is_not_cut(between: Any, at: list[str] | None) -> None:
    """Blocks would repeat the draws of the trace, and what it wrote would be lost."""
    net, draws = Forward(between), torch.get_rng_state()
    with pytest.raises(UserError, match=r"no place was found|cannot be traced|from call to"):
        chain_from_module.cut(net, at)
    assert net.last is None and net.mean.equal(torch.ones(5))
    assert draws.equal(torch.get_rng_state())


def test_draws_of_the_size_of_the_input_are_cut() -> None:
    net, x = Forward(lambda net, h: h + torch.randn_like(h)), torch.ones(4, 6)
    assert chain_from_module.cut(net, example=x).names == ("body", "head")


def test_what_forward_notes_in_the_module_is_not_left_there() -> None:
    def note(net: Forward, h: Tensor) -> Tensor:
        net.last = h
        return h

    net = Forward(note)
    chain_from_module.cut(net, at=["body"], example=torch.ones(4, 6))
    assert not isinstance(net.last, torch.fx.Proxy)


def test_hooks_of_the_model_are_part_of_its_blocks() -> None:
    net, x = Forward(lambda net, h: h), torch.ones(4, 6)
    net.register_forward_pre_hook(lambda net, inputs: (inputs[0] * 3,))
    net.register_forward_hook(lambda net, inputs, output: output / 2)
    assert chain_from_module.cut(net, at=["body"], example=x)(x).equal(net(x))


def test_blocks_save_what_the_model_saves() -> None:
    def masked(net: Forward, h: Tensor) -> Tensor:
        h = h + torch.where(h > 0, net.mask, torch.full((5,), -torch.inf)).exp()
        return h - net.mean

    chain = chain_from_module.cut(Forward(masked), at=["body"], example=torch.ones(4, 6))
    saved = {"body.body.weight", "body.body.bias", "head.head.weight", "head.head.bias"}
    assert chain.state_dict().keys() == {*saved, "head.mean"}


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("compiled", [torch.jit.script, partial(torch.compile, backend="eager")])
@pytest.mark.parametrize("at", [None, ["0"]])
def test_a_compiled_model_is_not_cut(compiled: Any, at: list[str] | None) -> None:
    net = compiled(nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3)))
    with pytest.raises(UserError, match="is compiled and cannot be cut; pass the module from whic"):
        chain_from_module.cut(net, at)


class SeveralInside(nn.Module):
    """Each layer returns a pair, or an object, of which the next one takes both values."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.first, self.pair, self.head = nn.Linear(6, 5), Several(kind), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        out = self.pair(self.first(x))
        a, b = (out[0], out[1]) if self.pair.kind is tuple else (out.h, out.scale)
        scores: Tensor = self.head(a * b)
        return scores


class Several(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind, self.inner = kind, nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Any:
        h = self.inner(x)
        return (h, h.mean()) if self.kind is tuple else self.kind(h=h, scale=h.mean())


@pytest.mark.parametrize("kind", [tuple, SimpleNamespace])
def test_a_cut_after_several_values(kind: Any) -> None:
    """As between the layers of T5, which hand on their features and a bias of positions."""
    net, x = SeveralInside(kind), torch.ones(4, 6)
    with pytest.raises(UserError, match=r"'pair' returns several values, .* nearby: first"):
        chain_from_module.cut(net, at=["pair"])
    assert chain_from_module.cut(net, example=x).names == ("first", "head")


class Keeps(nn.Module):
    """Its body, or its dropout, stays in one mode."""

    def __init__(self, mode: bool, layer: str) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5))
        self.dropout, self.head = nn.Dropout(), nn.Linear(5, 3)
        self.kept = (mode, layer)

    def train(self, mode: bool = True) -> "Keeps":
        super().train(mode)
        self.get_submodule(self.kept[1]).train(self.kept[0])
        return self

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.dropout(self.body(x)))
        return scores


@pytest.mark.parametrize("at", [None, ["body"]])
@pytest.mark.parametrize(
    ("mode", "layer", "problem"),
    [
        (False, "body", r"train\(\) keeps 'body' in evaluation mode, .* in the class of 'body', "),
        (True, "dropout", r"train\(\) keeps 'dropout' in training mode"),
    ],
)
def test_modes_that_blocks_would_not_keep(
    mode: bool, layer: str, problem: str, at: list[str] | None
) -> None:
    """A pretrained body whose statistics stay as they are would have been changed."""
    with pytest.raises(UserError, match=problem):
        chain_from_module.cut(Keeps(mode, layer), at, example=torch.ones(4, 6))


def test_a_module_that_keeps_its_own_mode_is_cut() -> None:
    class Frozen(nn.Sequential):
        def train(self, mode: bool = True) -> "Frozen":
            return super().train(False)

    net = nn.Sequential(Frozen(nn.Linear(6, 5), nn.BatchNorm1d(5)), nn.Linear(5, 3))
    chain = chain_from_module.cut(net, example=torch.ones(4, 6))
    assert chain.names == ("0", "head")
    assert not any(
        module.training for module in chain.train().block("0").get_submodule("0").modules()
    )
