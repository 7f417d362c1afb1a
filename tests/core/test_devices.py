"""Nothing assumes a CPU: every method and stage runs on the meta device, which has no values."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedloom.core.chain import Chain
from fedloom.core.job import Job, ModelPool
from fedloom.core.key import Key
from fedloom.core.optimisers import SGDRule
from fedloom.core.params import zeros
from fedloom.core.roles import Roles
from fedloom.core.server import Cohort, Reply
from fedloom.core.step import Step
from fedloom.methods.registry import entry, names
from fedloom.models.layers import make_norm
from fedloom.models.residual import residual_chain


def build() -> Chain:
    with torch.device("meta"):
        return residual_chain((3, 16, 16), 5, (1, 1), (16, 32), make_norm("group", 2))


class MetaData:
    """Ten samples without values; the labels are known."""

    labels = torch.arange(10) % 5

    def __len__(self) -> int:
        return 10

    def batch(
        self, positions: torch.Tensor, *ignored: object, **also: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.empty(len(positions), 3, 16, 16, device="meta")
        return x, torch.empty(len(positions), dtype=torch.long, device="meta")


@pytest.mark.parametrize("name", names())
def test_a_step_and_the_server_run_on_the_meta_device(name: str) -> None:
    method = entry(name).make()
    model_pool = ModelPool(lambda: method.reshaped(build(), Key.root(0)))
    params = method.reshaped(build(), Key.root(0)).state_dict()
    asked = Job(0, 0, Key.root(0), MetaData(), model_pool, params, {}, {}, classes=5)
    job = replace(
        asked,
        shared={
            e.name: e.server([e.client(asked, Key.root(3))], Key.root(4)) for e in method.prologue
        },
    )
    phase = method.phases[0]
    model = model_pool.load("model", params)
    model_pool.set_trainable(phase.trains)
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    x, y = torch.empty(4, 3, 16, 16, device="meta"), torch.empty(4, dtype=torch.long, device="meta")
    loss = phase.total(Step(x, y, model, job, trained, Key.root(1), 1))
    grads = torch.autograd.grad(
        loss, list(trained.values()), allow_unused=True, materialize_grads=True
    )
    assert [g.shape for g in grads] == [p.shape for p in trained.values()]
    SGDRule(0.9, True, 1e-4).step(list(trained.values()), lambda n: list(grads), 0.1, None)

    uploads = {"model": zeros(params), **{word: zeros(dict(trained)) for word in method.sends}}
    replies = tuple(Reply(c, 10, 10, uploads) for c in range(2))
    cohort = Cohort(0, params, replies, 4, Roles.of(model), Key.root(2))
    for stage in method.server:
        _, cohort = stage.step(stage.init({n: params[n] for n in trained}), cohort)
    assert {n: (t.shape, t.device.type) for n, t in cohort.params.items()} == {
        n: (t.shape, "meta") for n, t in params.items()
    }
