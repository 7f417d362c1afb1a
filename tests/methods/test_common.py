"""Tests that every method must pass. A new method is a new row of CASES."""

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
from fedloom.methods.fedadam import fedadam
from fedloom.methods.fedalign import fedalign
from fedloom.methods.fedavg import fedavg
from fedloom.methods.fedavgm import fedavgm
from fedloom.methods.feddyn import feddyn
from fedloom.methods.fedgkd import fedgkd
from fedloom.methods.fedmlb import fedmlb
from fedloom.methods.fedntd import fedntd
from fedloom.methods.fedprox import fedprox
from fedloom.methods.fedyogi import fedyogi
from fedloom.methods.fitnet import fitnet
from fedloom.methods.gradaug import gradaug
from fedloom.methods.kd import kd
from fedloom.methods.mixup import mixup
from fedloom.methods.moon import moon
from fedloom.methods.scaffold import scaffold
from fedloom.methods.stochdepth import stochdepth
from fedloom.stages.optimise import scale
from support import distillation_oracles, objective_oracles, oracles, subnetwork_oracles
from support.clients import tiny_clients
from support.models import NESTED, RESIDUAL, Family
from support.oracles import State, World
from support.simulate import (
    SimulationResult,
    initial_model,
    reshaped_build,
    saved_and_loaded,
    simulate,
)

ROUNDS = 3
TOLERANCE = 1e-10
Oracle = Callable[[World, State], State]


@dataclass(frozen=True)
class Twin:
    """A method at its degenerate parameter, and the plain one it must equal bit for bit.

    rounds: for how many rounds.
    """

    method: Method
    plain: Method = field(default_factory=fedavg)
    rounds: int = ROUNDS


@dataclass(frozen=True)
class Case:
    """A method, its naive oracle, and its degenerate parameter."""

    name: str
    make: Callable[[], Method]
    oracle: Oracle
    twin: Twin | None = None
    drop_last: bool = False
    family: Family = NESTED

    @property
    def solver(self) -> Sgd:
        return Sgd(lr=0.1, batch=4, epochs=2, drop_last=self.drop_last)


def averaging(by: str = "samples", mu: float = 0.0) -> Oracle:
    return lambda world, first: oracles.fedavg(world, first, ROUNDS, by, mu)


def moving(rule: Callable[..., oracles.Server], *args: Any, mu: float = 0.0) -> Oracle:
    return lambda world, first: oracles.fedavg(
        world, first, ROUNDS, mu=mu, server=rule(world, *args)
    )


def changed(objective: objective_oracles.Objective, mu: float = 0.0) -> Oracle:
    return lambda world, first: objective_oracles.fedavg_with_objective(
        world, first, ROUNDS, objective, mu
    )


def served(
    objective: objective_oracles.Objective, rule: Callable[..., oracles.Server], *args: Any
) -> Oracle:
    return lambda world, first: objective_oracles.fedavg_with_objective(
        world, first, ROUNDS, objective, server=rule(world, *args)
    )


ADAM = (0.02, 0.7, 0.95, 0.01)
STILL = (1.0, 0.0, 1.0, 0.5)  # the second moment stays at 1/4, so the step is the plain mean
MLB = distillation_oracles.fedmlb(1, 1, 1, [1, 2], 2)
CASES = [
    Case(
        "fedavg",
        fedavg,
        averaging(),
        Twin(Method("scaled by one", server=(mean(), scale(1.0), apply_mean()))),
    ),
    Case("fedavg by clients", lambda: fedavg(weights="clients"), averaging("clients")),
    Case("fedavg by seen", lambda: fedavg(weights="seen"), averaging("seen"), drop_last=True),
    Case("fedavg slowed", lambda: fedavg(server_lr=0.5), moving(oracles.momentum, 0.0, 0.5)),
    Case("fedprox", lambda: fedprox(0.7), averaging(mu=0.7), Twin(fedprox(0.0))),
    Case(
        "fedavgm", lambda: fedavgm(0.6, 0.8), moving(oracles.momentum, 0.6, 0.8), Twin(fedavgm(0.0))
    ),
    Case(
        "fedadam",
        lambda: fedadam(*ADAM),
        moving(oracles.adaptive, "adam", *ADAM),
        Twin(fedadam(*STILL)),
    ),
    Case(
        "fedyogi",
        lambda: fedyogi(*ADAM),
        moving(oracles.adaptive, "yogi", *ADAM),
        Twin(fedyogi(*STILL)),
    ),
    Case(
        "scaffold",
        scaffold,
        lambda world, first: oracles.scaffold(world, first, ROUNDS),
        Twin(scaffold(), fedavg(weights="clients"), rounds=1),
    ),
    Case(
        "scaffold slowed",
        lambda: scaffold(0.5),
        lambda world, first: oracles.scaffold(world, first, ROUNDS, lr=0.5),
    ),
    Case(
        "feddyn",
        lambda: feddyn(0.3),
        lambda world, first: oracles.feddyn(world, first, ROUNDS, 0.3),
    ),
    Case(
        "fedprox+fedavgm",
        lambda: join([fedprox(0.7), fedavgm(0.6)]),
        moving(oracles.momentum, 0.6, mu=0.7),
    ),
    Case(
        "fedprox+fedavg by clients",
        lambda: join([fedprox(0.7), fedavg(weights="clients")]),
        averaging("clients", 0.7),
    ),
    Case(
        "scaffold+fedadam",
        lambda: join([scaffold(), fedadam(*ADAM)]),
        lambda world, first: oracles.scaffold(
            world, first, ROUNDS, oracles.adaptive(world, "adam", *ADAM)
        ),
    ),
    Case(
        "feddyn+fedprox",
        lambda: join([feddyn(0.3), fedprox(0.7)]),
        lambda world, first: oracles.feddyn(world, first, ROUNDS, 0.3, mu=0.7),
    ),
    Case(
        "moon",
        lambda: moon(0.8, 0.4, 4),
        changed(objective_oracles.moon(0.8, 0.4)),
        Twin(moon(0.0, projection=0)),
    ),
    Case(
        "moon unprojected",
        lambda: moon(1.3, projection=0),
        changed(objective_oracles.moon(1.3, 0.5)),
    ),
    Case("mixup", lambda: mixup(0.4), changed(objective_oracles.mixup(0.4)), Twin(mixup(0.0))),
    Case(
        "stochdepth",
        lambda: stochdepth(0.3),
        changed(objective_oracles.stochdepth(0.3)),
        Twin(stochdepth(1.0)),
        family=RESIDUAL,
    ),
    Case(
        "moon+fedavgm",
        lambda: join([moon(0.8, projection=4), fedavgm(0.6)]),
        served(objective_oracles.moon(0.8, 0.5), oracles.momentum, 0.6),
    ),
    Case(
        "stochdepth+fedprox",
        lambda: join([stochdepth(0.3), fedprox(0.7)]),
        changed(objective_oracles.stochdepth(0.3), mu=0.7),
        family=RESIDUAL,
    ),
    Case(
        "fedalign",
        lambda: fedalign(0.45, 0.6, clip=0),
        changed(subnetwork_oracles.fedalign(0.45, 3)),
        Twin(fedalign(0.0, clip=0)),
    ),
    Case(
        "fedalign of the paper",
        lambda: fedalign(0.1, 0.4, "paper", clip=0.5),
        changed(subnetwork_oracles.fedalign(0.1, 2, scaled=False, clip=0.5)),
    ),
    Case(
        "fedalign+fedadam",
        lambda: join([fedalign(0.45, 0.6), fedadam(*ADAM)]),
        served(subnetwork_oracles.fedalign(0.45, 3), oracles.adaptive, "adam", *ADAM),
    ),
    Case(
        "fedalign+mixup",
        lambda: join([fedalign(0.45, 0.6, clip=0.5), mixup(0.4)]),
        changed(subnetwork_oracles.fedalign(0.45, 3, clip=0.5, blend=0.4)),
    ),
    Case(
        "gradaug",
        lambda: gradaug(3, 0.7, 0.5, smallest=1),
        changed(subnetwork_oracles.gradaug(3, 0.7, 0.5)),
        Twin(gradaug(mu=0)),
    ),
    Case(
        "gradaug of the paper",
        lambda: gradaug(2, 0.7, 0.5, "all", smallest=1),
        changed(subnetwork_oracles.gradaug(2, 0.7, 0.5, floor=False)),
    ),
    Case(
        "fedmlb",
        lambda: fedmlb(0.8, 1.3, 1.5),
        changed(distillation_oracles.fedmlb(0.8, 1.3, 1.5, [1, 2], 2)),
        Twin(fedmlb(0.0, 0.0)),
    ),
    Case(
        "fedmlb of one level, as the authors divide",
        lambda: fedmlb(pathways=2, divisor="all"),
        changed(distillation_oracles.fedmlb(1.0, 1.0, 1.0, [2], 2)),
    ),
    Case(
        "fedmlb reversed",
        lambda: fedmlb(0.8, 1.3, 1.5, graft="global-to-local"),
        changed(distillation_oracles.fedmlb(0.8, 1.3, 1.5, [1, 2], 2, reverse=True)),
    ),
    Case(
        "fedmlb+fedavgm", lambda: join([fedmlb(), fedavgm(0.6)]), served(MLB, oracles.momentum, 0.6)
    ),
    Case(
        "fedmlb+fedadam",
        lambda: join([fedmlb(), fedadam(*ADAM)]),
        served(MLB, oracles.adaptive, "adam", *ADAM),
    ),
    Case(
        "fedmlb+fedyogi",
        lambda: join([fedmlb(), fedyogi(*ADAM)]),
        served(MLB, oracles.adaptive, "yogi", *ADAM),
    ),
    Case("fedmlb+fedprox", lambda: join([fedmlb(), fedprox(0.7)]), changed(MLB, mu=0.7)),
    Case(
        "fedmlb+feddyn",
        lambda: join([fedmlb(), feddyn(0.3)]),
        lambda world, first: oracles.feddyn(world, first, ROUNDS, 0.3, objective=MLB),
    ),
    Case(
        "fedmlb+scaffold",
        lambda: join([fedmlb(), scaffold()]),
        lambda world, first: distillation_oracles.scaffold(world, first, ROUNDS, MLB),
    ),
    Case("kd", lambda: kd(0.4, 2.0), changed(distillation_oracles.kd(0.4, 2.0)), Twin(kd(0.0))),
    Case(
        "fitnet", lambda: fitnet(0.7), changed(distillation_oracles.fitnet(0.7)), Twin(fitnet(0.0))
    ),
    Case(
        "fedntd",
        lambda: fedntd(0.6, 2.0),
        changed(distillation_oracles.fedntd(0.6, 2.0, first=False)),
        Twin(fedntd(0.0)),
    ),
    Case(
        "fedntd of the preprint",
        lambda: fedntd(0.3, form="first"),
        changed(distillation_oracles.fedntd(0.3, 1.0, first=True)),
    ),
    Case(
        "fedgkd",
        lambda: fedgkd(0.6, 2, 1.5),
        changed(distillation_oracles.fedgkd(0.6, 2, 1.5)),
        Twin(fedgkd(0.0)),
    ),
    Case(
        "fedgkd of the newest",
        lambda: fedgkd(0.6, 1),
        changed(distillation_oracles.fedgkd(0.6, 1, 1.0)),
    ),
    Case(
        "fedgkd+fedavgm",
        lambda: join([fedgkd(0.6, 2), fedavgm(0.6)]),
        served(distillation_oracles.fedgkd(0.6, 2, 1.0), oracles.momentum, 0.6),
    ),
    Case(
        "gradaug+feddyn",
        lambda: join([gradaug(2, 0.7, 0.5, smallest=1), feddyn(0.3)]),
        lambda world, first: oracles.feddyn(
            world, first, ROUNDS, 0.3, objective=subnetwork_oracles.gradaug(2, 0.7, 0.5)
        ),
    ),
]

every_case = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
with_and_without_norms = pytest.mark.parametrize(
    "kind", [0, 1], ids=["batch norm", "no norm"]
)  # of the case's family


def run(
    case: Case, method: Method | None = None, until: int = ROUNDS, **given: Any
) -> SimulationResult:
    return simulate(
        method or case.make(), until, solver=case.solver, **{"build": case.family.normed} | given
    )


@every_case
@with_and_without_norms
def test_equals_its_naive_oracle(case: Case, kind: int) -> None:
    plain = case.family[kind]
    build = reshaped_build(case.make(), plain)
    world = World(build, tiny_clients(), Key.root(0), uniform(3), drop_last=case.drop_last)
    expected = case.oracle(world, dict(initial_model(build).state_dict()))
    got = run(case, build=plain).state.params
    assert got.keys() == expected.keys()
    for name, tensor in expected.items():
        assert got[name].dtype == tensor.dtype, name
        torch.testing.assert_close(
            got[name], tensor, rtol=0, atol=TOLERANCE, msg=lambda m, name=name: f"{name}: {m}"
        )


def test_cohorts_are_partial_and_sample_a_client_twice() -> None:
    """Otherwise the tests above would not cover the clients' memories."""
    cohorts = [set(report.clients) for report in run(CASES[0]).reports]
    assert all(len(c) == 3 for c in cohorts)
    assert len(set.union(*cohorts)) < sum(map(len, cohorts))


@pytest.mark.parametrize("case", [c for c in CASES if c.twin], ids=lambda c: c.name)
@with_and_without_norms
def test_its_degenerate_parameter_is_the_plain_method(case: Case, kind: int) -> None:
    twin, build = case.twin, case.family[kind]
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
    resumed = run(case, resume_from=saved_and_loaded(part))
    assert sha256(resumed.state.tensors()) == sha256(whole.state.tensors())
    for client in range(len(whole.simulation.federation.clients)):
        ours, theirs = resumed.store.recall(client), whole.store.recall(client)
        assert {s: sha256(m) for s, m in ours.items()} == {s: sha256(m) for s, m in theirs.items()}


@every_case
def test_private_tensors_never_leave_the_client(case: Case) -> None:
    result, private = (
        run(case, join([case.make(), Method("private", private=norms)])),
        case.family.norms,
    )
    assert len(result.replies) == 3 * ROUNDS
    for reply in result.replies:
        assert all(upload and not private & upload.keys() for upload in reply.uploads.values())
        assert reply.memories["private"].keys() == private
    for name in private:
        assert torch.equal(result.state.params[name], result.start.params[name])
