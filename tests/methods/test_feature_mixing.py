"""Mixing the outputs of a block, with averages exchanged every round, and its combinations."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedloom.core.compose import join
from fedloom.core.errors import UserError
from fedloom.core.exchange_before_run import notices
from fedloom.core.method import Method
from fedloom.core.params import Params, nbytes, sha256
from fedloom.core.request import Broadcast, Task
from fedloom.core.round import rounds
from fedloom.core.sampler import everyone
from fedloom.core.simulation import init_state, resume_state
from fedloom.core.solver import Sgd
from fedloom.core.state import MemoryStore
from fedloom.engines.inprocess import InProcess
from fedloom.exchange.averaged_data_exchange import averaged_data_exchange
from fedloom.methods.fedadam import fedadam
from fedloom.methods.fedavgm import fedavgm
from fedloom.methods.fedbn import fedbn
from fedloom.methods.fedmix import fedmix
from fedloom.methods.fedprox import fedprox
from fedloom.methods.fedrep import fedrep
from fedloom.methods.naivemix import naivemix
from methods import test_common as common
from methods.test_common import ADAM, ROUNDS, Case, Twin, with_and_without_norms
from support import oracles
from support.clients import tiny_clients
from support.feature_mix_oracles import feature_mix, train_in_phases
from support.feature_mix_oracles import fedrep as rep
from support.models import CLASSES, WIDTH, nested
from support.oracles import State, World
from support.simulate import SimulationResult, initial_model, make_simulation, simulate

LAM = 0.2
SIZES = (5, 9, 12, 7, 16, 8, 21, 10)


def oracle(
    turns: Any,
    mu: float = 0.0,
    server: Callable[[World], oracles.Server] | None = None,
    kept: str | None = None,
) -> Any:
    def run(world: World, first: State) -> State:
        return train_in_phases(
            world, first, ROUNDS, turns, mu, server(world) if server else None, kept
        )

    return run


def mixing(**given: Any) -> Method:
    return fedmix(lam=LAM, every_round=True, **given)


def momentum(world: World) -> oracles.Server:
    return oracles.momentum(world, 0.6)


ALG2 = LAM * (1 - LAM)
CASES = [
    Case(
        "fedmix after the stem",
        lambda: mixing(at="stem"),
        oracle(feature_mix("stem", LAM, ALG2)),
        Twin(fedmix(lam=0.0, at="stem")),
    ),
    Case(
        "fedmix after the body",
        lambda: mixing(at="body", size=4),
        oracle(feature_mix("body", LAM, ALG2, 4)),
    ),
    Case(
        "fedmix of the equation",
        lambda: mixing(at="stem", coefficient="eq5"),
        oracle(feature_mix("stem", LAM, LAM)),
    ),
    Case(
        "naivemix after the body",
        lambda: naivemix(lam=0.3, at="body", every_round=True),
        oracle(feature_mix("body", 0.3, None)),
    ),
    Case(
        "with a proximal term",
        lambda: join([fedprox(0.7), mixing(at="stem")]),
        oracle(feature_mix("stem", LAM, ALG2), 0.7),
    ),
    Case(
        "with momentum",
        lambda: join([mixing(at="stem"), fedavgm(0.6)]),
        oracle(feature_mix("stem", LAM, ALG2), server=momentum),
    ),
    Case(
        "with adam",
        lambda: join([fedadam(*ADAM), naivemix(lam=LAM, at="stem", size=3, every_round=True)]),
        oracle(
            feature_mix("stem", LAM, None, 3),
            server=lambda world: oracles.adaptive(world, "adam", *ADAM),
        ),
    ),
    Case(
        "fedrep with a proximal term",
        lambda: join([fedrep(2), fedprox(0.7)]),
        oracle(rep(2), 0.7, kept="head"),
    ),
    Case(
        "fedrep with momentum",
        lambda: join([fedavgm(0.6), fedrep()]),
        oracle(rep(1), server=momentum, kept="head"),
    ),
]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)


@every_case
@with_and_without_norms
def test_equals_its_naive_oracle(case: Case, kind: int) -> None:
    common.test_equals_its_naive_oracle(case, kind)


@every_case
@pytest.mark.parametrize("stop", [1, 2])
def test_interrupted_equals_uninterrupted(case: Case, stop: int) -> None:
    common.test_interrupted_equals_uninterrupted(case, stop)


@pytest.mark.parametrize("case", [c for c in CASES if "fedrep" not in c.name], ids=lambda c: c.name)
def test_private_tensors_never_leave_the_client(case: Case) -> None:
    common.test_private_tensors_never_leave_the_client(case)


def test_the_answers_are_not_stored() -> None:
    result = simulate(mixing(at="stem"))
    assert (
        result.start.shared == result.state.shared == {}
        and result.start.memory == result.state.memory == {}
    )
    assert resume_state(result.simulation, result.state) is result.state


def test_every_round_counts_the_traffic_of_all_clients() -> None:
    """All clients get the weights and send averages; those that train get the pooled averages."""
    result = simulate(mixing(at="stem", size=4))
    entries, model = sum(-(-size // 4) for size in SIZES), nbytes(result.start.params)
    pooled = entries * (8 * WIDTH + 8 * CLASSES + 8)
    for report in result.reports:
        assert report.bytes_up == 3 * model + pooled
        assert report.bytes_down == len(SIZES) * model + 3 * pooled


def test_an_initial_exchange_beside_one_every_round() -> None:
    """Each takes place when it is due, and both results are available in training."""
    method = replace(
        mixing(at="stem"),
        prologue=(*mixing(at="stem").prologue, averaged_data_exchange()._replace(name="once")),
    )
    result = simulate(method, 2)
    works = [
        set(a)
        for answers in result.answers
        for a in [next(iter(answers.values()))]
        if isinstance(a, dict)
    ]
    assert works == [{"once"}, {"mashed"}, {"mashed"}] and set(result.state.shared) == {"once"}
    plain = simulate(mixing(at="stem"), 2)
    assert sha256(result.state.params) == sha256(plain.state.params)
    gap = [a.bytes_up - b.bytes_up for a, b in zip(result.reports, plain.reports, strict=True)]
    assert gap == [nbytes(result.state.shared["once"]), 0]


def averages(result: SimulationResult, client: int) -> list[Tensor]:
    """What a client sent, round by round."""
    return [
        said[client]["mashed"]["x"] for said in result.answers if isinstance(said.get(client), dict)
    ]


def test_new_noise_is_drawn_every_round() -> None:
    """With constant weights, so that only the noise differs."""
    still = Sgd(lr=0.0, batch=4, epochs=1)
    first, second = averages(simulate(mixing(at="stem", noise=1.0), 2, solver=still), 0)
    quiet, same = averages(simulate(mixing(at="stem"), 2, solver=still), 0)
    assert float((quiet - same).abs().max()) < 1e-12 and float((first - second).abs().min()) > 1e-3


def test_clients_answer_with_their_own_norms() -> None:
    """The second time; the first time with the server's."""
    method, client, model = join([fedbn(), mixing(at="body")]), tiny_clients()[1], nested().eval()
    once, twice = (simulate(method, count, sampler=everyone()) for count in (1, 2))
    held = once.start.params, {**once.state.params, **once.store.recall(1)["private"]}
    for received, sent in zip(held, averages(twice, 1), strict=True):
        model.load_state_dict(received)
        torch.testing.assert_close(
            sent[0], model.run(client.x, until="body").mean(0), rtol=0, atol=1e-12
        )


class Liar(InProcess):
    """An engine in which some clients send invalid answers to a round's exchange."""

    lies: frozenset[int] = frozenset()

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        for client, said in super().map(sent, tasks):
            broken = sent.work == "exchange every round" and client in self.lies
            yield (
                client,
                {"mashed": spoilt(said["mashed"])} if broken else said,
            )


def spoilt(answer: Params) -> Params:
    return {**answer, "x": answer["x"] * torch.nan}


def one_round(lies: frozenset[int]) -> Any:
    simulation = make_simulation(mixing(at="stem"), strict=False)
    engine = Liar(simulation.federation)
    engine.lies = lies
    simulation = replace(simulation, engine=engine)
    return next(
        rounds(
            simulation,
            init_state(simulation, initial_model(simulation.federation.build)),
            MemoryStore(),
            1,
        )
    )


def test_an_invalid_answer_is_left_out_and_reported() -> None:
    state, report = one_round(frozenset({2}))
    assert report.rejected == {
        2: "the answer of client 2 to the exchange 'mashed' is left out: tensor 'x' is not finite"
    }
    assert all(bool(torch.isfinite(t).all()) for t in state.params.values())


def test_a_round_without_a_valid_answer_is_skipped() -> None:
    state, report = one_round(frozenset(range(len(SIZES))))
    assert report.skipped is not None
    assert report.skipped.startswith("every answer to the exchange 'mashed' is invalid (client 0: ")
    assert report.clients == () and report.rejected.keys() == set(range(len(SIZES)))
    assert state.round == 1


def test_every_round_counts_as_a_release() -> None:
    accounting = pytest.importorskip("dp_accounting", reason="needs fedloom[privacy]")
    private = {"clip": 1.0, "noise": 1.0, "label_noise": 1.0}
    federation = make_simulation(mixing(at="stem", **private)).federation
    (said,) = notices(federation, 50)
    assert "before every round" in said and "'stem'" in said and "50 times (" in said
    accountant = accounting.pld.PLDAccountant(value_discretization_interval=1e-3)
    for deviation in (5 / 2, 5 / 2**0.5):  # the smallest client has five samples
        accountant.compose(accounting.GaussianDpEvent(deviation), 50)
    figure = float(said.split("(epsilon, delta) = (")[1].split(",")[0])
    assert figure == pytest.approx(accountant.get_epsilon(1e-5), rel=2e-3)
    tight = make_simulation(mixing(at="stem", **private, epsilon=10.0)).federation
    assert len(notices(tight, 1)) == 1
    with pytest.raises(UserError, match="epsilon=10 at delta=1e-05 is exceeded"):
        notices(tight, 50)


def test_every_round_needs_a_block() -> None:
    with pytest.raises(
        UserError,
        match=r"naivemix\(every_round=true\) sends averages of a block's outputs, "
        r"but at='' names no block",
    ):
        naivemix(every_round=True)


def test_means_of_hidden_states_of_a_known_encoder() -> None:
    """By hand: the mean of tanh(Wx + b), not tanh of the mean."""
    result = simulate(mixing(at="stem"), 1)
    first, client = result.start.params, tiny_clients()[3]
    by_hand = torch.tanh(client.x @ first["stem.0.weight"].T + first["stem.0.bias"]).mean(0)
    ((sent,),) = averages(result, 3)
    torch.testing.assert_close(sent, by_hand, rtol=0, atol=1e-12)
