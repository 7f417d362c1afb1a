"""What every method must pass. A new method is a new row of CASES."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from fedloom.core.compose import join
from fedloom.core.key import Key
from fedloom.core.method import Method
from fedloom.core.params import sha256
from fedloom.core.sampler import uniform
from fedloom.core.select import norms
from fedloom.core.server import apply_mean, mean
from fedloom.core.solver import Sgd
from fedloom.methods import registry
from fedloom.methods.fedadam import fedadam
from fedloom.methods.fedavg import fedavg
from fedloom.methods.fedavgm import fedavgm
from fedloom.methods.feddyn import feddyn
from fedloom.methods.fedprox import fedprox
from fedloom.methods.fedyogi import fedyogi
from fedloom.methods.scaffold import scaffold
from fedloom.stages.optimise import scale
from support import oracles
from support.clients import tiny_clients
from support.models import NORMS, Build, bare, nested
from support.oracles import State, World
from support.weave import Woven, first_model, through_bytes, weave

ROUNDS = 3
TOLERANCE = 1e-10
Oracle = Callable[[World, State], State]


@dataclass(frozen=True)
class Twin:
    """A method at its degenerate parameter, and the plain one it then equals bit for bit, for so many rounds."""

    method: Method
    plain: Method = field(default_factory=fedavg)
    rounds: int = ROUNDS


@dataclass(frozen=True)
class Case:
    """A method, its naive oracle, and where it degenerates."""

    name: str
    make: Callable[[], Method]
    oracle: Oracle
    twin: Twin | None = None
    drop_last: bool = False

    @property
    def solver(self) -> Sgd:
        return Sgd(lr=0.1, batch=4, epochs=2, drop_last=self.drop_last)


def averaging(by: str = "samples", mu: float = 0.0) -> Oracle:
    return lambda world, first: oracles.averaged(world, first, ROUNDS, by, mu)


def moving(rule: Callable[..., oracles.Server], *args: Any, mu: float = 0.0) -> Oracle:
    return lambda world, first: oracles.averaged(world, first, ROUNDS, mu=mu, server=rule(world, *args))


ADAM = (0.02, 0.7, 0.95, 0.01)
STILL = (1.0, 0.0, 1.0, 0.5)  # the second moment stays at 1/4, so the step is the mean itself
CASES = [
    Case("fedavg", fedavg, averaging(), Twin(Method("scaled by one", server=(mean(), scale(1.0), apply_mean())))),
    Case("fedavg by clients", lambda: fedavg(weights="clients"), averaging("clients")),
    Case("fedavg by seen", lambda: fedavg(weights="seen"), averaging("seen"), drop_last=True),
    Case("fedavg slowed", lambda: fedavg(server_lr=0.5), moving(oracles.momentum, 0.0, 0.5)),
    Case("fedprox", lambda: fedprox(0.7), averaging(mu=0.7), Twin(fedprox(0.0))),
    Case("fedavgm", lambda: fedavgm(0.6, 0.8), moving(oracles.momentum, 0.6, 0.8), Twin(fedavgm(0.0))),
    Case("fedadam", lambda: fedadam(*ADAM), moving(oracles.adaptive, "adam", *ADAM), Twin(fedadam(*STILL))),
    Case("fedyogi", lambda: fedyogi(*ADAM), moving(oracles.adaptive, "yogi", *ADAM), Twin(fedyogi(*STILL))),
    Case(
        "scaffold",
        scaffold,
        lambda world, first: oracles.scaffold(world, first, ROUNDS),
        Twin(scaffold(), fedavg(weights="clients"), rounds=1),
    ),
    Case("scaffold slowed", lambda: scaffold(0.5), lambda world, first: oracles.scaffold(world, first, ROUNDS, lr=0.5)),
    Case("feddyn", lambda: feddyn(0.3), lambda world, first: oracles.feddyn(world, first, ROUNDS, 0.3)),
    Case("fedprox+fedavgm", lambda: join([fedprox(0.7), fedavgm(0.6)]), moving(oracles.momentum, 0.6, mu=0.7)),
    Case("fedprox+fedavg by clients", lambda: join([fedprox(0.7), fedavg(weights="clients")]), averaging("clients", 0.7)),
    Case(
        "scaffold+fedadam",
        lambda: join([scaffold(), fedadam(*ADAM)]),
        lambda world, first: oracles.scaffold(world, first, ROUNDS, oracles.adaptive(world, "adam", *ADAM)),
    ),
    Case(
        "feddyn+fedprox",
        lambda: join([feddyn(0.3), fedprox(0.7)]),
        lambda world, first: oracles.feddyn(world, first, ROUNDS, 0.3, mu=0.7),
    ),
]

every_case = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
with_and_without_norms = pytest.mark.parametrize("build", [nested, bare], ids=["batch norm", "no norm"])


def run(case: Case, method: Method | None = None, until: int = ROUNDS, **given: Any) -> Woven:
    return weave(method or case.make(), until, solver=case.solver, **given)


@every_case
@with_and_without_norms
def test_equals_its_naive_oracle(case: Case, build: Build) -> None:
    world = World(build, tiny_clients(), Key.root(0), uniform(3), drop_last=case.drop_last)
    expected = case.oracle(world, dict(first_model(build).state_dict()))
    got = run(case, build=build).state.params
    assert got.keys() == expected.keys()
    for name, tensor in expected.items():
        assert got[name].dtype == tensor.dtype, name
        torch.testing.assert_close(got[name], tensor, rtol=0, atol=TOLERANCE, msg=lambda m, name=name: f"{name}: {m}")


def test_every_method_has_a_row() -> None:
    assert {case.name.split()[0] for case in CASES if "+" not in case.name} == set(registry.names())


def test_the_cohorts_are_partial_and_meet_a_client_again() -> None:
    """Otherwise the memories of clients would not be tested above."""
    cohorts = [set(report.clients) for report in run(CASES[0]).reports]
    assert all(len(c) == 3 for c in cohorts)
    assert len(set.union(*cohorts)) < sum(map(len, cohorts))


@pytest.mark.parametrize("case", [c for c in CASES if c.twin], ids=lambda c: c.name)
@with_and_without_norms
def test_its_degenerate_parameter_is_the_plain_method(case: Case, build: Build) -> None:
    twin = case.twin
    ours = run(case, twin.method, twin.rounds, build=build).state.params
    plain = run(case, twin.plain, twin.rounds, build=build).state.params
    assert sha256(ours) == sha256(plain)


@every_case
def test_one_seed_one_result(case: Case) -> None:
    hashes = [sha256(run(case, seed=seed).state.params) for seed in (4, 4, 5)]
    assert hashes[0] == hashes[1] != hashes[2]


@every_case
@pytest.mark.parametrize("stop", [1, 2])
def test_interrupted_equals_uninterrupted(case: Case, stop: int) -> None:
    whole, part = run(case), run(case, until=stop)
    resumed = run(case, since=through_bytes(part))
    assert sha256(resumed.state.tensors()) == sha256(whole.state.tensors())
    for client in range(len(whole.loom.federation.clients)):
        ours, theirs = resumed.store.recall(client), whole.store.recall(client)
        assert {s: sha256(m) for s, m in ours.items()} == {s: sha256(m) for s, m in theirs.items()}


@every_case
def test_private_tensors_never_leave_the_client(case: Case) -> None:
    woven = run(case, join([case.make(), Method("private", private=norms)]))
    assert len(woven.replies) == 3 * ROUNDS
    for reply in woven.replies:
        assert all(upload and not NORMS & upload.keys() for upload in reply.uploads.values())
        assert reply.mine["private"].keys() == NORMS
    for name in NORMS:
        assert torch.equal(woven.state.params[name], woven.start.params[name])
