"""Properties that every registered model must have."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.core.params import clone
from fedloom.core.spec import Spec
from fedloom.models.registry import MODELS, build

KEY = Key.root(3).fold("model")
CLASSES = 5
CASES = {
    "mlp": (Spec("mlp", {"width": 12}), (2, 4, 4)),
    "mlp-table": (Spec("mlp", {"layers": 1}), (7,)),
    "softmax": (Spec("mlp", {"layers": 0}), (1, 4, 4)),
    "lenet5": (Spec("lenet5"), (1, 13, 12)),
    "cnn": (Spec("cnn"), (1, 8, 7)),
    "resnet": (Spec("resnet", {"depth": 14, "width": 4}), (3, 9, 8)),
    "bottleneck": (
        Spec("resnet", {"depth": 11, "width": 4, "block": "bottleneck", "norm": "group"}),
        (3, 8, 8),
    ),
    "resnet8": (Spec("resnet8"), (3, 8, 8)),
    "resnet20": (Spec("resnet20", {"width": 4}), (3, 8, 8)),
    "resnet32": (Spec("resnet32", {"width": 4}), (3, 8, 8)),
    "resnet56": (Spec("resnet56", {"width": 4}), (3, 8, 8)),
    "resnet18": (Spec("resnet18", {"width": 4}), (3, 8, 8)),
    "resnet18-imagenet": (
        Spec("resnet18", {"width": 4, "stem": "imagenet", "norm": "batch", "init": "he"}),
        (3, 33, 32),
    ),
    "vgg9": (Spec("vgg9"), (3, 8, 9)),
    "vgg": (Spec("vgg"), (3, 8, 9)),
    "mobilenetv2": (Spec("mobilenetv2"), (3, 8, 8)),
    "shufflenet": (Spec("shufflenet"), (3, 8, 7)),
    "squeezenet": (Spec("squeezenet"), (3, 8, 9)),
    "cnn1d": (Spec("cnn1d", {"width": 4}), (3, 13)),
    "cnn1d-batch": (Spec("cnn1d", {"width": 4, "norm": "batch"}), (1, 16)),
    "cnn3d": (Spec("cnn3d", {"width": 4}), (2, 5, 8, 7)),
    "cnn3d-batch": (Spec("cnn3d", {"width": 4, "norm": "batch"}), (1, 8, 8, 8)),
    "lstm": (Spec("lstm", {"width": 8}), (6,)),
}
every_model = pytest.mark.parametrize("case", CASES)


def make(case: str, key: Key = KEY, **where: object) -> Chain:
    spec, shape = CASES[case]
    return build(spec, shape, CLASSES, key, **where)


def batch(case: str, count: int = 4) -> Tensor:
    generator = KEY.fold("x").generator()
    spec, shape = CASES[case]
    if spec.name == "lstm":
        return torch.randint(CLASSES, (count, *shape), generator=generator)
    return torch.randn(count, *shape, generator=generator)


def seeded(function, *args, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return function(*args, **options)


def test_every_registered_model_has_a_case():
    assert {spec.name for spec, _ in CASES.values()} == set(MODELS)


@every_model
def test_initial_weights_depend_on_the_key_alone(case):
    before = torch.get_rng_state()
    first = make(case)
    assert torch.equal(torch.get_rng_state(), before)
    again = seeded(make, case)
    other = make(case, Key.root(4))
    weights, same = first.state_dict(), again.state_dict()
    assert all(torch.equal(t, same[n]) for n, t in weights.items())
    drawn = [n for n, t in weights.items() if t.dim() > 1]
    assert drawn
    assert not any(torch.equal(weights[n], other.state_dict()[n]) for n in drawn)


@every_model
def test_double_precision_has_the_same_weights(case):
    single, double = make(case).state_dict(), make(case, dtype=torch.float64).state_dict()
    assert {t.dtype for t in double.values()} <= {torch.float64, torch.int64}
    assert all(torch.equal(t.to(double[n].dtype), double[n]) for n, t in single.items())


@every_model
@pytest.mark.parametrize("training", [False, True])
def test_running_it_in_two_parts_equals_the_forward_pass(case, training):
    chain, x = make(case).train(training), batch(case)
    whole = seeded(chain, x)
    assert whole.shape == (4, CLASSES)
    for cut in chain.names:
        parts = seeded(lambda cut=cut: chain.run(chain.run(x, until=cut), after=cut))
        assert torch.equal(parts, whole), cut


def changed_taps(chain: Chain, x: Tensor) -> list[str]:
    """Blocks whose output, kept from a forward pass, differs from that of a new pass."""
    taps = chain.eval().taps(x.clone())
    return [
        name for name, tap in taps.items() if not torch.equal(tap, chain.run(x.clone(), until=name))
    ]


@every_model
def test_blocks_do_not_overwrite_their_inputs(case):
    chain, x = make(case), batch(case)
    kept = x.clone()
    assert changed_taps(chain, x) == []
    chain.train()(x)
    assert torch.equal(x, kept)


def test_the_check_finds_a_block_that_overwrites_its_input():
    bad = Chain({"a": nn.Linear(3, 3), "b": nn.ReLU(inplace=True)})
    assert changed_taps(bad, torch.linspace(-1, 1, 12).view(4, 3)) == ["a"]


@every_model
def test_shapes_on_the_meta_device_are_the_same(case):
    chain, on_meta = make(case), make(case, device="meta")
    shapes = {n: t.shape for n, t in chain.state_dict().items()}
    assert {n: t.shape for n, t in on_meta.state_dict().items()} == shapes
    assert {t.device.type for t in on_meta.state_dict().values()} <= {"meta"}
    x = batch(case)
    taps = on_meta.taps(x.to("meta"))
    assert {n: t.shape for n, t in taps.items()} == {n: t.shape for n, t in chain.taps(x).items()}


@every_model
def test_a_small_step_down_the_gradient_lowers_the_loss(case):
    chain, x = make(case, dtype=torch.float64), batch(case)
    x = x if x.dtype == torch.int64 else x.double()
    y = torch.arange(4) % CLASSES
    before = seeded(lambda: F.cross_entropy(chain(x), y))
    gradients = torch.autograd.grad(before, list(chain.parameters()))
    assert all(g.isfinite().all() for g in gradients)
    with torch.no_grad():
        for p, g in zip(chain.parameters(), gradients, strict=True):
            p -= 1e-6 * g
    assert seeded(lambda: F.cross_entropy(chain(x), y)) < before


@every_model
def test_it_runs_with_other_weights_through_functional_call(case):
    model, other, x = make(case).eval(), make(case, Key.root(4)).eval(), batch(case)
    weights = clone(other.state_dict())
    assert not torch.equal(model(x), other(x))
    assert torch.equal(functional_call(model, weights, (x,)), other(x))


@every_model
def test_second_derivatives_exist(case):
    """FedMix differentiates the loss along the input, or along its embedding for text."""
    chain = make(case)
    first = chain.names[0] if CASES[case][0].name == "lstm" else None
    x = batch(case) if first is None else chain.run(batch(case), until=first).detach()
    x.requires_grad_()
    loss = F.cross_entropy(chain.run(x, after=first), torch.arange(4) % CLASSES)
    (slope,) = torch.autograd.grad(loss, x, create_graph=True)
    used = [p for n, p in chain.named_parameters() if first is None or not n.startswith(first)]
    twice = torch.autograd.grad(slope.sum(), used, allow_unused=True)
    assert any(g is not None and g.abs().sum() > 0 for g in twice)
