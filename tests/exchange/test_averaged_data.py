"""Averaged data in a method: what a client draws, and the parameters that a method takes over."""

from collections import Counter
from typing import Annotated

import torch

from fedloom.core.key import Key
from fedloom.core.method import Method
from fedloom.core.spec import Param, argument_problems, parameters
from fedloom.exchange.averaged_data import AveragedData, draw, exchanging
from fedloom.exchange.averaged_data_exchange import averaged_data_exchange, pooled
from support.averages import answer, entries, job


def test_a_draw_is_uniform_and_depends_on_the_key() -> None:
    its = job(2, shared={"mashed": pooled(entries(0, 1, 2, 3), 1, Key.root(0))})
    drawn = Counter(float(draw(its, Key.root(n))[0]) for n in range(400))
    assert set(drawn) == {0.0, 1.0, 2.0, 3.0} and min(drawn.values()) > 65
    x, y = draw(its, Key.root(5))
    assert torch.equal(draw(its, Key.root(5))[0], x) and torch.equal(y, torch.eye(8)[int(x)])


def test_a_client_can_be_excluded_from_its_own_averages() -> None:
    its = job(2, shared={"mashed": pooled(entries(0, 1, 2, 3), 1, Key.root(0))})
    assert {float(draw(its, Key.root(n), exclude_self=True)[0]) for n in range(60)} == {
        0.0,
        1.0,
        3.0,
    }
    alone = job(2, shared={"mashed": pooled(entries(2), 1, Key.root(0))})
    assert float(draw(alone, Key.root(0), exclude_self=True)[0]) == 2.0


@exchanging
def blending(
    lam: Annotated[float, Param("share", low=0)] = 0.1, *, averaged: AveragedData
) -> Method:
    return Method(f"{lam} {averaged.exclude_self}", prologue=(averaged.exchange,))


def test_a_method_takes_the_parameters_of_the_exchange_and_its_own() -> None:
    known = parameters(blending)
    assert (
        set(known) == {"lam", "exclude_self", *parameters(averaged_data_exchange)}
        and known["size"] == parameters(averaged_data_exchange)["size"]
    )
    made = blending(lam=0.3, size=1, exclude_self=True)
    assert made.name == "0.3 True" and len(answer(made.prologue[0], 1)["x"]) == 9
    assert argument_problems(blending, {"least": 0, "mesh": 1})[0].startswith(
        "least=0 must be at least 1"
    )
    assert not argument_problems(blending, {"split": "same-class", "clip": None})
