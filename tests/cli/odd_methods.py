"""FedAvg that is slow, fails or makes NaNs at a chosen place, for odd_methods.py:function."""

import os
import sys
import time
from collections.abc import Callable
from typing import Annotated

from torch import Tensor

from fedloom.core.method import Method, Phase
from fedloom.core.spec import Param
from fedloom.core.step import Step

PAUSE = "FEDLOOM_TEST_PAUSE"


def slow() -> Method:
    """A step takes as many seconds as the environment says, and prints its round."""

    def dawdle(step: Step) -> Tensor:
        if pause := float(os.environ.get(PAUSE, "0")):
            print(f"dawdling in round {step.job.round}", file=sys.stderr, flush=True)
            time.sleep(pause)
        return nothing(step)

    return method("slow", dawdle)


def stumbling() -> Method:
    """Every client fails at the second step of the second round."""

    def stumble(step: Step) -> Tensor:
        if (step.job.round, step.number) == (1, 2):
            raise ArithmeticError("stumbled over a stone")
        return nothing(step)

    return method("stumbling", stumble)


def poisoned(
    client: Annotated[int, Param("who is poisoned; -1: everyone", low=-1)] = -1,
    since: Annotated[int, Param("first round of it", low=0)] = 0,
) -> Method:
    def poison(step: Step) -> Tensor:
        ill = client in (-1, step.job.client) and step.job.round >= since
        return step.ce * float("nan") if ill else nothing(step)

    return method("poisoned", poison)


def method(name: str, term: Callable[[Step], Tensor]) -> Method:
    return Method(name, (Phase(terms=(term,)),))


def nothing(step: Step) -> Tensor:
    return step.ce.new_zeros(())
