"""FedAFA and M2m: naive oracles, degenerate parameters, and clients without targets."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedloom.core.key import Key
from fedloom.core.method import Method, Phase
from fedloom.core.params import sha256
from fedloom.core.sampler import everyone, uniform
from fedloom.core.select import blocks
from fedloom.core.spec import parse
from fedloom.core.step import Step
from fedloom.losses.adversarial import SourceWeights, draw_pairs_on_cpu, normalised_descent
from fedloom.methods import registry
from fedloom.methods.crt import crt
from fedloom.methods.fedafa import SOURCE_WEIGHTS, fedafa
from fedloom.methods.fedavg import fedavg
from fedloom.methods.finetune import finetuning_sgd
from fedloom.methods.m2m import m2m, m2m_source_weights
from fedloom.methods.ros import class_balanced, ros
from support.clients import TensorClient, tiny_clients
from support.fedafa_oracles import (
    FedAfaClient,
    GeneratingClient,
    GenerationSettings,
    M2mClient,
    UsedLog,
    authors,
    finetuned_on_generated,
)
from support.fedafa_oracles import by_surplus as gained
from support.models import FEATURES, Build, bare, nested, residual
from support.oracles import State, World
from support.personal_oracles import FinalModels
from support.simulate import (
    SimulationResult,
    initial_model,
    saved_and_loaded,
    simulate,
    standalone_job,
)

TUNED = (2, 0.03, 5)  # epochs, lr, batch
TUNE = dict(zip(("epochs", "lr", "batch"), TUNED, strict=True))
TOLERANCE = 1e-10
SOME = tiny_clients((9, 13, 7))


Oracle = Callable[[World, State], tuple[FinalModels, UsedLog]]


@dataclass(frozen=True)
class Case:
    """A method, its naive oracle, and a degenerate setting with the method it must equal."""

    name: str
    make: Callable[[], Method]
    oracle: Oracle
    twin: tuple[Method, Method] | None = None
    builds: tuple[Build, ...] = (nested,)


def playing(kind: type[GeneratingClient], how: GenerationSettings, **changes: Any) -> Oracle:
    return lambda world, first: finetuned_on_generated(
        kind, replace(how, **changes), world, first, 1, TUNED
    )


def ros_after(block: str) -> Method:
    """ROS on the blocks after this one."""
    phase = Phase(
        trains=blocks(after=block), order=class_balanced, solver=finetuning_sgd(*TUNED, 0.9, 5e-4)
    )
    return Method("behind", finale=(phase,))


AFA = GenerationSettings(lam=0.6, accept=0.5, step=0.5, cut=1)
M2M = GenerationSettings(lam=0.5, accept=0.4, step=0.1, weight=gained(0.7))
LETTER = {"step": 1.0, "noise": False, "clamp": False}
MOVING = {"at": "body", "norms": "batch"}
ALL = (nested, bare, residual)
CASES = [
    Case(
        "fedafa",
        lambda: fedafa(**TUNE),
        playing(FedAfaClient, AFA),
        (fedafa(lam=0, **TUNE), ros_after("stem")),
        ALL,
    ),
    Case(
        "local",
        lambda: fedafa("local", **TUNE),
        playing(FedAfaClient, AFA, local=True),
        (fedafa("local", epochs=0), fedavg()),
        ALL,
    ),
    Case(
        "authors",
        lambda: fedafa(weights="authors", **TUNE),
        playing(FedAfaClient, AFA, weight=authors),
    ),
    Case(
        "local authors",
        lambda: fedafa("local", "authors", **TUNE),
        playing(FedAfaClient, AFA, weight=authors, local=True),
    ),
    Case(
        "lam=1",
        lambda: fedafa(lam=1, accept=0.4, iterations=3, **TUNE),
        playing(FedAfaClient, AFA, lam=1.0, accept=0.4, times=3),
    ),
    Case(
        "in front of the last block",
        lambda: fedafa(at="body", **TUNE),
        playing(FedAfaClient, AFA, cut=2),
        (fedafa("local", at="body", lam=0, **TUNE), crt(**TUNE)),
        (nested, residual),
    ),
    Case(
        "moving norms",
        lambda: fedafa(**MOVING, **TUNE),
        playing(FedAfaClient, AFA, cut=2, drift=True),
        builds=(nested, residual),
    ),
    Case(
        "moving local norms",
        lambda: fedafa("local", **MOVING, **TUNE),
        playing(FedAfaClient, AFA, cut=2, drift=True, local=True),
    ),
    Case(
        "paper",
        lambda: fedafa(**LETTER, **TUNE),
        playing(FedAfaClient, AFA, **LETTER),
        builds=(nested, residual),
    ),
    Case(
        "m2m",
        lambda: m2m(0.7, accept=0.4, **TUNE),
        playing(M2mClient, M2M),
        (m2m(1.0, **TUNE), ros(**TUNE)),
        ALL,
    ),
    Case(
        "m2m of the global model alone",
        lambda: m2m(0.7, 0.0, 0.4, 0.3, 4, False, **TUNE),
        playing(M2mClient, M2M, lam=0.0, step=0.3, times=4, noise=False),
        (m2m(epochs=0), fedavg()),
    ),
]
both = pytest.mark.parametrize(
    "text",
    ["fedafa", "fedafa(features=local, weights=authors)", "fedafa(norms=batch, at=body)", "m2m"],
)


def method(text: str) -> Method:
    return registry.build(parse(text))


def ends(result: SimulationResult) -> list[str]:
    """A hash of every client's model."""
    return [sha256(result.personal(c)) for c in range(len(result.simulation.federation.clients))]


@pytest.mark.parametrize(
    ("case", "build"),
    [pytest.param(c, b, id=f"{c.name} {b.__name__}") for c in CASES for b in c.builds],
)
def test_equals_its_naive_oracle(case: Case, build: Build) -> None:
    world = World(build, SOME, Key.root(0), uniform(2))
    (server, own), taken = case.oracle(world, dict(initial_model(build).state_dict()))
    result = simulate(case.make(), 1, build=build, clients=SOME, sampler=uniform(2))
    for got, expected in [
        (result.state.params, server),
        *((result.personal(c), w) for c, w in enumerate(own)),
    ]:
        assert got.keys() == expected.keys()
        for name, tensor in expected.items():
            torch.testing.assert_close(
                got[name], tensor, rtol=0, atol=TOLERANCE, msg=lambda m, name=name: f"{name}: {m}"
            )
    assert 0 < sum(taken) < len(taken)


@pytest.mark.parametrize("case", [c for c in CASES if c.twin], ids=lambda c: c.name)
@pytest.mark.parametrize("build", ALL)
def test_its_degenerate_parameter_is_the_plain_method(case: Case, build: Build) -> None:
    ours, plain = (ends(simulate(m, 1, build=build)) for m in case.twin or ())
    assert ours == plain
    assert ours != ends(simulate(case.make(), 1, build=build))


def of_labels(*labels: list[int]) -> list[TensorClient]:
    draws = torch.Generator().manual_seed(2)
    return [
        TensorClient(
            torch.randn(len(y), FEATURES, generator=draws, dtype=torch.float64), torch.tensor(y)
        )
        for y in labels
    ]


NOTHING_RARE = of_labels([0] * 5, [2] * 7, [1] * 2, [0, 1, 2] * 3, [2, 1] * 4)


@pytest.mark.parametrize("features", ["global", "local"])
@pytest.mark.parametrize("weights", ["paper", "authors"])
@pytest.mark.parametrize("build", ALL)
def test_one_class_or_equal_classes_give_plain_balanced_batches(
    features: str, weights: str, build: Build
) -> None:
    given = {"build": build, "clients": NOTHING_RARE, "sampler": everyone()}
    assert ends(simulate(fedafa(features, weights, **TUNE), 1, **given)) == ends(
        simulate(ros_after("stem"), 1, **given)
    )
    assert ends(simulate(m2m(**TUNE), 1, **given)) == ends(simulate(ros(**TUNE), 1, **given))


@both
def test_clients_of_one_sample(text: str) -> None:
    """Without batch norm they train on it; with batch norm they keep the global model."""
    clients = of_labels([0], [2], [1, 0, 1])
    result = simulate(method(text), 1, build=bare, clients=clients, sampler=everyone())
    assert all(bool(torch.isfinite(t).all()) for c in range(3) for t in result.personal(c).values())
    normed = simulate(method(text), 1, clients=clients, sampler=everyone(), strict=False)
    assert ends(normed)[:2] == [sha256(normed.state.params)] * 2 != ends(normed)[1:]


@both
def test_interrupted_equals_uninterrupted(text: str) -> None:
    resumed = simulate(method(text), 2, resume_from=saved_and_loaded(simulate(method(text), 1)))
    assert (
        ends(resumed) == ends(simulate(method(text), 2)) != ends(simulate(method(text), 2, seed=5))
    )


def test_u_stays_equal_to_the_global_model() -> None:
    """With norms in training mode, only their statistics change."""
    for norms in ("running", "batch"):
        result = simulate(fedafa(at="body", norms=norms, **TUNE), 1)
        moved = {
            n for n, t in result.personal(2).items() if not torch.equal(t, result.state.params[n])
        }
        statistics = {n for n in result.state.params if "running" in n or "tracked" in n}
        assert moved == {"head.weight", "head.bias"} | (statistics if norms == "batch" else set())


# The warning says that no gradient flows into u, as intended.
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_u_runs_once_and_only_targets_are_generated() -> None:
    """Passes per step.

    u: one forward. v: two forward and backward on the batch, and eleven forward and ten backward
    on the targets.
    """
    data = of_labels([0] * 9 + [1] * 4 + [2] * 3)[0]
    job = standalone_job(nested, dict(initial_model(nested).state_dict()), data)
    (phase,), calls = fedafa().finale, Counter[tuple[str, ...]]()
    job.model_pool.set_trainable(phase.trains)
    chains = {
        "own": job.model_pool.load("model", job.received),
        "global": job.frozen("received", "running"),
    }
    for whose, chain in chains.items():
        for name, block in chain.named_children():
            block.register_forward_hook(
                lambda m, x, out, name=(whose, name): calls.update([(*name, "forth", len(out))])
            )
            block.register_full_backward_pre_hook(
                lambda m, out, name=(whose, name): calls.update([(*name, "back", len(out[0]))])
            )
    step = Step(data.x, data.y, chains["own"], job, {}, Key.root(0), 1)
    torch.autograd.grad(
        phase.total(step), [p for p in chains["own"].parameters() if p.requires_grad]
    )
    counts = torch.tensor([9.0, 4.0, 3.0])
    targets = len(
        draw_pairs_on_cpu(data.y, counts, SOURCE_WEIGHTS["paper"](counts), step.key).targets
    )
    assert 0 < targets < 7
    expected = {("global", "stem", "forth", 16): 1}
    for block in ("body", "head"):
        expected["own", block, "forth", 16] = expected["own", block, "back", 16] = 2
        expected["global", block, "forth", targets] = 11
        expected["global", block, "back", targets] = 10
    assert calls == expected


labels = st.lists(st.integers(0, 4), min_size=1, max_size=40)


@given(
    labels,
    st.sampled_from([SOURCE_WEIGHTS["paper"], m2m_source_weights(0.999)]),
    st.integers(0, 99),
    st.data(),
)
def test_sources_come_from_larger_classes(
    held: list[int], weigh: SourceWeights, seed: int, data: st.DataObject
) -> None:
    counts = torch.bincount(torch.tensor(held)).double()
    y = torch.tensor(data.draw(st.lists(st.sampled_from(held), min_size=1, max_size=12)))
    pairs = draw_pairs_on_cpu(y, counts, weigh(counts), Key.root(seed))
    assert bool((counts[y[pairs.sources]] > counts[y[pairs.targets]]).all())
    assert len(set(pairs.targets.tolist())) == len(pairs.targets) == len(pairs.sources)
    assert bool((weigh(counts)[y[pairs.targets], y[pairs.sources]] == pairs.weights).all())


@given(st.integers(0, 99), st.floats(0.01, 2.0), st.integers(1, 5))
def test_descent_is_per_sample_and_bounded_by_its_steps(seed: int, step: float, times: int) -> None:
    draws = Key.root(seed).generator()
    h, w = (
        torch.rand(4, 2, 3, generator=draws, dtype=torch.float64),
        torch.randn(6, 3, generator=draws, dtype=torch.float64),
    )
    away: Callable[[Tensor], Tensor] = lambda h: (h.flatten(1) @ w).logsumexp(1).sum()  # noqa: E731
    together, alone = (
        normalised_descent(h, away, step, times),
        torch.cat([normalised_descent(one[None], away, step, times) for one in h]),
    )
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-12)
    assert bool(((together - h).flatten(1).norm(dim=1) <= times * step + 1e-9).all())
    assert bool(
        (normalised_descent(h, away, step, times, 0.2, 0.8) - 0.5).abs().le(0.3 + 1e-12).all()
    )
    assert float(away(together)) < float(away(h)) or step > 0.5
