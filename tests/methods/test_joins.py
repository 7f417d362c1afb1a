"""Combined methods: their order does not matter, and conflicts raise a clear error."""

import itertools

import pytest
import torch
from torch import Tensor

from fedloom.core.compose import join
from fedloom.core.errors import UserError
from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.method import Exchange, Method, Phase
from fedloom.core.select import blocks, norms
from fedloom.core.step import Step
from fedloom.methods.ditto import ditto
from fedloom.methods.fedadam import fedadam
from fedloom.methods.fedalign import fedalign
from fedloom.methods.fedavg import fedavg
from fedloom.methods.fedavgm import fedavgm
from fedloom.methods.feddyn import feddyn
from fedloom.methods.fedmix import fedmix
from fedloom.methods.fedprox import fedprox
from fedloom.methods.fedrep import fedrep
from fedloom.methods.fedyogi import fedyogi
from fedloom.methods.gradaug import gradaug
from fedloom.methods.mixup import mixup
from fedloom.methods.moon import moon
from fedloom.methods.naivemix import naivemix
from fedloom.methods.pfedme import pfedme
from fedloom.methods.scaffold import scaffold
from fedloom.methods.stochdepth import stochdepth
from support.models import nested, residual
from support.simulate import simulate

PAIRS = {
    "fedprox+fedavgm": (fedprox(0.7), fedavgm(0.6)),
    "scaffold+fedadam": (scaffold(), fedadam()),
    "feddyn+fedprox": (feddyn(0.3), fedprox(0.7)),
    "fedprox+fedavg by clients": (fedprox(0.7), fedavg(weights="clients")),
    "gradaug+feddyn": (gradaug(2, 0.7, 0.5, smallest=1), feddyn(0.3)),
    "fedalign+fedprox": (fedalign(0.45, 0.6, clip=0.5), fedprox(0.7)),
    "moon+fedavgm": (moon(0.8, projection=4), fedavgm(0.6)),
    "fedrep+fedprox": (fedrep(2), fedprox(0.7)),
    "fedrep+mixup": (fedrep(), mixup(0.4)),
    "fedrep+fedadam": (fedrep(), fedadam()),
    "fedrep+ditto": (fedrep(), ditto(0.5)),
    "hidden fedmix+fedprox": (fedmix(at="stem", every_round=True), fedprox(0.7)),
    "hidden naivemix+fedavgm": (naivemix(at="stem", every_round=True), fedavgm(0.6)),
    "moon+mixup": (moon(0.8, projection=4), mixup(0.4)),
    "scaffold+private norms": (scaffold(), Method("private", private=norms)),
    "private head+private norms": (
        Method("head", private=blocks("head")),
        Method("norms", private=norms),
    ),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_the_order_of_joining_does_not_matter(pair: tuple[Method, Method]) -> None:
    """Up to rounding: the terms of a loss are summed in the order of the methods."""
    one, other = (simulate(join(order)).state for order in (pair, pair[::-1]))
    ours, theirs = one.tensors(), other.tensors()
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=0, atol=1e-13)


RESHAPED = {
    "stochdepth+fedprox": (stochdepth(0.4), fedprox(0.7)),
    "stochdepth+moon": (stochdepth(0.4), moon(0.8, projection=4)),
}


@pytest.mark.parametrize("pair", RESHAPED.values(), ids=RESHAPED)
def test_the_order_of_reshaping_does_not_matter(pair: tuple[Method, Method]) -> None:
    one, other = (
        simulate(join(order), build=residual).state.params for order in (pair, pair[::-1])
    )
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, other[name], rtol=0, atol=1e-13)


def test_joining_one_method_returns_it() -> None:
    method = fedprox()
    assert join([method]) is method


def test_a_joined_method_is_named_after_its_parts() -> None:
    assert join([fedprox(), fedavgm()]).name == "fedprox+fedavgm"


def halved(step: Step) -> Tensor:
    return step.ce / 2


def doubled(step: Step) -> Tensor:
    return step.ce * 2


def unmixed(x: Tensor, y: Tensor, job: Job, key: Key) -> tuple[Tensor, Tensor]:
    return x, y


TWO = "two methods set their own {}; at most one of them can"
REFUSED = {
    "two losses": (
        (Method("a", (Phase(halved),)), Method("b", (Phase(doubled),))),
        TWO.format("loss for 'model'"),
    ),
    "two orders": (
        (
            Method("a", (Phase(order=lambda d, g: torch.arange(1)),)),
            Method("b", (Phase(order=lambda d, g: torch.arange(2)),)),
        ),
        TWO.format("order for 'model'"),
    ),
    "two finales": (
        (Method("a", finale=(Phase(),)), Method("b", finale=(Phase(halved),))),
        TWO.format("finale"),
    ),
    "two results": (
        (
            Method("a", (Phase(), Phase(slot="own")), evaluates="own"),
            Method("b", (Phase(), Phase(slot="mine")), evaluates="mine"),
        ),
        TWO.format("evaluated slot"),
    ),
    "two of several phases": (
        (
            Method("a", (Phase(trains=blocks("head")), Phase())),
            Method("b", (Phase(trains=blocks("stem")), Phase())),
        ),
        "'a' and 'b' both train a slot in several phases; at most one of them can",
    ),
    "control of one descent": (
        (Method("a", (Phase(trains=blocks("head")), Phase())), scaffold()),
        "'scaffold' uses the result of one descent, but 'a' makes several; they cannot be combined",
    ),
    "weights beside one descent": (
        (pfedme(), Method("a", (Phase(trains=blocks("head")), Phase()))),
        "'pfedme' uses the result of one descent, but 'a' makes several; they cannot be combined",
    ),
    "a loss in one of several phases": (
        (Method("a", (Phase(halved), Phase())), Method("b", (Phase(doubled),))),
        TWO.format("loss for 'model'"),
    ),
}


@pytest.mark.parametrize(("methods", "sentence"), REFUSED.values(), ids=REFUSED)
def test_conflicts_are_rejected(methods: tuple[Method, ...], sentence: str) -> None:
    with pytest.raises(UserError) as error:
        join(methods)
    assert str(error.value) == f"method '{'+'.join(m.name for m in methods)}': {sentence}"


def test_a_gradient_clip_survives_joining() -> None:
    """And of two clips neither is silently dropped."""
    (phase,) = join([fedprox(), fedalign(clip=3.0), fedavgm()]).phases
    assert phase.clip == 3.0
    with pytest.raises(UserError, match="two methods set their own clip for 'model'"):
        join([fedalign(clip=3.0), Method("clipped", (Phase(clip=1.0),))])


def test_one_loss_and_one_mix_join() -> None:
    (phase,) = join(
        [Method("a", (Phase(halved),)), Method("b", (Phase(mix=unmixed),)), fedprox()]
    ).phases
    assert phase.loss is halved
    assert phase.mix is unmixed
    assert len(phase.terms) == 1


def test_a_plain_phase_leaves_several_phases_unchanged() -> None:
    """Whatever their order; phases of other slots come last."""
    alone = Method(
        "a", (Phase(trains=blocks("head")), Phase(halved), Phase(slot="own"), Phase(mix=unmixed))
    )
    assert join([alone, fedavgm()]).phases == join([fedavgm(), alone]).phases == alone.phases
    slots = [phase.slot for phase in join([ditto(), alone]).phases]
    assert slots == ["model", "model", "own", "model", "personal"]


def test_terms_of_other_methods_apply_in_each_of_several_phases() -> None:
    first, second = join(
        [fedprox(), Method("a", (Phase(halved, trains=blocks("head")), Phase(mix=unmixed)))]
    ).phases
    assert [len(first.terms), len(second.terms)] == [1, 1]
    assert (
        first.loss is halved
        and second.loss is Phase().loss
        and first.mix is None
        and second.mix is unmixed
    )


OPTIMISERS = {
    "fedadam": fedadam(),
    "fedadam of another step": fedadam(lr=0.5),
    "fedyogi": fedyogi(),
    "fedavgm": fedavgm(),
    "fedavgm of another beta": fedavgm(0.9),
    "feddyn": feddyn(),
    "feddyn of another alpha": feddyn(0.9),
    "scaled": fedavg(server_lr=0.5),
    "scaled otherwise": scaffold(server_lr=0.1),
}


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(OPTIMISERS, 2)))
def test_two_server_optimisers_never_join(first: str, second: str) -> None:
    """None of them may be silently dropped, even if they share a name."""
    with pytest.raises(
        UserError, match=r"two server optimisers \(.*\) cannot be combined; keep one"
    ):
        join([OPTIMISERS[first], OPTIMISERS[second]]).check(nested())


def test_two_means_do_not_join() -> None:
    with pytest.raises(
        UserError, match=r"upload 'model' has 2 combiners \(mean of model by .*\); keep one"
    ):
        join([fedavg(weights="seen"), fedavg(weights="clients")]).check(nested())


def test_two_exchanges_of_one_name_do_not_join() -> None:
    """The result of one would be lost."""

    def asks(value: float) -> Method:
        question = Exchange(
            "mean", lambda job, key: {"x": torch.tensor(value)}, lambda answers, key: answers[0]
        )
        return Method(f"asks {value}", prologue=(question,))

    with pytest.raises(UserError, match="two exchanges are called 'mean'"):
        join([asks(1.0), asks(2.0)]).check(nested())


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(UserError) as error:
        join(
            [
                Method("a", (Phase(halved),), finale=(Phase(),)),
                Method("b", (Phase(doubled),), finale=(Phase(halved),)),
            ]
        )
    assert str(error.value).startswith("method 'a+b': 2 problems\n  - ")
