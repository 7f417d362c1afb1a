"""FedMix and its baselines: the common tests of every method, and specific ones."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.compose import join
from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.method import Method, Phase
from fedloom.core.params import sha256
from fedloom.core.spec import Spec
from fedloom.core.step import Step
from fedloom.engines.inprocess import InProcess
from fedloom.engines.vectorised import Vectorised
from fedloom.methods import registry
from fedloom.methods.fedadam import fedadam
from fedloom.methods.fedavgm import fedavgm
from fedloom.methods.feddyn import feddyn
from fedloom.methods.fedmix import fedmix
from fedloom.methods.fedprox import fedprox
from fedloom.methods.globalmixup import globalmixup
from fedloom.methods.meanmix import meanmix
from fedloom.methods.mixup import mixup
from fedloom.methods.naivemix import naivemix
from fedloom.methods.noisemix import noisemix
from fedloom.models.registry import build
from methods import test_common as common
from methods.test_common import ADAM, ROUNDS, Case, Twin, changed, with_and_without_norms
from support import mixup_oracles as oracle
from support import oracles
from support.clients import TensorClient, tiny_clients
from support.feature_mix_oracles import feature_mix, train_in_phases
from support.models import CLASSES, FEATURES, WIDTH, Build, bare
from support.objective_oracles import Objective, fedavg_with_objective
from support.oracles import World
from support.simulate import SOLVER, initial_model, make_simulation, simulate

LAM = 0.2


def locally_with(objective: Any, server: Any) -> common.Oracle:
    return lambda world, first: fedavg_with_objective(
        world, first, ROUNDS, objective, server=server(world)
    )


ALG2 = oracle.fedmix(LAM, LAM * (1 - LAM), oracle.from_all_clients())
COMMON = oracle.fedmix(LAM, LAM * (1 - LAM), oracle.from_all_clients(), common=True)
CASES = [
    Case("fedmix", lambda: fedmix(lam=LAM), changed(ALG2), Twin(fedmix(lam=0.0))),
    Case(
        "fedmix as commonly implemented",
        lambda: fedmix(lam=LAM, derivative="common"),
        changed(COMMON),
        Twin(fedmix(lam=0.0, derivative="common")),
    ),
    Case(
        "fedmix of the equation, with averages of three",
        lambda: fedmix(lam=0.3, coefficient="eq5", size=3, exclude_self=True),
        changed(oracle.fedmix(0.3, 0.3, oracle.from_all_clients(3, but_own=True))),
    ),
    Case(
        "naivemix",
        lambda: naivemix(lam=LAM),
        changed(oracle.naivemix(LAM, oracle.from_all_clients())),
        Twin(naivemix(lam=0.0)),
    ),
    Case(
        "naivemix with averages of two",
        lambda: naivemix(lam=0.4, size=2),
        changed(oracle.naivemix(0.4, oracle.from_all_clients(2))),
    ),
    Case(
        "noisemix",
        lambda: noisemix(LAM, 0.7),
        changed(oracle.naivemix(LAM, oracle.from_noise(0.7))),
        Twin(noisemix(0.0)),
    ),
    Case(
        "meanmix",
        lambda: meanmix(LAM, 3),
        changed(oracle.naivemix(LAM, oracle.from_own_data(3))),
        Twin(meanmix(0.0)),
    ),
    Case(
        "globalmixup",
        lambda: globalmixup(0.4, samples=4),
        changed(oracle.globalmixup(0.4, 0, 4, False)),
        Twin(globalmixup(0.0)),
    ),
    Case(
        "globalmixup with a fixed share of others",
        lambda: globalmixup(0.0, 0.3, samples=0, exclude_self=True),
        changed(oracle.globalmixup(0.0, 0.3, 0, True)),
    ),
    Case(
        "mixup at a block",
        lambda: mixup(0.4, at="stem"),
        changed(oracle.manifold(0.4)),
        Twin(mixup(0.0, at="stem")),
    ),
    Case("fedmix+fedprox", lambda: join([fedmix(lam=LAM), fedprox(0.7)]), changed(ALG2, mu=0.7)),
    Case(
        "fedmix+fedavgm",
        lambda: join([fedmix(lam=LAM), fedavgm(0.6)]),
        locally_with(ALG2, lambda world: oracles.momentum(world, 0.6)),
    ),
    Case(
        "fedmix+fedadam",
        lambda: join([fedmix(lam=LAM), fedadam(*ADAM)]),
        locally_with(ALG2, lambda world: oracles.adaptive(world, "adam", *ADAM)),
    ),
    Case(
        "naivemix+feddyn",
        lambda: join([naivemix(lam=LAM), feddyn(0.3)]),
        lambda world, first: oracles.feddyn(
            world, first, ROUNDS, 0.3, objective=oracle.naivemix(LAM, oracle.from_all_clients())
        ),
    ),
]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)


@every_case
@with_and_without_norms
def test_equals_its_naive_oracle(case: Case, kind: int) -> None:
    common.test_equals_its_naive_oracle(case, kind)


@pytest.mark.parametrize("case", [c for c in CASES if c.twin], ids=lambda c: c.name)
@with_and_without_norms
def test_its_degenerate_parameter_is_the_plain_method(case: Case, kind: int) -> None:
    common.test_its_degenerate_parameter_is_the_plain_method(case, kind)


@every_case
def test_one_seed_one_result(case: Case) -> None:
    common.test_one_seed_one_result(case)


@every_case
@pytest.mark.parametrize("stop", [1, 2])
def test_interrupted_equals_uninterrupted(case: Case, stop: int) -> None:
    common.test_interrupted_equals_uninterrupted(case, stop)


@every_case
def test_private_tensors_never_leave_the_client(case: Case) -> None:
    common.test_private_tensors_never_leave_the_client(case)


def rectified() -> Chain:
    """A model whose layers all have tangent rules."""
    blocks = {
        "body": nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU(inplace=True)),
        "head": nn.Linear(WIDTH, CLASSES),
    }
    return Chain(blocks).double()


def close(got: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert got.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(got[name], tensor, rtol=0, atol=common.TOLERANCE)


@pytest.mark.parametrize(("derivative", "objective"), [("paper", ALG2), ("common", COMMON)])
def test_fedmix_by_tangents_equals_its_oracle(derivative: str, objective: Objective) -> None:
    world = World(rectified, tiny_clients(), Key.root(0), common.uniform(3))
    expected = fedavg_with_objective(
        world, dict(initial_model(rectified).state_dict()), ROUNDS, objective
    )
    method = fedmix(lam=LAM, derivative=derivative)
    close(simulate(method, build=rectified).state.params, expected)


@pytest.mark.parametrize(("batch", "same"), [(1, True), (2, False)])
def test_in_batches_of_one_the_common_derivative_is_the_papers(batch: int, same: bool) -> None:
    solver = replace(SOLVER, batch=batch)
    states = [
        simulate(fedmix(lam=LAM, derivative=derivative), build=bare, solver=solver).state.params
        for derivative in ("paper", "common")
    ]
    assert (sha256(states[0]) == sha256(states[1])) is same


LETTERS, LENGTH = 7, 4


def reader() -> Chain:
    """A tiny text model."""
    body = nn.Sequential(nn.Flatten(), nn.Linear(3 * LENGTH, WIDTH), nn.Tanh())
    return Chain(
        {"embedding": nn.Embedding(LETTERS, 3), "body": body, "head": nn.Linear(WIDTH, CLASSES)}
    ).double()


def recurrent() -> Chain:
    """The package's LSTM, tiny."""
    sizes = {"vocabulary": LETTERS, "embedding": 3, "layers": 2, "width": WIDTH}
    return build(Spec("lstm", sizes), (LENGTH,), CLASSES, Key.root(3), dtype=torch.float64)


def readers() -> list[TensorClient]:
    draws = torch.Generator().manual_seed(21)
    return [
        TensorClient(
            torch.randint(LETTERS, (n, LENGTH), generator=draws),
            torch.randint(CLASSES, (n,), generator=draws),
        )
        for n in (5, 9, 12, 7, 8)
    ]


TEXT = {
    "fedmix": (fedmix(lam=LAM, at="embedding"), LAM * (1 - LAM)),
    "fedmix of the equation": (fedmix(lam=LAM, coefficient="eq5", at="embedding"), LAM),
    "naivemix": (naivemix(lam=LAM, at="embedding"), None),
}


@pytest.mark.parametrize(("method", "weight"), TEXT.values(), ids=TEXT)
@pytest.mark.parametrize("model", [reader, recurrent])
def test_text_is_mixed_after_its_embedding(
    method: Method, weight: float | None, model: Build
) -> None:
    """Averages of characters, sent once, give the mean embeddings of every later round."""
    world = World(model, readers(), Key.root(0), common.uniform(3))
    result = simulate(method, build=model, clients=readers())
    assert result.state.shared["mashed"]["x"].shape == (5, LENGTH, LETTERS)
    turns = feature_mix("embedding", LAM, weight, every_round=False)
    close(
        result.state.params,
        train_in_phases(world, dict(initial_model(model).state_dict()), ROUNDS, turns),
    )


@pytest.mark.parametrize(
    "method", [mixup(0.4, at="embedding"), globalmixup(0.4, at="embedding")], ids=lambda m: m.name
)
def test_text_is_mixed_with_gradients_through_its_embedding(method: Method) -> None:
    result = simulate(method, 1, build=reader, clients=readers())
    assert not torch.equal(
        result.state.params["embedding.weight"], result.start.params["embedding.weight"]
    )


UNFIT = {
    "text as numbers": (
        fedmix(),
        build(Spec("lstm"), (5,), 7, Key.root(0)),
        "needs a model that takes numbers, not text, but",
    ),
    "another encoder": (
        fedmix(at="stem"),
        bare(),
        r"begins with an embedding called 'stem' \(for other blocks, .* every_round=true\), but",
    ),
    "no block to ask about": (
        naivemix(at="head", every_round=True),
        bare(),
        "needs a block 'head' that is not its last, but",
    ),
    "the last block": (mixup(at="head"), bare(), "needs a block 'head' that is not its last, but"),
}


@pytest.mark.parametrize(("method", "chain", "sentence"), UNFIT.values(), ids=UNFIT)
def test_unsuitable_models_are_rejected(method: Method, chain: Chain, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        method.check(chain)


def test_an_unknown_block_is_rejected() -> None:
    with pytest.raises(UserError, match="no block 'embeding'; did you mean 'embedding'"):
        naivemix(at="embeding").check(reader())


@pytest.mark.parametrize("other", [mixup(), naivemix(), globalmixup()], ids=lambda m: m.name)
def test_two_mixing_methods_do_not_join(other: Method) -> None:
    with pytest.raises(UserError, match="two methods set their own mix for 'model'"):
        join([fedmix(), other])


def test_terms_of_other_methods_see_the_scaled_batch_in_the_same_pass() -> None:
    passes: list[Tensor] = []
    seen: list[Step] = []

    def listening() -> Chain:
        chain = bare()
        chain.block("stem").register_forward_hook(
            lambda block, inputs, out: passes.append(inputs[0].detach())
        )
        return chain

    def spy(step: Step) -> Tensor:
        seen.append(step)
        return step.logits.square().mean()

    simulate(join([fedmix(lam=LAM), Method("spy", (Phase(terms=(spy,)),))]), 1, build=listening)
    samples = torch.cat([client.x for client in tiny_clients()])
    assert len(passes) == len(seen) > 0
    for x, step in zip(passes, seen, strict=True):
        assert torch.equal(x, step.x)
        assert float((x[:, None] / (1 - LAM) - samples).abs().amax(2).amin(1).max()) < 1e-12


@pytest.mark.parametrize(
    "method",
    [fedmix(), fedmix(derivative="common"), naivemix(), globalmixup(at="stem")],
    ids=lambda m: m.name,
)
def test_the_vectorised_engine_declines_them(method: Method) -> None:
    federation = make_simulation(method, build=bare).federation
    assert Vectorised(federation, InProcess(federation)).why_not is not None


def test_raw_data_are_announced() -> None:
    (exchange,) = globalmixup(samples=3).prologue
    assert exchange.notice([2, 5, 9], 1) == (
        "RAW DATA: clients send 8 of 16 samples unchanged to the server and to all other clients"
    )
    assert "RAW DATA" in registry.entry("globalmixup").summary


def test_raw_samples_belong_to_their_owners() -> None:
    sent, clients = simulate(globalmixup(samples=3), 0).state.shared["raw"], tiny_clients()
    assert sent["owner"].tolist() == [c for c in range(len(clients)) for _ in range(3)]
    for x, y, owner in zip(sent["x"], sent["y"], sent["owner"].tolist(), strict=True):
        (place,) = (clients[owner].x == x).all(1).nonzero().flatten().tolist()
        assert int(clients[owner].y[place]) == int(y)


@pytest.mark.parametrize("method", [fedmix(), fedmix(at="stem", every_round=True)])
def test_only_fedmix_says_that_its_loss_should_stay_above_0(method: Method) -> None:
    assert method.loss_floor == 0 and join([method, fedprox(0.1)]).loss_floor == 0
    assert fedmix(lam=0.0).loss_floor is None and naivemix().loss_floor is None
    assert join([naivemix(), fedprox(0.1)]).loss_floor is None
