"""Exchanges in a run: invalid answers left out, bytes counted once, changed data asked again."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from fedloom.core.errors import RunError, UserError
from fedloom.core.exchange import notices
from fedloom.core.method import Exchange, Method, Phase
from fedloom.core.params import Params, nbytes
from fedloom.core.request import Broadcast, Task
from fedloom.core.round import rounds
from fedloom.core.simulation import Simulation, init_state, resume_state
from fedloom.core.state import MemoryStore, ServerState
from fedloom.engines.inprocess import InProcess
from fedloom.exchange.averaged_data import averaged_data_exchange
from fedloom.losses.mixup import interpolated, with_one_hot_labels
from fedloom.methods.scaffold import scaffold
from support.clients import TensorClient, tiny_clients
from support.models import CLASSES
from support.simulate import initial_model, make_simulation, saved_and_loaded, simulate


def blending(**given: Any) -> Method:
    """A method that mixes every batch with the first average."""

    def mix(
        x: torch.Tensor, y: torch.Tensor, job: Any, key: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        sent = job.shared["mashed"]
        return interpolated(with_one_hot_labels(x, y, CLASSES), (sent["x"][0], sent["y"][0]), 0.9)

    return Method("blending", (Phase(mix=mix),), prologue=(averaged_data_exchange(**given),))


class Liar(InProcess):
    """An engine in which some clients send manipulated answers."""

    lies: dict[int, Callable[[Params], Params]]

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        for client, said in super().map(sent, tasks):
            lie = self.lies.get(client) if sent.work == "exchange" else None
            yield (
                client,
                {"mashed": lie(said["mashed"])} if lie else said,
            )


def started(
    lies: dict[int, Callable[[Params], Params]], **given: Any
) -> tuple[ServerState, list[str]]:
    simulation, messages = make_simulation(blending(**given)), list[str]()
    engine = Liar(simulation.federation)
    engine.lies = lies
    return init_state(
        replace(simulation, engine=engine),
        initial_model(simulation.federation.build),
        messages.append,
    ), messages


LIES: dict[str, Callable[[Params], Params]] = {
    "tensor 'x' is not finite": lambda a: {**a, "x": a["x"] * torch.nan},
    "tensor 'y' is not finite": lambda a: {**a, "y": a["y"] / 0},
    "differ from most answers in names, types or shapes": lambda a: {**a, "x": a["x"][:, :2]},
    "types or shapes": lambda a: {**a, "x": a["x"].float()},
    "names, types": lambda a: {"x": a["x"], "y": a["y"]},
    "names another client as the owner": lambda a: {**a, "owner": a["owner"] * 0 + 3},
    "its labels are not rows of probabilities": lambda a: {**a, "y": a["y"] * 100},
}


@pytest.mark.parametrize("why", LIES)
def test_an_invalid_answer_is_left_out_and_named(why: str) -> None:
    honest, silence = started({})
    state, heard = started({2: LIES[why]})
    others = honest.shared["mashed"]["owner"] != 2
    assert all(
        torch.equal(state.shared["mashed"][n], t[others])
        for n, t in honest.shared["mashed"].items()
    )
    assert silence == [] and len(heard) == 1
    assert (
        "the answer of client 2 to the exchange 'mashed' is left out" in heard[0]
        and why in heard[0]
    )


def test_an_invalid_first_client_does_not_reject_the_others() -> None:
    state, heard = started({0: LIES["types or shapes"]})
    assert (
        0 not in state.shared["mashed"]["owner"].tolist()
        and "client 0" in heard[0]
        and len(heard) == 1
    )


def test_a_run_without_a_valid_answer_does_not_start() -> None:
    with pytest.raises(
        RunError,
        match=r"every answer to the exchange 'mashed' is invalid "
        r"\(client 0: tensor 'x' is not finite\)",
    ):
        started(dict.fromkeys(range(8), LIES["tensor 'x' is not finite"]))
    with pytest.raises(UserError, match="no client has sent an average"):
        started({}, least=1000)


def test_answers_are_counted_once_up_and_once_down_per_client() -> None:
    result = simulate(blending(size=4), 4)
    start, model = result.start, nbytes(result.start.params)
    entries = sum(-(-size // 4) for size in (5, 9, 12, 7, 16, 8, 21, 10))
    pooled = entries * (8 * result.start.shared["mashed"]["x"][0].numel() + 8 * CLASSES + 8)
    assert nbytes(start.shared["mashed"]) == pooled
    has: set[int] = set()
    for number, report in enumerate(result.reports):
        fresh = set(report.clients) - has
        has |= fresh
        assert report.bytes_up == model * len(report.clients) + (pooled if number == 0 else 0)
        assert report.bytes_down == model * len(report.clients) + pooled * len(fresh)
    assert len(has) > 3  # otherwise no client took part twice, and nothing was tested


def test_merged_averages_reduce_only_the_download() -> None:
    plain, merged = (simulate(blending(size=1, merge=m), 1).reports[0] for m in (1, 4))
    assert plain.bytes_up == merged.bytes_up and plain.bytes_down > merged.bytes_down


def test_what_changes_with_the_weights_is_counted_every_round() -> None:
    joined = replace(scaffold(), prologue=(averaged_data_exchange(),))
    alone, both = simulate(scaffold(), 3), simulate(joined, 3)
    pooled, has = nbytes(both.start.shared["mashed"]), set()
    for one, two in zip(alone.reports, both.reports, strict=True):
        assert two.bytes_down - one.bytes_down == pooled * len(set(two.clients) - has)
        has |= set(two.clients)


def test_a_resumed_run_keeps_its_averages_and_counts_nothing_twice() -> None:
    whole, half = (
        simulate(blending(size=4, noise=0.1, merge=2), 4),
        simulate(blending(size=4, noise=0.1, merge=2), 2),
    )
    state, store = saved_and_loaded(half)
    assert resume_state(half.simulation, state) is state
    rest = simulate(blending(size=4, noise=0.1, merge=2), 4, resume_from=(state, store))
    assert all(torch.equal(t, rest.state.tensors()[n]) for n, t in whole.state.tensors().items())
    assert [(r.bytes_up, r.bytes_down) for r in (*half.reports, *rest.reports)] == [
        (r.bytes_up, r.bytes_down) for r in whole.reports
    ]
    assert rest.answers and not any(
        "mashed" in a for answers in rest.answers for a in answers.values() if isinstance(a, dict)
    )


def other_data(simulation: Simulation, client: int) -> Simulation:
    clients: list[Any] = list(simulation.federation.clients)
    clients[client] = TensorClient(clients[client].x + 1, clients[client].y)
    federation = replace(simulation.federation, clients=clients)
    return replace(simulation, federation=federation, engine=InProcess(federation))


def test_only_clients_whose_data_changed_give_a_new_answer() -> None:
    result, messages = simulate(blending(size=4, noise=0.1), 2), list[str]()
    before, state = (
        result.state.shared["mashed"],
        resume_state(other_data(result.simulation, 3), result.state, messages.append),
    )
    after = state.shared["mashed"]
    own = before["owner"] == 3
    assert torch.equal(after["x"][~own], before["x"][~own]) and torch.equal(
        after["owner"], before["owner"]
    )
    assert (
        "the data of 1 of 8 clients have changed since the exchange" in messages[0]
        and "exchange 'mashed'" in messages[1]
    )
    shift = after["x"][own] - before["x"][own]
    assert not torch.allclose(
        shift, torch.ones_like(shift), atol=1e-3
    )  # the noise is new, so it cannot be subtracted out
    again = resume_state(other_data(result.simulation, 3), result.state)
    assert all(torch.equal(t, again.tensors()[n]) for n, t in state.tensors().items())
    assert resume_state(other_data(result.simulation, 3), state) is state
    back = resume_state(result.simulation, state)
    assert not torch.equal(
        back.shared["mashed"]["x"], before["x"]
    )  # a third answer, although the data are the first again


def test_a_repeated_exchange_is_sent_to_all_and_only_new_answers_count_as_upload() -> None:
    result = simulate(blending(size=4), 2)
    simulation = other_data(result.simulation, 3)
    state = resume_state(simulation, result.state)
    ((_, report),) = rounds(simulation, state, MemoryStore(), 3)
    model, pooled = nbytes(state.params), state.shared["mashed"]
    news = nbytes({n: t[pooled["owner"] == 3] for n, t in pooled.items()})
    assert report.bytes_up == 3 * model + news
    assert report.bytes_down == 3 * (model + nbytes(pooled))


def test_another_number_of_clients_are_all_asked_again() -> None:
    result = simulate(blending(), 1)
    fewer = make_simulation(blending(), clients=tiny_clients((5, 9, 12)))
    state = resume_state(fewer, result.state)
    assert state.shared["mashed"]["owner"].tolist() == [0, 1, 2]
    assert state.memory["exchange"]["ledger"]["turn"].tolist() == [1, 1, 1]


def test_every_new_answer_spends_privacy_budget() -> None:
    pytest.importorskip("dp_accounting", reason="needs fedloom[privacy]")
    private = {"clip": 1.0, "noise": 1.0, "label_noise": 1.0}
    result = simulate(blending(**private, epsilon=2.3), 1)
    (said,) = notices(result.simulation.federation, 1)
    assert "(epsilon, delta) = (1.9" in said
    with pytest.raises(UserError, match="is exceeded"):
        resume_state(other_data(result.simulation, 0), result.state)


def test_a_method_without_exchanges_has_no_ledger() -> None:
    result = simulate(Method("plain"), 1)
    assert (
        result.start.memory == {}
        and result.start.shared == {}
        and resume_state(result.simulation, result.state) is result.state
    )


def test_two_exchanges_are_pooled_separately() -> None:
    count = Exchange(
        "count",
        lambda job, key: {"n": torch.tensor([len(job.data)])},
        lambda said, key: {"n": sum(a["n"] for a in said)},
    )
    state = simulate(replace(blending(), prologue=(averaged_data_exchange(), count)), 0).start
    assert state.shared["count"]["n"].tolist() == [88] and len(state.shared["mashed"]["x"]) == 8
