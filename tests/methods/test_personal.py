"""Tests that every personalised method must pass, on the server's and the clients' models.

A new method is a new row of CASES.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
import torch

from fedloom.core.compose import join
from fedloom.core.key import Key
from fedloom.core.method import Method
from fedloom.core.params import Params, sha256
from fedloom.core.sampler import uniform
from fedloom.methods.crt import crt
from fedloom.methods.ditto import ditto
from fedloom.methods.fedavg import fedavg
from fedloom.methods.fedavgm import fedavgm
from fedloom.methods.fedbn import fedbn
from fedloom.methods.fedper import fedper
from fedloom.methods.fedprox import fedprox
from fedloom.methods.fedrep import fedrep
from fedloom.methods.finetune import finetune
from fedloom.methods.lgfedavg import lgfedavg
from fedloom.methods.local_training import local_training
from fedloom.methods.perfedavg import perfedavg
from fedloom.methods.pfedme import pfedme
from fedloom.methods.ros import ros
from support import oracles, personal_oracles
from support.clients import tiny_clients
from support.models import NORMS, Build, bare, nested
from support.oracles import State, World
from support.personal_oracles import FinalModels, IsPrivate, class_balanced
from support.simulate import SimulationResult, initial_model, saved_and_loaded, simulate

ROUNDS = 3
TOLERANCE = 1e-10
CLIENTS = range(len(tiny_clients()))
Oracle = Callable[[World, State], FinalModels]


@dataclass(frozen=True)
class Twin:
    """A method at its degenerate parameter, and the plain one it must equal bit for bit.

    own: whether the clients' models must be equal too.
    """

    method: Method
    plain: Method = field(default_factory=fedavg)
    own: bool = True
    builds: tuple[Build, ...] = (nested, bare)


@dataclass(frozen=True)
class Case:
    """A method, its naive oracle, its degenerate parameter, and what never leaves the client."""

    name: str
    make: Callable[[], Method]
    oracle: Oracle
    twin: Twin | None = None
    home: IsPrivate = lambda tensor: False


def playing(oracle: Callable[..., FinalModels], *args: Any, **given: Any) -> Oracle:
    return lambda world, first: oracle(world, first, ROUNDS, *args, **given)


def keeping(home: IsPrivate, heads: int = 0) -> Oracle:
    return playing(personal_oracles.fedavg_with_private, home, heads)


def is_norm(tensor: str) -> bool:
    return tensor in NORMS


def is_head(tensor: str) -> bool:
    return tensor.startswith("head.")


def is_body(tensor: str) -> bool:
    return not is_head(tensor)


def is_either(tensor: str) -> bool:
    return is_norm(tensor) or is_head(tensor)


def is_after_stem(tensor: str) -> bool:
    return not tensor.startswith("stem.")


def is_any(tensor: str) -> bool:
    return True


MOREAU = (6.0, 2, 0.07, 0.05)  # lam, inner, pace, lr
TUNED = (2, 0.03, 5)  # epochs, lr, batch
CASES = [
    Case("local-training", local_training, keeping(is_any), home=is_any),
    Case("fedbn", fedbn, keeping(is_norm), Twin(fedbn(), builds=(bare,)), is_norm),
    Case("lgfedavg", lgfedavg, keeping(is_body), home=is_body),
    Case("fedper", fedper, keeping(is_head), home=is_head),
    Case("fedper of two blocks", lambda: fedper(2), keeping(is_after_stem), home=is_after_stem),
    Case("fedrep", fedrep, keeping(is_head, heads=1), home=is_head),
    Case("fedrep of three passes", lambda: fedrep(3), keeping(is_head, heads=3), home=is_head),
    Case(
        "ditto",
        lambda: ditto(0.7),
        playing(personal_oracles.ditto, 0.7),
        Twin(ditto(0.7), own=False),
    ),
    Case("ditto alone", lambda: ditto(0.0), playing(personal_oracles.ditto, 0.0)),
    Case(
        "pfedme",
        lambda: pfedme(*MOREAU),
        playing(personal_oracles.pfedme, *MOREAU, 1.0, 0.0),
        Twin(pfedme(0.0, *MOREAU[1:]), fedavg(server_lr=0.0), own=False, builds=(bare,)),
    ),
    Case(
        "pfedme decayed",
        lambda: pfedme(*MOREAU, 0.6, 0.01),
        playing(personal_oracles.pfedme, *MOREAU, 0.6, 0.01),
    ),
    Case(
        "perfedavg",
        lambda: perfedavg(0.05, 0.08, steps=3),
        playing(personal_oracles.perfedavg, 0.05, 0.08, None, 3, 1),
    ),
    Case(
        "perfedavg of the Hessian",
        lambda: perfedavg(0.05, 0.08, "hf", 0.01, 2, adapt=3),
        playing(personal_oracles.perfedavg, 0.05, 0.08, 0.01, 2, 3),
    ),
    Case(
        "finetune",
        lambda: finetune(*TUNED),
        playing(personal_oracles.finetuned, *TUNED),
        Twin(finetune(0)),
    ),
    Case(
        "ros",
        lambda: ros(*TUNED),
        playing(personal_oracles.finetuned, *TUNED, class_balanced),
        Twin(ros(0)),
    ),
    Case(
        "crt",
        lambda: crt(False, *TUNED),
        playing(personal_oracles.finetuned, *TUNED, class_balanced, "head."),
        Twin(crt(epochs=0)),
    ),
    Case(
        "fedprox+finetune",
        lambda: join([fedprox(0.7), finetune(*TUNED)]),
        playing(personal_oracles.finetuned, *TUNED, mu=0.7),
    ),
    Case(
        "fedavgm+ros",
        lambda: join([fedavgm(0.6), ros(*TUNED)]),
        lambda world, first: personal_oracles.finetuned(
            world, first, ROUNDS, *TUNED, class_balanced, server=oracles.momentum(world, 0.6)
        ),
    ),
    Case(
        "ditto+fedprox+fedavgm",
        lambda: join([ditto(0.7), fedprox(0.4), fedavgm(0.6)]),
        lambda world, first: personal_oracles.ditto(
            world, first, ROUNDS, 0.7, 0.4, oracles.momentum(world, 0.6)
        ),
        Twin(join([ditto(0.7), fedprox(0.0), fedavgm(0.0)]), ditto(0.7)),
    ),
    Case(
        "fedbn+fedavgm",
        lambda: join([fedbn(), fedavgm(0.6)]),
        lambda world, first: personal_oracles.fedavg_with_private(
            world, first, ROUNDS, is_norm, server=oracles.momentum(world, 0.6)
        ),
        Twin(join([fedbn(), fedavgm(0.0)]), fedbn()),
        is_norm,
    ),
    Case("fedbn+fedper", lambda: join([fedbn(), fedper()]), keeping(is_either), home=is_either),
]

every_case = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
with_and_without_norms = pytest.mark.parametrize("build", [nested, bare])


def same(got: Params, expected: State, whose: str) -> None:
    assert got.keys() == expected.keys(), whose
    for name, tensor in expected.items():
        assert got[name].dtype == tensor.dtype, name
        torch.testing.assert_close(
            got[name],
            tensor,
            rtol=0,
            atol=TOLERANCE,
            msg=lambda m, name=name: f"{whose}, {name}: {m}",
        )


@cache
def whole(case: Case) -> SimulationResult:
    """An uninterrupted run, shared by several tests."""
    return simulate(case.make(), ROUNDS)


def everything(result: SimulationResult) -> dict[str, str]:
    """Hashes of the server's state and of every client's memories and final model."""
    found = {"server": sha256(result.state.tensors())}
    found |= {
        f"{c} {slot}": sha256(p) for c in CLIENTS for slot, p in result.store.recall(c).items()
    }
    return found | {f"{c} at last": sha256(result.personal(c)) for c in CLIENTS}


@every_case
@with_and_without_norms
def test_equals_its_naive_oracle(case: Case, build: Build) -> None:
    world = World(build, tiny_clients(), Key.root(0), uniform(3))
    server, own = case.oracle(world, dict(initial_model(build).state_dict()))
    result = whole(case) if build is nested else simulate(case.make(), ROUNDS, build=build)
    same(result.state.params, server, "server")
    for client in CLIENTS:
        same(result.personal(client), own[client], f"client {client}")


def test_some_client_is_never_sampled_and_some_twice() -> None:
    asked = [c for report in simulate(local_training(), ROUNDS).reports for c in report.clients]
    assert set(asked) < set(CLIENTS)
    assert len(set(asked)) < len(asked)


@pytest.mark.parametrize(
    ("twin", "build"),
    [
        pytest.param(c.twin, b, id=f"{c.name} {b.__name__}")
        for c in CASES
        if c.twin
        for b in c.twin.builds
    ],
)
def test_its_degenerate_parameter_is_the_plain_method(twin: Twin, build: Build) -> None:
    ours, plain = (simulate(method, ROUNDS, build=build) for method in (twin.method, twin.plain))
    assert sha256(ours.state.params) == sha256(plain.state.params)
    for client in CLIENTS if twin.own else ():
        assert sha256(ours.personal(client)) == sha256(plain.personal(client))


@every_case
def test_one_seed_one_result(case: Case) -> None:
    again, other = (everything(simulate(case.make(), ROUNDS, seed=seed)) for seed in (0, 5))
    assert everything(whole(case)) == again != other


@every_case
def test_interrupted_equals_uninterrupted(case: Case) -> None:
    resumed = simulate(case.make(), ROUNDS, resume_from=saved_and_loaded(simulate(case.make(), 1)))
    assert everything(resumed) == everything(whole(case))


@every_case
def test_what_is_private_never_leaves_the_client(case: Case) -> None:
    result = whole(case)
    home = {n for n in result.start.params if case.home(n)}
    assert len(result.replies) == 3 * ROUNDS
    for reply in result.replies:
        for upload in reply.uploads.values():
            assert not home & upload.keys()
        assert home <= reply.memories.get("private", {}).keys()
    for name in home:
        assert torch.equal(result.state.params[name], result.start.params[name])
