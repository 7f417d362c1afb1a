"""Methods against numbers from their authors' code.

Server updates, loss terms, whole rounds, and an aggregation with buffers.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.compose import join
from fedloom.core.key import Key
from fedloom.core.method import Method
from fedloom.core.optimisers import SGDRule
from fedloom.core.sampler import everyone
from fedloom.core.server import By
from fedloom.core.solver import Schedule, Sgd
from fedloom.core.state import MemoryStore, ServerState
from fedloom.core.step import Step
from fedloom.methods.ditto import ditto
from fedloom.methods.fedadam import fedadam
from fedloom.methods.fedavg import fedavg
from fedloom.methods.fedavgm import fedavgm
from fedloom.methods.feddyn import feddyn
from fedloom.methods.fedprox import fedprox
from fedloom.methods.perfedavg import perfedavg
from fedloom.methods.pfedme import pfedme
from support.clients import TensorClient
from support.golden import golden
from support.golden_problems import (
    POINT,
    FixedUpdates,
    Problem,
    empty_clients,
    fixed_cohorts,
    fixed_order,
    problem,
    starting_at,
)
from support.models import vector
from support.simulate import SimulationResult, simulate, standalone_job

SERVER = golden("fedmlb/server_updates")
MISC = golden("fedalign/f_misc")
PFL = golden("fedafa/e_pfl_rounds")
HP = {
    name.removeprefix("hp_"): float(value) for name, value in PFL.items() if name.startswith("hp_")
}


def close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


def replay(method: Method, rounds: int = 3) -> list[SimulationResult]:
    """The golden updates of four of ten clients through a method, round by round."""
    ids = SERVER["srv/client_ids"].tolist()
    solver = FixedUpdates(lambda t, c: SERVER["srv/deltas"][t, ids[t].index(c)])
    setting: dict[str, Any] = {
        "build": starting_at(SERVER["srv/w0"]),
        "clients": empty_clients([1] * int(SERVER["srv/num_clients"])),
        "sampler": fixed_cohorts(ids),
        "solver": solver,
    }
    return [simulate(method, until=t + 1, **setting) for t in range(rounds)]


def memory(result: SimulationResult, word: str) -> Tensor:
    """The only stage memory of this name."""
    (found,) = [m[word] for m in result.state.memory.values() if word in m]
    return found[POINT]


def test_fedavg_weights_clients_by_samples() -> None:
    solver = FixedUpdates(lambda t, c: SERVER["fedavg/client_deltas"][t, c])
    for t, expected in enumerate(SERVER["fedavg/w_after"]):
        clients = empty_clients(SERVER["fedavg/sizes"].tolist())
        result = simulate(
            fedavg(),
            t + 1,
            build=starting_at(SERVER["fedavg/w0"]),
            clients=clients,
            sampler=everyone(),
            solver=solver,
        )
        close(result.state.params[POINT], expected)


def test_the_learning_rate_of_a_round() -> None:
    rates = [Schedule("exponential", 0.998).at(0.1, t) for t in range(2)]
    close(torch.tensor(rates, dtype=torch.float64), SERVER["fedavg/lr_per_round"])


@pytest.mark.parametrize("beta", [0.4, 0.6, 0.8])
def test_fedavgm(beta: float) -> None:
    for t, result in enumerate(replay(fedavgm(beta))):
        close(result.state.params[POINT], SERVER[f"fedavgm/beta{beta}/w"][t])
        close(memory(result, "velocity"), SERVER[f"fedavgm/beta{beta}/m"][t])


@pytest.mark.parametrize("setting", ["paper", "big"])
def test_fedadam(setting: str) -> None:
    beta1, beta2, tau, lr = SERVER[f"fedadam/{setting}/hyper"].tolist()
    for t, result in enumerate(replay(fedadam(lr, beta1, beta2, tau))):
        close(result.state.params[POINT], SERVER[f"fedadam/{setting}/w"][t])
        close(memory(result, "first"), SERVER[f"fedadam/{setting}/m"][t])
        close(memory(result, "second"), SERVER[f"fedadam/{setting}/v"][t])


def test_feddyn() -> None:
    for t, result in enumerate(replay(feddyn(float(SERVER["feddyn/alpha"])))):
        close(result.state.params[POINT], SERVER["feddyn/w"][t])
        close(memory(result, "h"), SERVER["feddyn/h"][t])
        for client, expected in enumerate(SERVER["feddyn/client_g"][t]):
            memories = result.store.recall(client)
            close(memories["feddyn"][POINT] if memories else torch.zeros_like(expected), expected)


@pytest.mark.parametrize(
    ("make", "value", "gradient"),
    [
        (
            lambda: feddyn(float(SERVER["feddyn/alpha"])),
            "feddyn_client/value",
            "feddyn_client/grad",
        ),
        (
            lambda: fedprox(float(SERVER["fedprox/mu"])),
            "fedprox/value_half_mu",
            "fedprox/grad_half_mu",
        ),
    ],
    ids=["feddyn", "fedprox"],
)
def test_loss_terms(make: Callable[[], Method], value: str, gradient: str) -> None:
    build, theta = vector(8), SERVER["feddyn_client/theta"].clone().requires_grad_()
    memories = {"feddyn": {POINT: SERVER["feddyn_client/g"]}}
    job = standalone_job(build, {POINT: SERVER["feddyn_client/anchor"]}, memories=memories)
    (phase,) = make().phases
    nowhere = torch.zeros(1, 1)
    step = Step(nowhere, nowhere, build(), job, {POINT: theta}, Key.root(0), 1)
    total = sum(term(step) for term in phase.terms)
    close(total, SERVER[value])
    close(torch.autograd.grad(total, theta)[0], SERVER[gradient])


def linear() -> Chain:
    chain = Chain({"head": nn.Linear(12, 5)}).double()
    with torch.no_grad():
        chain.block("head").weight.copy_(MISC["prox_W0"])
        chain.block("head").bias.copy_(MISC["prox_b0"])
    return chain


def test_fedprox_trains_as_in_fedaligns_comparison() -> None:
    x, y = MISC["prox_x"].flatten(0, 1), MISC["prox_y"].flatten()
    method = fedprox(float(MISC["prox_mu"]))
    method = replace(method, phases=(replace(method.phases[0], order=fixed_order(len(y))),))
    # The optimiser of all methods in that comparison.
    rule = SGDRule(momentum=0.9, nesterov=True, weight_decay=1e-4)
    solver = Sgd(lr=float(MISC["prox_lr"]), batch=6, epochs=int(MISC["prox_epochs"]), rule=rule)
    after = simulate(
        method, 1, build=linear, clients=[TensorClient(x, y)], sampler=everyone(), solver=solver
    ).state.params
    close(after["head.weight"], MISC["prox_W_after"])
    close(after["head.bias"], MISC["prox_b_after"])


class ConvNorm(nn.Module):
    """The two layers of the golden aggregation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 1, bias=False)
        self.bn = nn.BatchNorm2d(2)


class GoldenState:
    """A solver that ends at the golden state of its client."""

    def __call__(self, model: Chain, objective: Any, job: Any, key: Key) -> Any:
        prefix = f"agg_client{job.client}/"
        model.load_state_dict(
            {f"net.{n.removeprefix(prefix)}": t for n, t in MISC.items() if n.startswith(prefix)}
        )
        return FixedUpdates(lambda t, c: torch.zeros(()))(model, objective, job, key)


@pytest.mark.parametrize("counted", [0, 7])
def test_aggregation_with_buffers_truncates_counters(counted: int) -> None:
    def build() -> Chain:
        chain = Chain({"net": ConvNorm()}).double()
        chain.get_buffer("net.bn.num_batches_tracked").fill_(counted)
        return chain

    clients = empty_clients(MISC["agg_num_samples"].tolist())
    params = simulate(
        fedavg(), 1, build=build, clients=clients, sampler=everyone(), solver=GoldenState()
    ).state.params
    assert params["net.bn.num_batches_tracked"].dtype == torch.int64
    assert int(params["net.bn.num_batches_tracked"]) == 38  # of 38.125
    for name, tensor in params.items():
        close(tensor, MISC[f"agg_global/{name.removeprefix('net.')}"])


on_both_problems = pytest.mark.parametrize(
    "case", [problem(n, PFL) for n in ("quad", "log")], ids=lambda c: c.name
)
by_both_means = pytest.mark.parametrize(
    ("by", "word"), [("samples", "weighted"), ("clients", "uniform")]
)


def one_round(method: Method, case: Problem, by: By = "samples", **given: Any) -> SimulationResult:
    """One round of all three clients of the golden file, on its functions and mini-batches."""
    method = join([method, fedavg(weights=by)])
    phases, finale = (
        tuple(replace(p, **case.phase) for p in part) for part in (method.phases, method.finale)
    )
    since = ServerState(0, {POINT: case.w0}), given.pop("store", MemoryStore())
    setting = {
        "build": starting_at(case.w0),
        "clients": case.clients,
        "sampler": everyone(),
        "resume_from": since,
    }
    return simulate(replace(method, phases=phases, finale=finale), 1, **setting, **given)


def compare(result: SimulationResult, case: Problem, method: str, word: str) -> None:
    """The clients' models and the server's against the golden file."""
    for reply, expected in zip(result.replies, PFL[f"{case.name}_{method}_local_w"], strict=True):
        close(case.w0 + reply.uploads["model"][POINT], expected)
    close(result.state.params[POINT], PFL[f"{case.name}_{method}_global_{word}"])


def compare_personal(result: SimulationResult, expected: Tensor) -> None:
    """The clients' final models."""
    for client, model in enumerate(expected):
        close(result.personal(client)[POINT], model)


@on_both_problems
def test_fedprox_round(case: Problem) -> None:
    solver = Sgd(lr=HP["fedprox_eta"], batch=1, steps=int(HP["fedprox_steps"]))
    compare(one_round(fedprox(HP["fedprox_mu"]), case, solver=solver), case, "fedprox", "weighted")


@on_both_problems
@by_both_means
def test_ditto_round(case: Problem, by: By, word: str) -> None:
    """The personal models do not start where the global one does."""
    store = MemoryStore()
    for client, v0 in enumerate(case.v0):
        store.remember(client, {"personal": {POINT: v0}})
    solver = Sgd(lr=HP["ditto_eta"], batch=1, steps=int(HP["ditto_steps_global"]))
    result = one_round(ditto(HP["ditto_lambda"]), case, by, solver=solver, store=store)
    compare(result, case, "ditto", word)
    compare_personal(result, PFL[f"{case.name}_ditto_personal"])


@on_both_problems
@by_both_means
@pytest.mark.parametrize(("decay", "tag"), [(0.0, "mu0"), (HP["pfedme_mu"], "mu1e3")])
def test_pfedme_round(case: Problem, by: By, word: str, decay: float, tag: str) -> None:
    """The personal model is theta, which the golden file lists separately from w."""
    method = pfedme(
        lam=HP["pfedme_lambda"],
        inner=int(HP["pfedme_K"]),
        pace=HP["pfedme_eta_p"],
        lr=HP["pfedme_eta"],
        beta=HP["pfedme_beta"],
        decay=decay,
    )
    result = one_round(method, case, by, solver=Sgd(batch=1, steps=int(HP["pfedme_R"])))
    compare(result, case, f"pfedme_{tag}", word)
    compare_personal(result, PFL[f"{case.name}_pfedme_{tag}_theta"])


@on_both_problems
@by_both_means
@pytest.mark.parametrize("variant", ["fo", "hf"])
def test_perfedavg_round(case: Problem, by: By, word: str, variant: Any) -> None:
    """A beta-step from w, not from the adapted weights; finally an alpha-step from the global w."""
    method = perfedavg(
        HP["perfed_alpha"], HP["perfed_beta"], variant, HP["perfed_delta"], int(HP["perfed_steps"])
    )
    result = one_round(method, case, by, solver=Sgd(batch=1))
    compare(result, case, f"perfedavg_{variant}", word)
    if by == "clients":
        compare_personal(
            result,
            PFL[f"{case.name}_perfedavg_{variant}_personal_after_one_alpha_step_from_uniform"],
        )
