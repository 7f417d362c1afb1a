"""The optimisers of clients, bit for bit those of torch.optim, and SAM against plain loops."""

import math
from collections.abc import Iterable
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.core.optimisers import AdamRule, DecayGroups, SGDRule, SharpnessAware
from fedloom.core.params import Params, sha256
from fedloom.core.precision import Overflow
from fedloom.core.rule import Rule
from fedloom.core.sampler import everyone
from fedloom.core.select import decayed
from fedloom.core.solver import Sgd
from fedloom.methods.fedavg import fedavg
from support.clients import tiny_clients
from support.descents import batches, client_of, descend, with_torch
from support.models import Build, bare, nested
from support.simulate import saved_and_loaded, simulate

STEPS, LR = 20, 0.02
SGD, ADAM, ADAMW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
OPTIMISERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "sgd": (SGD, {}),
    "sgd, all": (SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.05}),
    "adam": (ADAM, {}),
    "adam, decay": (ADAM, {"weight_decay": 0.05}),
    "adam, all": (
        ADAM,
        {"betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.05, "amsgrad": True},
    ),
    "adamw": (ADAMW, {"weight_decay": 0.01}),
    "adamw, all": (
        ADAMW,
        {"betas": (0.7, 0.9), "eps": 1e-4, "weight_decay": 0.2, "amsgrad": True},
    ),
}
every_optimiser = pytest.mark.parametrize(
    ("theirs", "options"), OPTIMISERS.values(), ids=OPTIMISERS
)
every_model = pytest.mark.parametrize("build", [bare, nested], ids=["no norm", "batch norm"])
every_clip = pytest.mark.parametrize("clip", [None, 0.3], ids=["no clip", "clip"])


def our_rule(theirs: type[torch.optim.Optimizer], options: dict[str, Any]) -> Rule:
    if theirs is SGD:
        return SGDRule(**options)
    return AdamRule(**options, decoupled=theirs is ADAMW)


def first_batches() -> Iterable[Tensor]:
    return islice(batches(11, 4, epochs=STEPS), STEPS)


def assert_same_bits(ours: Params, theirs: Params) -> None:
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name


@every_clip
@every_model
@every_optimiser
def test_equals_torch_bit_for_bit(
    theirs: Any, options: dict[str, Any], build: Build, clip: float | None
) -> None:
    """In float64, against the implementation of torch that takes one tensor after the other."""
    solver = Sgd(lr=LR, batch=4, steps=STEPS, clip=clip, rule=our_rule(theirs, options))
    ours, _ = descend(solver, build)
    expected = with_torch(
        build,
        11,
        first_batches(),
        clip,
        lambda model: theirs(model.parameters(), lr=LR, foreach=False, fused=False, **options),
    )
    assert_same_bits(ours, expected)


@every_optimiser
def test_equals_torchs_default_in_float32(theirs: Any, options: dict[str, Any]) -> None:
    def build() -> Chain:
        return nested().float()

    ours, _ = descend(Sgd(lr=LR, batch=4, steps=STEPS, rule=our_rule(theirs, options)), build)
    expected = with_torch(
        build,
        11,
        first_batches(),
        optimiser=lambda model: theirs(model.parameters(), lr=LR, **options),
    )
    assert expected["head.weight"].dtype == torch.float32
    assert_same_bits(ours, expected)


def groups_of(model: Chain, weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups of torch: no decay on norms and biases, which are found by layer."""
    linear = [m for m in model.modules() if isinstance(m, nn.Linear)]
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm1d)]
    biases = [m.bias for m in linear if m.bias is not None]
    return [
        {"params": [m.weight for m in linear], "weight_decay": weight_decay},
        {"params": [*biases, *(p for m in norms for p in m.parameters())], "weight_decay": 0.0},
    ]


DECAYING = {name: case for name, case in OPTIMISERS.items() if "weight_decay" in case[1]}


@every_model
@pytest.mark.parametrize(("theirs", "options"), DECAYING.values(), ids=DECAYING)
def test_groups_equal_parameter_groups_of_torch(
    theirs: Any, options: dict[str, Any], build: Build
) -> None:
    plain = our_rule(theirs, {**options, "weight_decay": 0.0})
    rule = DecayGroups(our_rule(theirs, options), plain, decayed)
    ours, _ = descend(Sgd(lr=LR, batch=4, steps=STEPS, rule=rule), build)
    decay = options["weight_decay"]
    expected = with_torch(
        build,
        11,
        first_batches(),
        optimiser=lambda model: theirs(groups_of(model, decay), lr=LR, foreach=False, **options),
    )
    assert_same_bits(ours, expected)
    whole, _ = descend(Sgd(lr=LR, batch=4, steps=STEPS, rule=our_rule(theirs, options)), build)
    assert not torch.equal(whole["head.bias"], ours["head.bias"])


def test_decayed_are_neither_norms_nor_biases() -> None:
    stem = nn.Sequential(nn.Conv2d(1, 4, 3), nn.LayerNorm([4, 6, 6]), nn.Flatten())
    chain = Chain({"stem": stem, "head": nn.LSTM(4, 3)})
    lstm = {"head.weight_ih_l0", "head.weight_hh_l0"}
    assert decayed(chain) == {"stem.0.weight"} | lstm


def sam_by_hand(
    build: Build, rho: float, options: dict[str, Any], clip: float | None = None
) -> Params:
    """SAM as its paper writes it, weight by weight."""
    model, data = client_of(build, 11)
    optimiser = SGD(model.parameters(), lr=LR, **options)

    def backward(positions: Tensor) -> None:
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(data.x[positions]), data.y[positions]).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)

    for positions in first_batches():
        backward(positions)
        squares = sum(float((p.grad**2).sum()) for p in model.parameters())
        moves = [rho * p.grad / math.sqrt(squares) for p in model.parameters()]
        for p, move in zip(model.parameters(), moves, strict=True):
            p.data += move
        backward(positions)
        for p, move in zip(model.parameters(), moves, strict=True):
            p.data -= move
        optimiser.step()
    return dict(model.state_dict())


@every_clip
@every_model
def test_sam_is_a_step_with_the_gradient_uphill(build: Build, clip: float | None) -> None:
    options = {"momentum": 0.9, "weight_decay": 0.05}
    rule = SharpnessAware(SGDRule(**options), 0.3)
    ours, result = descend(Sgd(lr=LR, batch=4, steps=STEPS, clip=clip, rule=rule), build)
    for name, tensor in sam_by_hand(build, 0.3, options, clip).items():
        torch.testing.assert_close(ours[name], tensor, rtol=0, atol=1e-12)
    assert result.lr_sum == SGDRule(momentum=0.9).effective_steps(STEPS) * LR
    plain, _ = descend(Sgd(lr=LR, batch=4, steps=STEPS, clip=clip, rule=SGDRule(**options)), build)
    assert not torch.allclose(plain["head.weight"], ours["head.weight"], rtol=0, atol=1e-4)


@every_optimiser
def test_sam_without_a_radius_is_its_optimiser(theirs: Any, options: dict[str, Any]) -> None:
    rule = our_rule(theirs, options)
    alone, within = (
        descend(Sgd(lr=LR, batch=4, steps=STEPS, rule=r))[0]
        for r in (rule, SharpnessAware(rule, 0))
    )
    assert_same_bits(within, alone)


def test_sam_stays_where_there_is_no_gradient() -> None:
    weights = [torch.ones(3)]
    rule = SharpnessAware(SGDRule(), 0.5)
    rule.step(weights, lambda n: [torch.zeros(3)], 0.1, None)
    assert torch.equal(weights[0], torch.ones(3))


KEPT = {
    "adam": AdamRule(weight_decay=0.01, amsgrad=True),
    "groups": DecayGroups(
        AdamRule(weight_decay=0.1, decoupled=True), AdamRule(decoupled=True), decayed
    ),
    "sam": SharpnessAware(SGDRule(momentum=0.9), 0.1),
}
every_kept = pytest.mark.parametrize("rule", KEPT.values(), ids=KEPT)


def test_kept_moments_are_one_uninterrupted_descent() -> None:
    (data,) = tiny_clients((11,))
    solver = Sgd(lr=LR, batch=4, reset=False, rule=AdamRule())
    ours = simulate(fedavg(), 3, build=bare, clients=[data], sampler=everyone(), solver=solver)
    steps = [
        positions
        for t in range(3)
        for positions in batches(11, 4, 1, Key.root(0).fold("round", t, "client", 0, "phase", 0))
    ]
    theirs = with_torch(bare, 11, steps, optimiser=lambda model: ADAM(model.parameters(), lr=LR))
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours.state.params[name], tensor, rtol=0, atol=1e-13)
    memory = ours.store.recall(0)["solver of phase 0"]
    assert int(memory["steps"]) == 9
    assert {n.partition(".")[0] for n in memory} == {"steps", "exp_avg", "exp_avg_sq"}


@every_kept
def test_a_resumed_run_has_the_same_bits(rule: Rule) -> None:
    solver = Sgd(lr=LR, batch=4, reset=False, rule=rule)
    whole = simulate(fedavg(), 4, solver=solver)
    half = simulate(fedavg(), 2, solver=solver)
    resumed = simulate(fedavg(), 4, solver=solver, resume_from=saved_and_loaded(half))
    assert sha256(resumed.state.params) == sha256(whole.state.params)
    forgetful = simulate(fedavg(), 4, solver=Sgd(lr=LR, batch=4, rule=rule))
    assert sha256(forgetful.state.params) != sha256(whole.state.params)


@every_kept
def test_memories_are_never_changed_in_place(rule: Rule) -> None:
    solver = Sgd(lr=LR, batch=4, reset=False, rule=rule)
    half = simulate(fedavg(), 2, solver=solver, sampler=everyone())
    before = sha256(half.store.recall(0)["solver of phase 0"])
    start = (half.state, half.store)
    kept = half.store.recall(0)["solver of phase 0"]
    simulate(fedavg(), 3, solver=solver, sampler=everyone(), resume_from=start)
    assert sha256(kept) == before


@every_kept
def test_a_gradient_that_fails_leaves_the_state_as_it_was(rule: Rule) -> None:
    """A step that overflows in fp16 is skipped (core/precision.py)."""
    model = nested()
    weights, names = list(model.parameters()), [n for n, _ in model.named_parameters()]

    def gradient(n: int) -> list[Tensor]:
        return [torch.ones_like(w) for w in weights]

    state = rule.begin(model, dict(model.named_parameters()), None)
    state = rule.step(weights, gradient, LR, state)
    before = sha256(rule.end(names, state)[1] or {})
    fails = iter([False, True] if isinstance(rule, SharpnessAware) else [True])

    def overflowing(n: int) -> list[Tensor]:
        if next(fails):
            raise Overflow
        return gradient(n)

    with pytest.raises(Overflow):
        rule.step(weights, overflowing, LR, state)
    assert sha256(rule.end(names, state)[1] or {}) == before


def test_moments_take_the_layout_of_their_weights() -> None:
    """A checkpoint stores contiguous tensors; images are channels last."""
    draws = torch.Generator().manual_seed(1)
    shape = (8, 5, 3, 3)
    stored = {
        f"{name}.w": torch.rand(shape, generator=draws) for name in ("exp_avg", "exp_avg_sq")
    } | {"steps": torch.tensor(3)}
    weight = torch.rand(shape, generator=draws).to(memory_format=torch.channels_last)
    state = AdamRule().begin(bare(), {"w": weight}, stored)
    for name in ("exp_avg", "exp_avg_sq"):
        (kept,) = state.means[name]
        assert torch.equal(kept, stored[f"{name}.w"])
        assert kept.stride() == weight.stride()


def test_the_steps_of_adam_are_no_sum_of_gradients() -> None:
    _, result = descend(Sgd(batch=4, rule=AdamRule()))
    assert math.isnan(result.lr_sum)
