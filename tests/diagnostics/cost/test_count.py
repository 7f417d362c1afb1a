"""Costs against sums by hand, the published counts, torch's own counter, and what a step is known to read."""

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
from fedloom.diagnostics.cost.count import Cost, cost
from fedloom.diagnostics.cost.dispatch import Footprint, Hypercube, mean_and_error
from fedloom.diagnostics.cost.measure import measure
from fedloom.diagnostics.cost.toy_federation import Scene
from fedloom.methods.registry import build as build_method
from fedloom.models.registry import build as build_model


def published(method: str, model: Spec, shape: tuple[int, ...], classes: int, draws: int) -> Cost:
    def build(device: torch.device) -> Chain:
        return build_model(model, shape, classes, Key.root(0), device=device)

    return cost(Scene(build_method(parse(method)), build, shape, classes, batch=2), draws)


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
    """Of 1 x 6 x 6: 4 x 9 weights on 36 places, norm, pool of 4 x 36 inputs, 4 x 3 weights and 3 biases."""
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
    return cost(Scene(method, build, (1, 6, 6), 3, batch=2), draws)


CONV, HEAD, POOL = 4 * 9 * 36, 4 * 3, 4 * 36
LAYERS, NORM = 4 * 9 + 4 * 3 + 3, 8


def test_a_small_model_by_hand() -> None:
    found = on_small(Method("fedavg"))
    assert (found.forward, found.layers, found.error) == (CONV + HEAD, CONV + HEAD + POOL, 0)
    assert (
        found.training == CONV + HEAD + CONV + 2 * HEAD
    )  # the first layer has no gradient to hand on
    assert (found.parameters, found.layer_parameters, found.copies) == (LAYERS + NORM, LAYERS, 1)
    assert (
        found.bytes_up == found.bytes_down == 4 * (LAYERS + NORM + 8) + 8
    )  # running mean and variance, and a counter
    assert (found.stored("torch"), found.stored("paper")) == (LAYERS + NORM, LAYERS)
    assert (found.macs("torch"), found.macs("paper")) == (found.forward, found.layers)


def test_the_count_is_that_of_torchs_counter() -> None:
    model, x, y = (
        build_isolated(partial(small, torch.device("cpu"))),
        torch.zeros(2, 1, 6, 6),
        torch.zeros(2, dtype=torch.int64),
    )
    with FlopCounterMode(display=False) as counter:
        torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
    assert counter.get_total_flops() == 2 * 2 * on_small(Method("fedavg")).training


def test_products_in_a_loss_are_free_for_papers_only() -> None:
    def gram(step: Step) -> Tensor:
        flat = step.taps["body"].flatten(2)
        return (flat @ flat.transpose(1, 2)).square().mean()

    found, plain = on_small(Method("gram", (Phase(terms=(gram,)),))), on_small(Method("fedavg"))
    assert found.forward == plain.forward + 4 * 4 * 36
    assert found.layers == plain.layers


def test_a_loss_that_looks_at_numbers_is_counted_with_numbers() -> None:
    def odd(step: Step) -> Tensor:
        return step.logits[step.logits > 0].sum() + 0 * len(step.logits.sort().values.tolist())

    assert on_small(Method("odd", (Phase(terms=(odd,)),))).forward == CONV + HEAD


def teaching(count: int) -> Method:
    """So many teachers run beside the model, each to its last layer."""

    def teachers(job: Job) -> list[Chain]:
        return [job.frozen(slot) for slot in ("received", "last")[:count]]

    def lesson(step: Step) -> Tensor:
        if "last" not in step.job.memories:
            return step.ce
        with torch.no_grad():
            said = [teacher(step.x) for teacher in step.job.once(teachers)]
        return sum((F.mse_loss(step.logits, s) for s in said), step.ce)

    def remember(outcome: Outcome) -> Extra:
        return Extra(memories={"last": outcome.weights["model"]})

    return Method("teaching", (Phase(loss=lesson),), (remember,))


@pytest.mark.parametrize("count", [1, 2])
def test_teachers_are_run_and_stored(count: int) -> None:
    found, plain = on_small(teaching(count)), on_small(Method("fedavg"))
    assert found.layers == (1 + count) * plain.layers
    assert found.training == plain.training + count * plain.forward
    assert found.copies == 1 + count


@pytest.mark.parametrize(
    ("method", "copies", "sent"), [("fedprox", 2, 1), ("scaffold", 2, 2), ("feddyn", 3, 1)]
)
def test_what_a_step_reads_is_stored_and_what_is_sent_is_counted(
    method: str, copies: int, sent: int
) -> None:
    found = on_small(build_method(parse(method)))
    assert found.copies == copies
    statistics = 4 * 8 + 8
    assert found.bytes_up == found.bytes_down == 4 * sent * (LAYERS + NORM) + statistics


@pytest.mark.parametrize("method", ["fedmix(least=100)", "fedmix(size=7,tail=drop)"])
def test_clients_have_as_many_samples_as_they_need_to_be_asked(method: str) -> None:
    assert on_small(build_method(parse(method))) == on_small(build_method(parse("fedmix")))


def test_a_step_goes_through_every_phase_and_the_largest_stores() -> None:
    spring = build_method(parse("fedprox")).phases[0]
    found = on_small(Method("two", (Phase(), Phase(terms=spring.terms, slot="personal"))))
    assert (found.forward, found.copies) == (2 * (CONV + HEAD), 2)


class Sometimes(nn.Module):
    """A layer that is left out in a quarter of all batches."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 4, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        drawn = torch.rand((), generator=torch.default_generator, device="cpu").item()
        return self.layer(x) if drawn < 0.75 else x.expand(-1, 4, -1, -1)


def test_what_is_drawn_is_counted_in_expectation() -> None:
    def build(device: torch.device) -> Chain:
        with torch.device(device):
            return Chain(
                {
                    "body": Sometimes(),
                    "head": nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)),
                }
            )

    found = on_small(
        Method("fedavg"), build=build
    )  # hypercubes of four steps hit three quarters exactly
    assert (found.forward, found.error) == (0.75 * CONV + HEAD, 0)
    assert found.layers == found.forward + POOL


def test_a_hypercube_visits_every_part_of_the_range_of_each_draw_once() -> None:
    cube, seen = Hypercube(Key.root(3), 8), []
    for step in range(16):
        cube.turn_to(step)
        drawn = torch.zeros(3)
        cube.redraw(drawn, lambda u: u, ())
        seen.append(drawn)
    for first in (0, 8):
        rows = torch.stack(seen[first : first + 8]) * 8
        assert rows.floor().sort(dim=0).values.T.tolist() == [list(range(8))] * 3
    cube.turn_to(5)
    again = torch.zeros(3)
    cube.redraw(again, lambda u: u, ())
    assert torch.equal(again, seen[5])


def test_the_error_is_that_of_the_means_of_hypercubes() -> None:
    assert mean_and_error([1.0, 3.0, 4.0, 6.0], 2) == pytest.approx(
        (3.5, 1.5)
    )  # means 2 and 5, spread 3/sqrt 2, over sqrt 2


def test_a_footprint_by_hand() -> None:
    x, footprint = torch.zeros(250), Footprint()
    with footprint:
        y = x + 1
        z = y + 1
        del y
        w = z.view(10, 25) + 1
        del z, w
        v = x + 1
    assert [t is x for t in footprint.held] == [True]
    assert footprint.peak == 2 * 1000 and v.numel() == 250


def test_a_measured_step_takes_time_and_more_memory_than_its_weights() -> None:
    found = measure(Scene(build_method(parse("fedprox")), small, (1, 6, 6), 3, batch=8), steps=2)
    assert found.seconds > 0 and found.ratio > 0
    batch, activations, weights = 4 * 8 * 36, 4 * 8 * 4 * 36, 4 * (LAYERS + NORM)
    assert batch + 2 * activations + 2 * weights < found.peak < 20 * (batch + activations + weights)


PAPER = [  # section 2 of the specification: MMACs and millions of parameters of FedAlign's Table 5
    ("fedavg", 87.254016, 0.605460),
    ("fedprox(mu=0.0001)", 87.254016, 1.210920),
    ("mixup", 87.254016, 0.605460),
    ("fedalign", 89.121792, 0.605460),
]


@pytest.mark.parametrize(("method", "mmacs", "params"), PAPER)
def test_the_reproducible_cells_of_table_5(method: str, mmacs: float, params: float) -> None:
    found = on_cifar(method)
    assert (found.layers, found.error) == (pytest.approx(1e6 * mmacs, abs=0.5), 0)
    assert found.stored("paper") == pytest.approx(1e6 * params, abs=0.5)


def test_without_the_pool_fedavg_would_print_another_digit() -> None:
    found = on_cifar("fedavg")
    assert (found.forward, found.training, found.parameters) == (87_237_632, 261_270_528, 614_452)


def test_moon_is_three_models() -> None:
    found = on_cifar("moon")
    assert found.stored("paper") == 3 * 737_044
    assert found.layers == 3 * 87_385_088


def test_gradaug_with_one_narrow_model_is_exact() -> None:
    assert on_cifar("gradaug(n=1)").layers == pytest.approx(
        127.66e6, abs=5000
    )  # four sizes, all hit equally


def test_stochastic_depth_in_expectation() -> None:
    found = on_cifar("stochdepth", draws=32)
    assert abs(found.layers - 83.13e6) < 1.5e6 and 0 < found.error < 0.02


@pytest.mark.parametrize(("method", "gmacs"), [("fedavg", 1.8137), ("fedalign", 1.8394)])
def test_resnet18_on_imagenet(method: str, gmacs: float) -> None:
    found = on_imagenet(method)
    assert found.layers == pytest.approx(1e9 * gmacs, abs=5e4)
    assert found.stored("paper") == pytest.approx(11.2695e6, abs=50)
