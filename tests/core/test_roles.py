"""Roles on a nested model: what each tensor is, and what a server may do with it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedloom.core.chain import Chain
from fedloom.core.method import Method
from fedloom.core.roles import Roles, change, moved
from fedloom.core.server import weighted_sum
from fedloom.methods.fedadam import fedadam
from fedloom.methods.fedavg import fedavg
from fedloom.methods.fedavgm import fedavgm
from fedloom.methods.feddyn import feddyn
from fedloom.methods.fedyogi import fedyogi
from fedloom.methods.scaffold import scaffold
from support.models import nested
from support.simulate import simulate

LAYERS = ("body.0.unit.1", "body.0.downsample.1")


def test_roles_of_a_nested_model() -> None:
    chain = nested()
    roles = Roles.of(chain)
    assert roles.statistics == {
        f"{layer}.{s}" for layer in LAYERS for s in ("running_mean", "running_var")
    }
    assert roles.counters == {f"{layer}.num_batches_tracked" for layer in LAYERS}
    assert roles.weights == set(chain.state_dict()) - roles.statistics - roles.counters
    assert {f"{layer}.weight" for layer in LAYERS} <= roles.weights


def test_a_tied_tensor_is_a_weight_under_both_names() -> None:
    chain = Chain({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    chain.block("b").weight = chain.block("a").weight
    assert Roles.of(chain) == Roles(frozenset(chain.state_dict()), frozenset(), frozenset())


def test_tensors_that_are_not_saved_have_no_role() -> None:
    chain = Chain({"a": nn.Linear(2, 2)})
    chain.block("a").register_buffer("scratch", torch.zeros(1), persistent=False)
    assert Roles.of(chain) == Roles(frozenset({"a.weight", "a.bias"}), frozenset(), frozenset())


def test_moved_by_hand() -> None:
    params = {
        "w": torch.tensor([1.0, 2.0]),
        "count": torch.tensor(3),
        "private": torch.tensor([9.0]),
    }
    after = moved(
        params, {"w": torch.tensor([0.5, 0.5]), "count": torch.tensor(1.9, dtype=torch.float64)}
    )
    assert after["w"].tolist() == [1.5, 2.5]
    assert after["count"].item() == 4
    assert after["count"].dtype == torch.int64
    assert after["private"] is params["private"]


def test_a_mask_by_hand() -> None:
    """Three clients of equal size: true where it is so for all of them."""
    before = torch.tensor([True, True, False, False])
    finals = [[True, True, True, False], [True, False, True, True], [True, True, True, False]]
    uploads = [{"mask": change(torch.tensor(final), before)} for final in finals]
    after = moved({"mask": before}, weighted_sum(uploads, [1 / 3] * 3))["mask"]
    assert after.dtype == torch.bool and after.tolist() == [True, False, True, False]


@given(
    st.lists(st.integers(1, 200), min_size=1, max_size=40),
    st.integers(0, 10_000),
    st.integers(0, 10_000),
)
def test_the_mean_of_equal_counts_is_that_count(sizes: list[int], before: int, steps: int) -> None:
    """However the weights are rounded."""
    shares = [s / sum(sizes) for s in sizes]
    mean = weighted_sum([{"count": torch.tensor(steps)} for _ in sizes], shares)
    assert int(moved({"count": torch.tensor(before)}, mean)["count"]) == before + steps


SERVERS = [
    fedadam(lr=1.0),
    fedyogi(lr=1.0),
    fedavgm(0.95),
    feddyn(0.01),
    fedavg(server_lr=3.0),
    scaffold(2.0),
]


@pytest.mark.parametrize("method", SERVERS, ids=lambda m: m.name)
def test_no_server_optimiser_touches_statistics(method: Method) -> None:
    """They are the clients' plain mean, and not part of the optimiser's memory."""
    roles, result = Roles.of(nested()), simulate(method, 4)
    for name in roles.counters:
        assert result.state.params[name].dtype == torch.int64
        assert int(result.state.params[name]) > 0
    for name in roles.statistics:
        if name.endswith("running_var"):
            assert bool((result.state.params[name] > 0).all())
    for words in result.state.memory.values():
        for memory in words.values():
            assert memory.keys() == roles.weights


@pytest.mark.parametrize("method", SERVERS, ids=lambda m: m.name)
def test_statistics_are_the_mean_of_the_clients(method: Method) -> None:
    result = simulate(method, 1)
    by_clients = method.name in ("feddyn", "scaffold")
    weights = torch.tensor(
        [1.0 if by_clients else r.samples for r in result.replies], dtype=torch.float64
    )
    for name in Roles.of(nested()).statistics:
        changes = torch.stack([r.uploads["model"][name] for r in result.replies])
        expected = result.start.params[name] + (weights / weights.sum()) @ changes
        torch.testing.assert_close(result.state.params[name], expected, rtol=0, atol=1e-15)
