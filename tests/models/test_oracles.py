"""Models without golden outputs against naive forward passes, which take the weights in order."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedloom.core.key import Key
from fedloom.core.spec import Spec
from fedloom.models.layers import pooled_relu
from fedloom.models.registry import build

Weights = Iterator[Tensor]


def conv_gn(w: Weights, x: Tensor, **options: int) -> Tensor:
    return F.group_norm(F.conv2d(x, next(w), next(w), **options), 2, next(w), next(w))


def shuffled(x: Tensor) -> Tensor:
    """Channel a * n + b of three groups of n goes to b * 3 + a."""
    n = x.shape[1] // 3
    return x[:, [a * n + b for b in range(n) for a in range(3)]]


def shufflenet(w: Weights, x: Tensor) -> Tensor:
    x = F.relu(conv_gn(w, x, padding=1))
    for units in (4, 8, 4):
        for unit in range(units):
            y = shuffled(F.relu(conv_gn(w, x, groups=3)))
            y = conv_gn(w, y, stride=1 if unit else 2, padding=1, groups=y.shape[1])
            y = conv_gn(w, y, groups=3)
            x = F.relu(x + y if unit else torch.cat([F.avg_pool2d(x, 3, 2, 1), y], 1))
    return F.linear(x.mean((2, 3)), next(w), next(w))


def inverted(w: Weights, x: Tensor, stride: int, outputs: int) -> Tensor:
    y = F.relu6(conv_gn(w, x))
    y = F.relu6(conv_gn(w, y, stride=stride, padding=1, groups=y.shape[1]))
    y = conv_gn(w, y)
    return x + y if stride == 1 and x.shape[1] == outputs else y


def mobilenetv2(w: Weights, x: Tensor) -> Tensor:
    x = F.relu6(conv_gn(w, x, padding=1))
    for count, outputs, stride in (
        (1, 16, 1),
        (2, 24, 2),
        (3, 32, 2),
        (4, 64, 2),
        (3, 96, 1),
        (3, 160, 1),
        (1, 320, 1),
    ):
        for number in range(count):
            x = inverted(w, x, 1 if number else stride, outputs)
    x = F.relu6(conv_gn(w, x)).mean((2, 3), keepdim=True)
    return F.conv2d(x, next(w), next(w))[:, :, 0, 0]


def fire(w: Weights, x: Tensor) -> Tensor:
    x = F.relu(conv_gn(w, x))
    return torch.cat([F.relu(conv_gn(w, x)), F.relu(conv_gn(w, x, padding=1))], 1)


def squeezenet(w: Weights, x: Tensor) -> Tensor:
    x = fire(w, F.max_pool2d(F.relu(conv_gn(w, x, padding=1)), 2))
    x = F.max_pool2d(fire(w, fire(w, x) + x), 2)
    x = fire(w, fire(w, x) + x)
    x = F.max_pool2d(fire(w, fire(w, x) + x), 2)
    return F.conv2d(fire(w, x), next(w), next(w)).mean((2, 3))


def linears(w: Weights, x: Tensor, count: int) -> Tensor:
    x = x.flatten(1)
    for _ in range(count - 1):
        x = F.relu(F.linear(x, next(w), next(w)))
    return F.linear(x, next(w), next(w))


def vgg9(w: Weights, x: Tensor) -> Tensor:
    for number in range(1, 7):
        x = F.relu(conv_gn(w, x, padding=1))
        x = x if number % 2 else F.max_pool2d(x, 2)
    return linears(w, F.adaptive_avg_pool2d(x, 4), 3)


def vgg(w: Weights, x: Tensor) -> Tensor:
    for number in range(1, 7):
        x = F.relu(F.conv2d(x, next(w), next(w), padding=1))
        x = x if number % 2 else F.max_pool2d(x, 2)
    return linears(w, x, 3)


def lenet5(w: Weights, x: Tensor) -> Tensor:
    x = F.max_pool2d(F.relu(F.conv2d(x, next(w), next(w), padding=2)), 2)
    x = F.max_pool2d(F.relu(F.conv2d(x, next(w), next(w))), 2)
    return linears(w, x, 3)


def cnn(w: Weights, x: Tensor) -> Tensor:
    for _ in range(2):
        x = F.max_pool2d(F.relu(F.conv2d(x, next(w), next(w), padding=2)), 2)
    return linears(w, x, 2)


def mlp(w: Weights, x: Tensor) -> Tensor:
    return linears(w, x, 3)


def lstm(w: Weights, x: Tensor) -> Tensor:
    x = next(w)[x]
    for _ in range(2):
        into, across, bias_in, bias_across = (next(w) for _ in range(4))
        h = c = x.new_zeros(len(x), across.shape[1])
        states = []
        for t in range(x.shape[1]):
            i, f, g, o = (x[:, t] @ into.T + h @ across.T + bias_in + bias_across).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            states.append(h)
        x = torch.stack(states, 1)
    return F.linear(x[:, -1], next(w), next(w))


@pytest.mark.parametrize(
    ("oracle", "shape"),
    [
        (mlp, (1, 5, 4)),
        (lenet5, (1, 14, 13)),
        (cnn, (2, 9, 8)),
        (vgg9, (3, 32, 17)),
        (vgg, (3, 17, 8)),
        (mobilenetv2, (3, 16, 15)),
        (shufflenet, (3, 16, 15)),
        (squeezenet, (3, 17, 16)),
        (lstm, (5,)),
    ],
)
def test_equals_the_naive_forward_pass(oracle, shape):
    chain = build(Spec(oracle.__name__), shape, 6, Key.root(1), dtype=torch.float64).eval()
    generator = Key.root(2).generator()
    text = oracle is lstm
    x = (
        torch.randint(6, (3, *shape), generator=generator)
        if text
        else torch.randn(3, *shape, generator=generator).double()
    )
    weights = iter(chain.parameters())
    with torch.no_grad():
        for p in chain.parameters():  # moves norms and biases away from one and zero
            p += 0.05 * torch.randn(p.shape, generator=generator)
        torch.testing.assert_close(chain(x), oracle(weights, x), rtol=1e-10, atol=1e-12)
    assert next(weights, None) is None


def test_pooling_before_relu_equals_relu_before_pooling_bit_for_bit():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(4, 6, 8, 8, generator=g).round(decimals=1)  # ties among them
    x[0] = -x[0].abs()
    first, then = x.clone().requires_grad_(), x.clone().requires_grad_()
    ours = nn.Sequential(*pooled_relu().values())(first.clone())
    usual = F.max_pool2d(then.relu(), 2)
    weights = torch.randn(ours.shape, generator=g)
    assert torch.equal(ours, usual)
    for out in (ours, usual):
        (out * weights).sum().backward()
    assert torch.equal(first.grad, then.grad)
