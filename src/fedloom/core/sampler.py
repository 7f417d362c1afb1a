"""Who takes part in a round. A sampler is a pure function of the round, a key and the clients' sizes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Annotated

import torch

from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.spec import Param

Sampler = Callable[[int, Key, Sequence[int]], list[int]]

PerRound = Annotated[int, Param("clients a round", low=1)]


def uniform(per_round: PerRound = 5) -> Sampler:
    """So many clients, each as likely as any other, without replacement."""

    def choose(round: int, key: Key, sizes: Sequence[int]) -> list[int]:
        order = torch.randperm(len(sizes), generator=key.generator())
        return sorted(order[: _at_most(per_round, len(sizes))].tolist())

    return choose


def everyone() -> Sampler:
    """Every client, every round."""
    return lambda round, key, sizes: list(range(len(sizes)))


def by_size(per_round: PerRound = 5) -> Sampler:
    """So many clients without replacement, each drawn with a probability proportional to the samples it holds."""

    def choose(round: int, key: Key, sizes: Sequence[int]) -> list[int]:
        weights = torch.tensor(sizes, dtype=torch.float64)
        drawn = torch.multinomial(
            weights, _at_most(per_round, len(sizes)), replacement=False, generator=key.generator()
        )
        return sorted(drawn.tolist())

    return choose


def availability(
    per_round: PerRound = 5,
    share: Annotated[
        float, Param("mean share of clients that can be reached; 1 is uniform", above=0, high=1)
    ] = 0.5,
    period: Annotated[
        int, Param("rounds of one day; each client has its own hour, 0: no rhythm", low=0)
    ] = 0,
) -> Sampler:
    """Uniform among the clients that can be reached this round; with a period, a client's chances rise and fall with its hour."""

    def choose(round: int, key: Key, sizes: Sequence[int]) -> list[int]:
        hours = torch.arange(len(sizes), dtype=torch.float64) * 0.6180339887498949 % 1.0
        swing = (
            1 + torch.cos(2 * math.pi * (round / period + hours))
            if period
            else torch.ones_like(hours)
        )
        awake = (
            torch.rand(len(sizes), generator=key.fold("awake").generator(), dtype=torch.float64)
            < share * swing
        )
        reached = awake.nonzero().flatten()
        if len(reached) == 0:  # somebody always answers in the end: the round waits for one client
            reached = torch.randint(len(sizes), (1,), generator=key.fold("straggler").generator())
        order = torch.randperm(len(reached), generator=key.fold("choice").generator())
        return sorted(reached[order[:per_round]].tolist())

    return choose


def in_advance(
    per_round: PerRound = 5,
    seed: Annotated[int, Param("of Python's generator, whatever the seed of the run", low=0)] = 1,
) -> Sampler:
    """FedAlign's authors' choice: `random.sample` by one generator for all rounds, so a round replays the draws before its own."""

    def choose(round: int, key: Key, sizes: Sequence[int]) -> list[int]:
        draws, count = random.Random(seed), _at_most(per_round, len(sizes))
        cohorts = [draws.sample(range(len(sizes)), count) for _ in range(round + 1)]
        return sorted(cohorts[-1])

    return choose


def _at_most(per_round: int, clients: int) -> int:
    if per_round > clients:
        raise UserError(
            f"per_round={per_round} is more than the {clients} clients; lower sample.per_round or add clients"
        )
    return per_round


SAMPLERS: dict[str, Callable[..., Sampler]] = {
    "uniform": uniform,
    "all": everyone,
    "by-size": by_size,
    "availability": availability,
    "in-advance": in_advance,
}
