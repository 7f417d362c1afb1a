"""Server stages on single numbers, computed by hand."""

import pytest
import torch
from torch import Tensor

from fedloom.core.key import Key
from fedloom.core.roles import Roles
from fedloom.core.server import By, Cohort, Memory, Reply, Stage, apply_mean, mean, weighted_sum
from fedloom.core.state import MemoryStore
from fedloom.methods.fedyogi import fedyogi
from fedloom.stages.optimise import adaptive, momentum, scale

ROLES = Roles(
    weights=frozenset({"w"}), statistics=frozenset({"var"}), counters=frozenset({"count"})
)


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def reply(client: int, change: float, samples: int = 1, seen: int = 1, steps: int = 0) -> Reply:
    return Reply(
        client,
        samples,
        seen,
        {"model": {"w": number(change), "var": number(change), "count": torch.tensor(steps)}},
    )


def cohort(*replies: Reply) -> Cohort:
    params = {"w": number(10.0), "var": number(5.0), "count": torch.tensor(2)}
    return Cohort(0, params, replies, 10, ROLES, Key.root(0))


@pytest.mark.parametrize(("by", "expected"), [("samples", 2.5), ("clients", 2.0), ("seen", 1.2)])
def test_means(by: By, expected: float) -> None:
    _, c = mean(by=by).step(
        {}, cohort(reply(0, 1.0, samples=1, seen=9), reply(1, 3.0, samples=3, seen=1))
    )
    assert c.mean["model"]["w"].item() == pytest.approx(expected, abs=1e-15)
    assert c.mean["model"]["var"].item() == pytest.approx(expected, abs=1e-15)


def test_the_mean_of_another_upload() -> None:
    replies = [
        Reply(c, n, n, {"control": {"w": number(v)}}) for c, n, v in ((0, 1, 2.0), (1, 3, 6.0))
    ]
    _, c = mean(of="control", by="clients").step({}, cohort(*replies))
    assert c.mean["control"]["w"].item() == 4.0


def test_counters_are_summed_in_float64() -> None:
    total = weighted_sum(
        [{"count": torch.tensor(20)}, {"count": torch.tensor(10)}, {"count": torch.tensor(51)}],
        [0.25, 0.125, 0.625],
    )
    assert total["count"].dtype == torch.float64
    assert total["count"].item() == 38.125


def test_a_weighted_sum_does_not_modify_the_uploads() -> None:
    uploads = [{"w": number(1.0)}, {"w": number(2.0)}]
    weighted_sum(uploads, [0.5, 0.5])
    assert [u["w"].item() for u in uploads] == [1.0, 2.0]


def run(stage: Stage, changes: list[float]) -> tuple[list[float], Memory]:
    """The steps that a stage makes of consecutive changes."""
    memory, steps = stage.init({"w": number(0.0)}), []
    for change in changes:
        _, c = mean().step({}, cohort(reply(0, change)))
        memory, c = stage.step(memory, c)
        steps.append(c.mean["model"]["w"].item())
        assert c.mean["model"]["var"].item() == change  # statistics are not touched
    return steps, memory


def test_scale() -> None:
    assert run(scale(0.5), [1.0, 3.0])[0] == [0.5, 1.5]


def test_momentum() -> None:
    steps, memory = run(momentum(0.5, lr=2.0), [1.0, 1.0, -1.0])
    assert steps == [2.0, 3.0, -0.5]  # m = 1, 1.5, -0.25
    assert memory["velocity"]["w"].item() == -0.25


def test_adam() -> None:
    steps, memory = run(
        adaptive("adam", lambda v, s: 0.75 * v + 0.25 * s, lr=1.0, beta1=0.5, tau=1.0), [3.0, 0.0]
    )
    assert memory["first"]["w"].item() == 0.75  # 1.5, then halved
    assert memory["second"]["w"].item() == 2.25  # 0.75 + 2.25 = 3, then 0.75 * 3
    assert steps == [pytest.approx(1.5 / (3**0.5 + 1)), pytest.approx(0.75 / (1.5 + 1))]


def test_yogi_changes_by_a_bounded_amount_in_both_directions() -> None:
    (stage,) = [
        s for s in fedyogi(lr=1.0, beta1=0.0, beta2=0.5, tau=2.0).server if s.kind == "optimise"
    ]
    steps, memory = run(stage, [4.0, 1.0, 0.0])
    # v = 4 - 8 sign(4 - 16) = 12, then 12 - 0.5 sign(12 - 1) = 11.5; a zero change leaves it
    assert memory["second"]["w"].item() == 11.5
    assert steps == [pytest.approx(4 / (12**0.5 + 2)), pytest.approx(1 / (11.5**0.5 + 2)), 0.0]


def test_apply() -> None:
    _, c = mean().step({}, cohort(reply(0, 1.0, steps=3), reply(1, 2.0, steps=6)))
    _, c = apply_mean().step({}, c)
    assert (c.params["w"].item(), c.params["var"].item(), c.params["count"].item()) == (
        11.5,
        6.5,
        6,
    )


def test_remembering_a_slot_leaves_the_others() -> None:
    store = MemoryStore()
    store.remember(3, {"a": {"w": number(1.0)}, "b": {"w": number(2.0)}})
    store.remember(3, {"b": {"w": number(5.0)}})
    store.remember(4, {})
    assert {slot: memory["w"].item() for slot, memory in store.recall(3).items()} == {
        "a": 1.0,
        "b": 5.0,
    }
    assert store.recall(4) == store.recall(0) == {}
