"""A method whose clients fail on purpose, on any engine.

faulty(fault=raises, share=0.3)   every reply is hit with probability 0.3
faulty(fault=raises, always=6)    clients 0 to 5 are hit in every round
"""

import os
import signal
import time
from collections.abc import Callable

import torch

from fedloom.core.key import Key
from fedloom.core.method import Extra, Method, Outcome


def is_hit(key: Key, client: int, share: float, always: int) -> bool:
    """Whether the fault hits a client. key: of the client in this round."""
    draw = torch.rand((), generator=key.fold("fault").generator())
    return client < always or draw.item() < share


def faulty(fault: str, share: float = 0.0, always: int = 0) -> Method:
    """FedAvg, with clients that are hit by a fault after their training."""

    def strike(outcome: Outcome) -> Extra:
        job = outcome.job
        return FAULTS[fault](outcome) if is_hit(job.key, job.client, share, always) else Extra()

    return Method("faulty", after=(strike,))


def raises(outcome: Outcome) -> Extra:
    raise ArithmeticError("broken on purpose")


def slow(outcome: Outcome) -> Extra:
    time.sleep(600)
    return Extra()


def stopped(outcome: Outcome) -> Extra:
    os.kill(os.getpid(), signal.SIGSTOP)
    return Extra()


def _filled(value: float) -> Callable[[Outcome], Extra]:
    return lambda outcome: Extra(
        uploads={"model": {n: torch.full_like(t, value) for n, t in outcome.delta.items()}}
    )


FAULTS: dict[str, Callable[[Outcome], Extra]] = {
    "raises": raises,
    "slow": slow,
    "hung": stopped,
    "NaN": _filled(float("nan")),
    "1e30": _filled(1e30),
    "3e38": _filled(3e38),
}
