"""Pieces of the grammar one by one: small methods on the same round, against an oracle."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedloom.core.chain import Chain
from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.method import Exchange, Extra, Method, Outcome, Phase
from fedloom.core.params import Params
from fedloom.core.sampler import everyone, uniform
from fedloom.core.select import blocks
from fedloom.core.solver import Sgd
from fedloom.core.step import Step
from support import oracles
from support.clients import tiny_clients
from support.models import CLASSES, bare, nested
from support.oracles import World
from support.simulate import initial_model, simulate, standalone_job

WORLD = World(nested, tiny_clients(), Key.root(0), uniform(3))


def close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


LAM = 0.2


def ask(job: Job, key: Key) -> Params:
    x, y = job.data.batch(torch.arange(len(job.data)), None, train=False)
    return {"x": x.mean(0), "y": F.one_hot(y, job.classes).double().mean(0)}


def pool(answers: Sequence[Params], key: Key) -> Params:
    return {part: torch.stack([a[part] for a in answers]).mean(0) for part in ("x", "y")}


def blend(x: Tensor, y: Tensor, job: Job, key: Key) -> tuple[Tensor, Tensor]:
    foreign = job.shared["mashed"]
    return (1 - LAM) * x + LAM * foreign["x"], (1 - LAM) * F.one_hot(
        y, job.classes
    ).double() + LAM * foreign["y"]


def test_a_first_exchange_reaches_the_mix() -> None:
    """NaiveMix: averaged data of all clients, mixed into every batch."""
    result = simulate(
        Method(
            "naivemix",
            (Phase(mix=blend),),
            prologue=(Exchange("mashed", ask, pool),),
        ),
        1,
    )
    far_x = torch.stack([c.x.mean(0) for c in WORLD.clients]).mean(0)
    far_y = torch.stack(
        [torch.bincount(c.y, minlength=CLASSES).double() / len(c.y) for c in WORLD.clients]
    ).mean(0)

    def mixed(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        logs = model((1 - LAM) * x + LAM * far_x).log_softmax(1)
        return -((1 - LAM) * logs[range(len(y)), y] + LAM * (logs * far_y).sum(1)).mean()

    for reply in result.replies:
        final, _ = oracles.train(WORLD, 0, reply.client, result.start.params, loss=mixed)
        for name, change in reply.uploads["model"].items():
            close(result.start.params[name] + change, final[name])


def teacher(job: Job) -> Chain:
    return job.frozen()


def distil(step: Step) -> Tensor:
    taught = step.job.once(teacher)(step.x)
    return step.ce + F.kl_div(step.logits.log_softmax(1), taught.softmax(1), reduction="batchmean")


def test_a_frozen_teacher() -> None:
    """Distillation from the received model, which stays unchanged while the student trains."""
    result = simulate(Method("kd", (Phase(distil),)), 1)
    still = nested()
    still.load_state_dict(result.start.params)

    def taught(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        target, logs = still(x).detach().softmax(1), model(x).log_softmax(1)
        return -logs[range(len(y)), y].mean() + (target * (target.log() - logs)).sum(1).mean()

    for reply in result.replies:
        final, _ = oracles.train(WORLD, 0, reply.client, result.start.params, loss=taught)
        for name, change in reply.uploads["model"].items():
            close(result.start.params[name] + change, final[name])


@pytest.mark.parametrize("norm", ["batch", "running"])
def test_gradients_flow_through_a_teacher_but_not_into_it(norm: Any) -> None:
    job = standalone_job(nested, dict(initial_model(nested).state_dict()))
    x = WORLD.clients[0].x.clone().requires_grad_()
    frozen = job.frozen(norm=norm)
    frozen.run(frozen.run(x, until="stem"), after="stem").square().sum().backward()
    assert x.grad is not None and float(x.grad.abs().sum()) > 0
    assert all(p.grad is None and not p.requires_grad for p in frozen.parameters())
    counter = "body.0.unit.1.num_batches_tracked"
    assert int(frozen.get_buffer(counter)) == (1 if norm == "batch" else 0)
    assert int(job.received[counter]) == 0


def test_what_all_steps_share_is_computed_once() -> None:
    made: list[Job] = []

    def make(job: Job) -> int:
        made.append(job)
        return len(made)

    jobs = [standalone_job(nested, dict(initial_model(nested).state_dict())) for _ in range(2)]
    assert [job.once(make) for job in jobs for _ in range(3)] == [1, 1, 1, 2, 2, 2]
    assert made == jobs


def previous(job: Job) -> Chain:
    return job.frozen("previous" if "previous" in job.memories else "received")


def contrast(step: Step) -> Tensor:
    z, anchors = step.taps["body"], (teacher, previous)
    near = [
        F.cosine_similarity(z, step.job.once(a).run(step.x, until="body")) / 0.5 for a in anchors
    ]
    return F.cross_entropy(torch.stack(near, 1), torch.zeros(len(z), dtype=torch.int64))


def test_a_client_remembers_its_last_model() -> None:
    """MOON: in a client's first round both anchors are the received model.

    The term is then ln 2, without a gradient.
    """

    def remember(outcome: Outcome) -> Extra:
        return Extra(memories={"previous": outcome.weights["model"]})

    moon = Method("moon", (Phase(terms=(contrast,)),), after=(remember,))
    plain, taught = (simulate(method, 2, sampler=everyone()) for method in (Method("fedavg"), moon))
    assert taught.reports[0].loss == pytest.approx(plain.reports[0].loss + math.log(2), abs=1e-12)
    assert abs(taught.reports[1].loss - plain.reports[1].loss - math.log(2)) > 1e-4
    for ours, theirs in zip(taught.replies[:8], plain.replies[:8], strict=True):
        for name, change in ours.uploads["model"].items():
            close(change, theirs.uploads["model"][name])


@pytest.mark.parametrize(
    ("phases", "slot", "steps"),
    [
        ((Phase(), Phase()), "model", 2),
        ((Phase(), Phase(slot="own", start="model")), "own", 2),
        ((Phase(), Phase(slot="own", start="received")), "own", 1),
        ((Phase(), Phase(slot="own")), "own", 1),
    ],
    ids=["on and on", "from another slot", "from what was received", "its own, the first time"],
)
def test_where_a_phase_starts(phases: tuple[Phase, ...], slot: str, steps: int) -> None:
    """In full batches, so that the order of the samples does not matter."""
    result = simulate(Method("phases", phases), 1, build=bare, solver=Sgd(lr=0.1, batch=100))
    straight = simulate(
        Method("straight"), 1, build=bare, solver=Sgd(lr=0.1, batch=100, steps=steps)
    )
    for ours, theirs in zip(result.replies, straight.replies, strict=True):
        start = result.start.params
        for name, change in theirs.uploads["model"].items():
            got = (
                ours.memories[slot][name]
                if slot == "own"
                else start[name] + ours.uploads["model"][name]
            )
            close(got, start[name] + change)
    assert [r.steps for r in result.replies] == [2 if slot == "model" else 1] * 3


def test_a_clients_slot_persists_to_the_next_round() -> None:
    own = Method("own", (Phase(), Phase(slot="own")))
    result = simulate(own, 3, build=bare, solver=Sgd(lr=0.1, batch=100), sampler=everyone())
    alone = simulate(
        Method("alone", private=blocks(until="body")),
        1,
        build=bare,
        solver=Sgd(lr=0.1, batch=100, steps=3),
        sampler=everyone(),
    )
    for ours, theirs in zip(result.replies[-8:], alone.replies, strict=True):
        close(ours.memories["own"]["stem.0.weight"], theirs.memories["private"]["stem.0.weight"])
