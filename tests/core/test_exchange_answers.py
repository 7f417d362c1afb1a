"""Answers to exchanges: invalid ones are left out and named, the others are pooled."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from fedloom.core.errors import RunError, UserError
from fedloom.core.method import Exchange
from fedloom.core.params import Params
from fedloom.core.request import Broadcast, Task
from fedloom.core.simulation import init_state
from fedloom.core.state import ServerState
from fedloom.engines.inprocess import InProcess
from fedloom.exchange.averaged_data_exchange import averaged_data_exchange
from support.exchanges import blending
from support.simulate import initial_model, make_simulation, simulate


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


def test_two_exchanges_are_pooled_separately() -> None:
    count = Exchange(
        "count",
        lambda job, key: {"n": torch.tensor([len(job.data)])},
        lambda said, key: {"n": sum(a["n"] for a in said)},
    )
    state = simulate(replace(blending(), prologue=(averaged_data_exchange(), count)), 0).start
    assert state.shared["count"]["n"].tolist() == [88] and len(state.shared["mashed"]["x"]) == 8
