"""The directional derivative against finite differences, and its two implementations."""

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.core.spec import Spec
from fedloom.experiment.memory_layout import arrange
from fedloom.losses.directional_derivative import by_double_backward, directional_derivative
from fedloom.losses.tangent import propagate_tangent
from fedloom.models.registry import build

CLASSES, BATCH = 7, 3
MODELS: dict[str, tuple[str, dict[str, Any], tuple[int, ...], str | None]] = {
    "lenet": ("lenet5", {}, (1, 16, 16), None),
    "vgg": ("vgg", {}, (3, 8, 8), None),
    "lstm": ("lstm", {"width": 9, "embedding": 4}, (5,), "embedding"),
    "group norm": ("resnet8", {"width": 4, "norm": "group", "groups": 2}, (3, 8, 8), None),
}
TANGENTS: dict[str, tuple[str, dict[str, Any], tuple[int, ...], str | None]] = {
    "mlp": ("mlp", {"width": 8}, (1, 4, 4), None),
    "softmax regression": ("mlp", {"layers": 0}, (1, 4, 4), None),
    "lenet": ("lenet5", {"padding": 0}, (2, 18, 17), None),
    "cnn": ("cnn", {}, (1, 6, 6), None),
    "vgg": ("vgg", {"dropout": 0.4}, (3, 8, 8), None),
    "lstm": ("lstm", {"width": 6, "embedding": 3}, (11,), "embedding"),
    "lstm of one step": ("lstm", {"width": 6, "embedding": 3, "layers": 1}, (1,), "embedding"),
    "lstm of three layers": ("lstm", {"width": 4, "embedding": 5, "layers": 3}, (4,), "embedding"),
}
Slope = Callable[..., tuple[dict[str, Tensor], Tensor]]


def scene(
    name: str, args: dict[str, Any], shape: tuple[int, ...], after: str | None = None
) -> tuple[Chain, Tensor, Tensor, Tensor]:
    """A model in training mode, its inputs after block `after`, labels, and a direction."""
    chain = build(Spec(name, args), shape, CLASSES, Key.root(1), dtype=torch.float64).train()
    draws = torch.Generator().manual_seed(4)
    if after is None:
        x = torch.randn(BATCH, *shape, generator=draws, dtype=torch.float64)
    else:
        x = chain.run(
            torch.randint(CLASSES, (BATCH, *shape), generator=draws), until=after
        ).detach()
    direction = torch.randn(x.shape[1:], generator=draws, dtype=torch.float64)
    return chain, x, torch.randint(CLASSES, (BATCH,), generator=draws), direction


def drawn_alike(slope: Slope, *given: Any) -> tuple[dict[str, Tensor], Tensor]:
    """With the same dropout mask every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(6)
        return slope(*given)


def entropy(
    chain: Chain, x: Tensor, y: Tensor, after: str | None
) -> tuple[dict[str, Tensor], Tensor]:
    return {}, F.cross_entropy(chain.run(x, after=after), y)


@pytest.mark.parametrize(("name", "args", "shape", "after"), MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("slope", [directional_derivative, by_double_backward])
def test_equals_finite_differences_of_the_loss(
    name: str, args: dict[str, Any], shape: tuple[int, ...], after: str | None, slope: Slope
) -> None:
    """By central differences, where no ReLU switches."""
    chain, x, y, direction = scene(name, args, shape, after)
    step = 1e-6
    one, other = (
        drawn_alike(entropy, chain, x + s * direction, y, after)[1] for s in (step, -step)
    )
    _, found = drawn_alike(slope, chain, x, y, direction, after)
    torch.testing.assert_close(found, (one - other) / (2 * step), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("name", "args", "shape", "after"), MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("slope", [directional_derivative, by_double_backward])
def test_its_weight_gradient_equals_finite_differences(
    name: str, args: dict[str, Any], shape: tuple[int, ...], after: str | None, slope: Slope
) -> None:
    """Along one direction of all weights, by central differences.

    If J were detached from the weights, it would have no gradient.
    """
    chain, x, y, direction = scene(name, args, shape, after)
    weights = [p for n, p in chain.named_parameters() if after is None or not n.startswith(after)]
    draws = torch.Generator().manual_seed(8)
    way = [torch.randn(w.shape, generator=draws, dtype=w.dtype) for w in weights]
    grads = torch.autograd.grad(
        drawn_alike(slope, chain, x, y, direction, after)[1],
        weights,
        materialize_grads=True,
        allow_unused=True,
    )
    found, step, values = sum((g * v).sum() for g, v in zip(grads, way, strict=True)), 1e-7, []
    for sign in (1, -2):
        with torch.no_grad():
            torch._foreach_add_(weights, way, alpha=sign * step)
        values.append(drawn_alike(slope, chain, x, y, direction, after)[1].detach())
    torch.testing.assert_close(found, (values[0] - values[1]) / (2 * step), rtol=1e-6, atol=1e-8)
    assert abs(float(found)) > 1e-3


def near(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


def same(chain: Chain, x: Tensor, y: Tensor, direction: Tensor, after: str | None = None) -> None:
    """Compare taps, derivative and gradients of both implementations."""
    ways = [
        drawn_alike(slope, chain, x, y, direction, after)
        for slope in (directional_derivative, by_double_backward)
    ]
    near(ways[0][1], ways[1][1])
    names = chain.between(after, None)
    assert ways[0][0].keys() == ways[1][0].keys() == set(names)
    for name in names:
        near(ways[0][0][name], ways[1][0][name])
    weights = [p for name in names for p in chain.block(name).parameters()]
    grads = [
        torch.autograd.grad(j + sum(taps[n].square().sum() for n in names), weights)
        for taps, j in ways
    ]
    for got, expected in zip(*grads, strict=True):
        near(got, expected)


@pytest.mark.parametrize(("name", "args", "shape", "after"), TANGENTS.values(), ids=TANGENTS)
def test_tangents_equal_double_backward(
    name: str, args: dict[str, Any], shape: tuple[int, ...], after: str | None
) -> None:
    chain, x, y, direction = scene(name, args, shape, after)
    assert propagate_tangent(chain, x, direction, after) is not None
    same(chain, x, y, direction, after)


def test_tangents_after_a_block() -> None:
    chain, x, y, _ = scene("lenet5", {}, (1, 16, 16))
    h = chain.run(x, until="conv1").detach()
    direction = h.mean(0)
    (taps, found), (others, expected) = (
        way(chain, h, y, direction, "conv1") for way in (directional_derivative, by_double_backward)
    )
    near(found, expected)
    assert taps.keys() == others.keys() == set(chain.names[1:])


def test_other_layers_have_no_tangent_rule() -> None:
    word, args, shape, after = MODELS["group norm"]
    chain, x, _, direction = scene(word, args, shape, after)
    assert propagate_tangent(chain, x, direction, after) is None


def reading(**options: Any) -> tuple[Chain, Tensor, Tensor, Tensor]:
    """A chain with an LSTM of these options, and its inputs."""
    word, args, shape, after = MODELS["lstm"]
    chain, x, y, direction = scene(word, args, shape, after)
    cast(Any, chain.block("lstm1")).rnn = nn.LSTM(4, 9, **{"batch_first": True, **options}).double()
    return chain, x, y, direction


def test_an_lstm_without_bias() -> None:
    chain, x, y, direction = reading(bias=False)
    assert propagate_tangent(chain, x, direction, "embedding") is not None
    same(chain, x, y, direction, "embedding")


@pytest.mark.parametrize("option", ["num_layers", "proj_size", "bidirectional", "batch_first"])
def test_other_lstms_have_no_tangent_rule(option: str) -> None:
    chain, x, _, direction = reading(
        **{option: {"num_layers": 2, "proj_size": 3, "bidirectional": True}.get(option, False)}
    )
    assert propagate_tangent(chain, x, direction, "embedding") is None


def test_an_lstm_with_a_hook_is_called() -> None:
    chain, x, y, direction = reading()
    heard: list[Any] = []
    cast(Any, chain.block("lstm1")).rnn.register_forward_hook(lambda *call: heard.append(call))
    directional_derivative(chain, x, y, direction, "embedding")
    assert len(heard) == 1


def rectified(**layers: nn.Module) -> Chain:
    return Chain(
        {"body": nn.Sequential(nn.Linear(4, 5), nn.ReLU()), **layers, "head": nn.Linear(5, CLASSES)}
    ).double()


def test_no_dropout_in_evaluation_mode() -> None:
    chain = rectified(drop=nn.Dropout(0.5)).eval()
    same(
        chain,
        torch.ones(2, 4, dtype=torch.float64),
        torch.tensor([1, 2]),
        torch.arange(4.0, dtype=torch.float64),
    )


@pytest.mark.parametrize("where", ["body", "head"])
def test_a_hook_sees_the_single_pass(where: str) -> None:
    """A rule does not call the layer, so layers with hooks are called as usual."""
    chain, heard = rectified(), []
    chain.block(where).register_forward_hook(lambda *call: heard.append(call))
    directional_derivative(
        chain,
        torch.ones(2, 4, dtype=torch.float64),
        torch.tensor([1, 2]),
        torch.ones(4, dtype=torch.float64),
    )
    assert len(heard) == 1


def test_channels_last_still_uses_tangents() -> None:
    chain, x, y, direction = scene("vgg", {"dropout": 0.0}, (3, 8, 8))
    expected = by_double_backward(chain, x, y, direction)[1]
    chain = arrange(chain, "channels_last", compiled=False)
    assert propagate_tangent(chain, x, direction) is not None
    near(directional_derivative(chain, x, y, direction)[1], expected)


def test_a_hook_that_changes_values_is_respected() -> None:
    chain, x = rectified(), torch.ones(2, 4, dtype=torch.float64)
    chain.block("body").register_forward_pre_hook(lambda block, inputs: (inputs[0] ** 2 + 1,))
    y, direction = torch.tensor([1, 2]), torch.arange(4.0, dtype=torch.float64)
    assert propagate_tangent(chain, x, direction) is None
    one, other = (F.cross_entropy(chain(x + s * direction), y) for s in (1e-6, -1e-6))
    torch.testing.assert_close(
        directional_derivative(chain, x, y, direction)[1],
        (one - other) / 2e-6,
        rtol=1e-7,
        atol=1e-9,
    )
