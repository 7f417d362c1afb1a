"""The only loop over batches, against torch.optim.SGD and counts by hand."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.learning_task import IGNORED, TASKS
from fedloom.core.method import Method, Phase
from fedloom.core.optimisers import SGDRule
from fedloom.core.params import Params
from fedloom.core.sampler import everyone
from fedloom.core.select import blocks
from fedloom.core.solver import Objective, Schedule, Sgd, shuffled
from fedloom.core.step import task_loss
from fedloom.methods.fedavg import fedavg
from support.clients import TensorClient, tiny_clients
from support.descents import KEY, batches, descend, with_torch
from support.models import bare, nested
from support.simulate import initial_model, simulate, standalone_job

RULES = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "decay": {"weight_decay": 0.05},
    "all": {"momentum": 0.8, "nesterov": True, "weight_decay": 0.05},
}


@pytest.mark.parametrize("build", [bare, nested], ids=["no norm", "batch norm"])
@pytest.mark.parametrize("clip", [None, 0.3, 1e6], ids=["no clip", "clip", "clip out of reach"])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_equals_torch_bit_for_bit(rule: dict[str, Any], clip: float | None, build: Any) -> None:
    ours, trace = descend(Sgd(lr=0.2, batch=4, epochs=3, clip=clip, rule=SGDRule(**rule)), build)
    theirs = with_torch(build, 11, batches(11, 4, epochs=3), clip, lr=0.2, **rule)
    assert trace.steps == 9
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name


def test_the_clip_is_active() -> None:
    """Otherwise the test above would check nothing."""
    free, clipped = (descend(Sgd(batch=4, clip=clip))[0] for clip in (None, 0.3))
    assert not torch.equal(free["head.weight"], clipped["head.weight"])


@pytest.mark.parametrize(
    ("settings", "build", "size", "steps", "seen"),
    [
        ({"epochs": 3}, bare, 11, 9, 11),
        ({"epochs": 3, "drop_last": True}, bare, 11, 6, 8),
        ({"epochs": 2, "drop_last": True}, bare, 12, 6, 12),
        ({"epochs": 1, "drop_last": True}, bare, 3, 0, 0),
        ({"steps": 1}, bare, 11, 1, 4),
        ({"steps": 2}, bare, 11, 2, 8),
        ({"steps": 7}, bare, 11, 7, 11),
        ({"steps": 7, "drop_last": True}, bare, 11, 7, 8),
        ({"steps": 0}, bare, 11, 0, 0),
        ({"steps": 5}, bare, 1, 5, 1),
        ({"epochs": 2}, bare, 9, 6, 9),
        ({"epochs": 2}, nested, 9, 4, 8),  # a last batch of one has no batch statistics
        ({"epochs": 2}, nested, 10, 6, 10),
        ({"epochs": 2}, nested, 1, 0, 0),
        ({"steps": 4}, nested, 1, 0, 0),
    ],
)
def test_counts(settings: dict[str, Any], build: Any, size: int, steps: int, seen: int) -> None:
    _, trace = descend(Sgd(batch=4, **settings), build, size)
    assert (trace.steps, trace.seen) == (steps, seen)
    assert trace.lr_sum == pytest.approx(steps * 0.05)


def test_steps_go_through_the_same_batches_as_epochs() -> None:
    by_epochs, by_steps = (descend(Sgd(batch=4, **s))[0] for s in ({"epochs": 2}, {"steps": 6}))
    assert all(torch.equal(by_steps[n], t) for n, t in by_epochs.items())


@pytest.mark.parametrize("build", [bare, nested], ids=["no norm", "batch norm"])
def test_a_last_batch_of_one_is_skipped_only_with_batch_norm(build: Any) -> None:
    ours, _ = descend(Sgd(lr=0.2, batch=4, epochs=2), build, size=9)
    theirs = with_torch(
        build, 9, batches(9, 4, epochs=2, smallest=2 if build is nested else 1), lr=0.2
    )
    assert all(torch.equal(ours[n], t) for n, t in theirs.items())


def test_the_loss_is_the_mean_over_the_steps() -> None:
    (data,), model = tiny_clients((8,)), initial_model(bare)
    _, trace = descend(Sgd(lr=0.0, batch=4), size=8)
    with torch.no_grad():
        losses = [
            nn.functional.cross_entropy(model(data.x[b]), data.y[b]) for b in batches(8, 4, 1)
        ]
    assert trace.loss == pytest.approx(float(sum(losses) / 2), abs=1e-15)


def rounds_of_momentum(reset: bool) -> Params:
    (data,) = tiny_clients((11,))
    solver = Sgd(lr=0.2, batch=4, epochs=1, reset=reset, rule=SGDRule(momentum=0.9))
    return simulate(
        fedavg(), 3, build=bare, clients=[data], sampler=everyone(), solver=solver
    ).state.params


def one_after_another() -> Iterator[Tensor]:
    for t in range(3):
        yield from batches(11, 4, 1, Key.root(0).fold("round", t, "client", 0, "phase", 0))


def test_kept_momentum_is_one_uninterrupted_descent() -> None:
    theirs = with_torch(bare, 11, one_after_another(), lr=0.2, momentum=0.9)
    for name, tensor in rounds_of_momentum(reset=False).items():
        torch.testing.assert_close(tensor, theirs[name], rtol=0, atol=1e-14)


def test_reset_momentum_is_another_descent() -> None:
    theirs = with_torch(bare, 11, one_after_another(), lr=0.2, momentum=0.9)
    assert not torch.allclose(
        rounds_of_momentum(reset=True)["head.weight"], theirs["head.weight"], atol=1e-3
    )


def test_every_phase_keeps_its_own_momentum() -> None:
    """Two phases on one slot that train different tensors, as in methods with body and head."""
    halves = Method("halves", (Phase(trains=blocks("head")), Phase(trains=blocks("stem", "body"))))
    solver = Sgd(batch=4, reset=False, rule=SGDRule(momentum=0.9))
    result = simulate(halves, 2, build=bare, solver=solver, sampler=everyone())
    kept = {slot: set(memory) for slot, memory in result.store.recall(0).items()}
    weights = set(bare().state_dict())
    head = {"head.weight", "head.bias"}
    assert sorted(kept.values(), key=len) == [head, weights - head]


def test_a_finale_starts_without_momentum() -> None:
    """Fine-tuning is a separate descent, although training keeps its momentum."""
    tuned = Method("tuned", (Phase(trains=blocks("head")),), finale=(Phase(),))
    kept, reset = (
        simulate(
            tuned,
            2,
            build=bare,
            sampler=everyone(),
            solver=Sgd(batch=4, reset=r, rule=SGDRule(momentum=0.9)),
        )
        for r in (False, True)
    )
    resetting = Sgd(batch=4, reset=True, rule=SGDRule(momentum=0.9))
    start = (kept.state, kept.store)
    same = simulate(tuned, 2, build=bare, sampler=everyone(), solver=resetting, resume_from=start)
    assert not torch.equal(kept.state.params["head.weight"], reset.state.params["head.weight"])
    assert torch.equal(kept.personal(0)["stem.0.weight"], same.personal(0)["stem.0.weight"])


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        (Schedule(), [0.1, 0.1, 0.1, 0.1, 0.1]),
        (Schedule("exponential", factor=0.5), [0.1, 0.05, 0.025, 0.0125, 0.00625]),
        (Schedule("step", factor=0.5, every=2), [0.1, 0.1, 0.05, 0.05, 0.025]),
        (Schedule("cosine", over=4), [0.1, 0.0853553390593274, 0.05, 0.0146446609406726, 0.0]),
        (Schedule("cosine", over=2), [0.1, 0.05, 0.0, 0.0, 0.0]),
    ],
)
def test_schedules_by_hand(schedule: Schedule, rates: list[float]) -> None:
    assert [schedule.at(0.1, t) for t in range(5)] == pytest.approx(rates, abs=1e-16)


def test_the_schedule_depends_on_the_round() -> None:
    (data,) = tiny_clients((8,))
    solver = Sgd(lr=0.1, batch=8, schedule=Schedule("step", factor=0.5, every=1))
    one = simulate(fedavg(), 3, build=bare, clients=[data], sampler=everyone(), solver=solver)
    model = initial_model(bare)
    for rate in (0.1, 0.05, 0.025):
        model.zero_grad()
        nn.functional.cross_entropy(model(data.x), data.y).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= rate * p.grad
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(one.state.params[name], tensor, rtol=0, atol=1e-14)


class Twice:
    """A rule that uses two batches per step and records their sizes."""

    batches = 2

    def begin(self, model: Chain, weights: Params, memory: Params | None) -> list[float]:
        return []

    def step(
        self, weights: list[Tensor], gradient: Any, lr: float, state: list[float]
    ) -> list[float]:
        return [*state, *(float(gradient(n)[0].abs().sum()) for n in (0, 1))]

    def end(self, names: list[str], state: list[float]) -> tuple[dict[str, Params], None]:
        return {"noted": {"gradients": torch.tensor(state)}}, None

    def effective_steps(self, steps: int) -> float:
        return steps


@pytest.mark.parametrize(
    ("settings", "steps"), [({"epochs": 1}, 1), ({"epochs": 2}, 3), ({"steps": 4}, 4)]
)
def test_a_rule_gets_the_batches_it_asks_for(settings: dict[str, int], steps: int) -> None:
    """Also across epochs; a remainder at the end is skipped."""
    _, trace = descend(Sgd(batch=4, rule=Twice(), **settings), size=11)
    assert trace.steps == steps
    expected = list(gradients_at_the_start(2 * steps))
    assert trace.slots["noted"]["gradients"].tolist() == pytest.approx(expected)


def gradients_at_the_start(count: int) -> Iterator[float]:
    (data,), model = tiny_clients((11,)), initial_model(bare)
    for _, positions in zip(range(count), batches(11, 4, epochs=count), strict=False):
        model.zero_grad()
        nn.functional.cross_entropy(model(data.x[positions]), data.y[positions]).backward()
        yield float(next(model.parameters()).grad.abs().sum())


class Noting(TensorClient):
    """A client that records the random draws of each batch."""

    def batch(
        self, positions: Tensor, generator: torch.Generator | None = None, train: bool = True
    ) -> tuple[Tensor, Tensor]:
        assert generator is not None and train
        x, y = super().batch(positions)
        return x + torch.rand(x.shape, generator=generator, dtype=x.dtype), y


def test_augmentation_draws_from_the_key() -> None:
    (data,) = tiny_clients((11,))

    def run(key: Key) -> Tensor:
        job = standalone_job(bare, dict(initial_model(bare).state_dict()), Noting(data.x, data.y))
        chain = job.model_pool.load("model", job.received)
        Sgd(batch=4)(chain, Objective(task_loss, shuffled), job, key)
        return job.model_pool.take("model")["head.weight"]

    assert torch.equal(run(KEY), run(KEY))
    assert not torch.equal(run(KEY), run(KEY.fold("other")))


def test_a_mix_comes_before_the_loss_and_has_its_own_key() -> None:
    seeds = []

    def mix(x: Tensor, y: Tensor, job: Job, key: Key) -> tuple[Tensor, Tensor]:
        seeds.append(key.seed)
        return torch.zeros_like(x), nn.functional.one_hot(y, 3).double()

    (data,) = tiny_clients((8,))
    job = standalone_job(bare, dict(initial_model(bare).state_dict()), data)
    chain: Chain = job.model_pool.load("model", job.received)
    Sgd(batch=4, epochs=2)(chain, Objective(task_loss, shuffled, mix), job, KEY)
    assert len(set(seeds)) == len(seeds) == 4
    assert torch.equal(
        chain.get_parameter("stem.0.weight"), job.received["stem.0.weight"]
    )  # zeros in, no gradient
    assert not torch.equal(chain.get_parameter("head.bias"), job.received["head.bias"])


def test_a_batch_in_which_no_token_counts_is_left_out_of_the_loss() -> None:
    x = torch.arange(12).view(4, 3) % 5
    y = x.clone()
    y[1] = IGNORED

    def loss_on(targets: Tensor) -> float:
        def build() -> Chain:
            return Chain({"body": nn.Embedding(5, 4), "head": nn.Linear(4, 5)})

        model = initial_model(build)
        data = TensorClient(x[: len(targets)], targets)
        job = replace(
            standalone_job(build, dict(model.state_dict()), data), task=TASKS["next-token"]
        )
        objective = Objective(task_loss, lambda data, generator: torch.arange(len(data)))
        chain = job.model_pool.load("model", job.received)
        return Sgd(lr=1e-9, batch=1)(chain, objective, job, KEY).loss

    assert loss_on(y[:2]) == pytest.approx(loss_on(y[:1]), rel=1e-6)
    assert loss_on(torch.full((2, 3), IGNORED)) == 0.0
