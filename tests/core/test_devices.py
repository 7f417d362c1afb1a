"""Nothing assumes a CPU: every method's step and every stage shape through on the meta device, which has no numbers at all."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedloom.core.chain import Chain
from fedloom.core.job import Bench, Job
from fedloom.core.key import Key
from fedloom.core.params import zeros
from fedloom.core.roles import Roles
from fedloom.core.server import Cohort, Reply
from fedloom.core.solver import HeavyBall
from fedloom.core.step import Step
from fedloom.methods.registry import entry, names


def build() -> Chain:
    with torch.device("meta"):
        stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU())
        return Chain({"stem": stem, "body": nn.Conv2d(8, 8, 3), "head": nn.Sequential(nn.Flatten(), nn.Linear(8 * 36, 5))})


@pytest.mark.parametrize("name", names())
def test_a_step_and_the_server_shape_through_without_numbers(name: str) -> None:
    method, bench = entry(name).make(), Bench(build)
    params = build().state_dict()
    job = Job(0, 0, Key.root(0), None, bench, params, {}, {}, classes=5)  # type: ignore[arg-type]
    phase = method.phases[0]
    model = bench.load("model", params)
    bench.open(phase.trains)
    trained = dict(model.named_parameters())
    x, y = torch.empty(4, 3, 8, 8, device="meta"), torch.empty(4, dtype=torch.long, device="meta")
    loss = phase.total(Step(x, y, model, job, trained, Key.root(1), 1))
    grads = torch.autograd.grad(loss, list(trained.values()))
    assert [g.shape for g in grads] == [p.shape for p in trained.values()]
    HeavyBall(0.9, True, 1e-4).step(list(trained.values()), lambda n: list(grads), 0.1, None)

    uploads = {"model": zeros(params), **{word: zeros(dict(trained)) for word in method.sends}}
    replies = tuple(Reply(c, 10, 10, uploads) for c in range(2))
    cohort = Cohort(0, params, replies, 4, Roles.of(model), Key.root(2))
    for stage in method.server:
        _, cohort = stage.step(stage.init({n: params[n] for n in trained}), cohort)
    assert {n: (t.shape, t.device.type) for n, t in cohort.params.items()} == {n: (t.shape, "meta") for n, t in params.items()}
