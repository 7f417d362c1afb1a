"""Costs against sums by hand, published counts, torch's FLOP counter, and known storage."""

from collections.abc import Callable
from functools import cache, partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from fedloom.core.chain import Chain
from fedloom.core.job import Job, build_isolated
from fedloom.core.key import Key
from fedloom.core.method import Extra, Method, Outcome, Phase
from fedloom.core.spec import Spec, parse
from fedloom.core.step import Step
from fedloom.diagnostics.cost.count import Cost, count_cost
from fedloom.diagnostics.cost.measure import measure
from fedloom.diagnostics.cost.toy_federation import Workload
from fedloom.methods.registry import build as build_method
from fedloom.models.registry import build as build_model


def published(method: str, model: Spec, shape: tuple[int, ...], classes: int, draws: int) -> Cost:
    def build(device: torch.device) -> Chain:
        return build_model(model, shape, classes, Key.root(0), device=device)

    return count_cost(Workload(build_method(parse(method)), build, shape, classes, batch=2), draws)


@cache
def on_cifar(method: str, draws: int = 16) -> Cost:
    return published(method, Spec("resnet56"), (3, 32, 32), 100, draws)


def on_imagenet(method: str) -> Cost:
    return published(
        method,
        Spec("resnet18", {"stem": "imagenet", "norm": "batch", "init": "he"}),
        (3, 224, 224),
        200,
        draws=8,
    )


def small(device: torch.device) -> Chain:
    """For 1x6x6 images: 4 x 9 weights at 36 positions, a norm, a pool of 4 x 36 inputs, and a
    linear layer with 4 x 3 weights and 3 biases."""
    with torch.device(device):
        body = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU()
        )
        return Chain(
            {
                "body": body,
                "head": nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)),
            }
        )


def on_small(
    method: Method, draws: int = 16, build: Callable[[torch.device], Chain] = small
) -> Cost:
    return count_cost(Workload(method, build, (1, 6, 6), 3, batch=2), draws)


CONV, HEAD, POOL = 4 * 9 * 36, 4 * 3, 4 * 36
LAYERS, NORM = 4 * 9 + 4 * 3 + 3, 8


def test_a_small_model_by_hand() -> None:
    found = on_small(Method("fedavg"))
    assert (found.forward_macs, found.layer_macs, found.error) == (
        CONV + HEAD,
        CONV + HEAD + POOL,
        0,
    )
    # backward: the first layer needs no gradient of its input
    assert found.training_macs == CONV + HEAD + CONV + 2 * HEAD
    assert (found.parameters, found.layer_parameters, found.copies) == (LAYERS + NORM, LAYERS, 1)
    # with the running mean and variance, and a counter
    assert found.bytes_up == found.bytes_down == 4 * (LAYERS + NORM + 8) + 8
    assert (found.stored("torch"), found.stored("paper")) == (LAYERS + NORM, LAYERS)
    assert (found.macs("torch"), found.macs("paper")) == (found.forward_macs, found.layer_macs)


@pytest.mark.parametrize(
    ("model", "shape", "convolutions", "pool"),
    [
        ("cnn1d", (3, 21), [3 * 4 * 7 * 21, 4 * 8 * 5 * 11, 8 * 16 * 3 * 6], 16 * 3),
        (
            "cnn3d",
            (2, 5, 8, 12),
            [27 * 2 * 4 * 480, 27 * 4 * 8 * 72, 27 * 8 * 16 * 12],
            16 * 1 * 1 * 2,
        ),
    ],
)
def test_signals_and_volumes_by_hand(model, shape, convolutions, pool) -> None:
    """Positions of cnn1d: 21, 11, 6 and 3; of cnn3d: 480, 3x4x6, 2x2x3 and 1x1x2."""
    found = published("fedavg", Spec(model, {"width": 4}), shape, 5, draws=4)
    head = 16 * 5
    assert found.forward_macs == sum(convolutions) + head
    assert found.layer_macs == sum(convolutions) + head + pool
    # backward: the first layer needs no gradient of its input
    assert found.training_macs == 3 * (sum(convolutions) + head) - convolutions[0]


def test_the_count_equals_that_of_torchs_flop_counter() -> None:
    model, x, y = (
        build_isolated(partial(small, torch.device("cpu"))),
        torch.zeros(2, 1, 6, 6),
        torch.zeros(2, dtype=torch.int64),
    )
    with FlopCounterMode(display=False) as counter:
        torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
    assert counter.get_total_flops() == 2 * 2 * on_small(Method("fedavg")).training_macs


def test_products_in_a_loss_count_in_the_torch_convention_only() -> None:
    def gram(step: Step) -> Tensor:
        flat = step.taps["body"].flatten(2)
        return (flat @ flat.transpose(1, 2)).square().mean()

    found, plain = on_small(Method("gram", (Phase(terms=(gram,)),))), on_small(Method("fedavg"))
    assert found.forward_macs == plain.forward_macs + 4 * 4 * 36
    assert found.layer_macs == plain.layer_macs


def test_a_loss_that_needs_values_is_counted_on_the_cpu() -> None:
    def needs_values(step: Step) -> Tensor:
        return step.logits[step.logits > 0].sum() + 0 * len(step.logits.sort().values.tolist())

    assert (
        on_small(Method("needs-values", (Phase(terms=(needs_values,)),))).forward_macs
        == CONV + HEAD
    )


def teaching(count: int) -> Method:
    """The model is taught by `count` teachers, which run on every batch."""

    def teachers(job: Job) -> list[Chain]:
        return [job.frozen(slot) for slot in ("received", "last")[:count]]

    def lesson(step: Step) -> Tensor:
        if "last" not in step.job.memories:
            return step.ce
        with torch.no_grad():
            logits = [teacher(step.x) for teacher in step.job.once(teachers)]
        return sum((F.mse_loss(step.logits, z) for z in logits), step.ce)

    def remember(outcome: Outcome) -> Extra:
        return Extra(memories={"last": outcome.weights["model"]})

    return Method("teaching", (Phase(loss=lesson),), (remember,))


@pytest.mark.parametrize("count", [1, 2])
def test_teachers_count_as_work_and_as_storage(count: int) -> None:
    found, plain = on_small(teaching(count)), on_small(Method("fedavg"))
    assert found.layer_macs == (1 + count) * plain.layer_macs
    assert found.training_macs == plain.training_macs + count * plain.forward_macs
    assert found.copies == 1 + count


@pytest.mark.parametrize(
    ("method", "copies", "sent"), [("fedprox", 2, 1), ("scaffold", 2, 2), ("feddyn", 3, 1)]
)
def test_stored_copies_and_bytes_sent(method: str, copies: int, sent: int) -> None:
    found = on_small(build_method(parse(method)))
    assert found.copies == copies
    statistics = 4 * 8 + 8
    assert found.bytes_up == found.bytes_down == 4 * sent * (LAYERS + NORM) + statistics


@pytest.mark.parametrize("method", ["fedmix(least=100)", "fedmix(size=7,tail=drop)"])
def test_clients_have_as_many_samples_as_the_prologue_needs(method: str) -> None:
    assert on_small(build_method(parse(method))) == on_small(build_method(parse("fedmix")))


def test_work_is_summed_over_phases_and_storage_is_the_largest_phase() -> None:
    fedprox = build_method(parse("fedprox")).phases[0]
    found = on_small(Method("two", (Phase(), Phase(terms=fedprox.terms, slot="personal"))))
    assert (found.forward_macs, found.copies) == (2 * (CONV + HEAD), 2)


class RandomlySkipped(nn.Module):
    """A layer that is skipped in a quarter of all batches."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 4, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        drawn = torch.rand((), generator=torch.default_generator, device="cpu").item()
        return self.layer(x) if drawn < 0.75 else x.expand(-1, 4, -1, -1)


def test_random_choices_are_counted_in_expectation() -> None:
    def build(device: torch.device) -> Chain:
        with torch.device(device):
            return Chain(
                {
                    "body": RandomlySkipped(),
                    "head": nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)),
                }
            )

    # hypercubes of four steps hit three quarters exactly
    found = on_small(Method("fedavg"), build=build)
    assert (found.forward_macs, found.error) == (0.75 * CONV + HEAD, 0)
    assert found.layer_macs == found.forward_macs + POOL


def test_a_measured_step_takes_time_and_more_memory_than_its_weights() -> None:
    found = measure(Workload(build_method(parse("fedprox")), small, (1, 6, 6), 3, batch=8), steps=2)
    assert found.seconds > 0 and found.ratio > 0
    batch, activations, weights = 4 * 8 * 36, 4 * 8 * 4 * 36, 4 * (LAYERS + NORM)
    assert batch + 2 * activations + 2 * weights < found.peak < 20 * (batch + activations + weights)


PAPER = [  # MMACs and millions of parameters of FedAlign's Table 5
    ("fedavg", 87.254016, 0.605460),
    ("fedprox(mu=0.0001)", 87.254016, 1.210920),
    ("mixup", 87.254016, 0.605460),
    ("fedalign", 89.121792, 0.605460),
]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "mmacs", "params"), PAPER)
def test_the_reproducible_cells_of_table_5(method: str, mmacs: float, params: float) -> None:
    found = on_cifar(method)
    assert (found.layer_macs, found.error) == (pytest.approx(1e6 * mmacs, abs=0.5), 0)
    assert found.stored("paper") == pytest.approx(1e6 * params, abs=0.5)


def test_fedavg_in_the_torch_convention() -> None:
    found = on_cifar("fedavg")
    assert (found.forward_macs, found.training_macs, found.parameters) == (
        87_237_632,
        261_270_528,
        614_452,
    )


def test_moon_costs_three_models() -> None:
    found = on_cifar("moon")
    assert found.stored("paper") == 3 * 737_044
    assert found.layer_macs == 3 * 87_385_088


@pytest.mark.slow
def test_gradaug_with_one_subnetwork_is_exact() -> None:
    # four image sizes, each drawn equally often
    assert on_cifar("gradaug(n=1)").layer_macs == pytest.approx(127.66e6, abs=5000)


def test_stochastic_depth_costs_its_expectation() -> None:
    found = on_cifar("stochdepth", draws=32)
    assert abs(found.layer_macs - 83.13e6) < 1.5e6 and 0 < found.error < 0.02


@pytest.mark.parametrize(("method", "gmacs"), [("fedavg", 1.8137), ("fedalign", 1.8394)])
def test_resnet18_on_imagenet(method: str, gmacs: float) -> None:
    found = on_imagenet(method)
    assert found.layer_macs == pytest.approx(1e9 * gmacs, abs=5e4)
    assert found.stored("paper") == pytest.approx(11.2695e6, abs=50)
