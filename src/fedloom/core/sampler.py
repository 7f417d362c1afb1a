"""Client sampling. A sampler is a pure function of the round, a key and the clients' sizes."""

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

PerRound = Annotated[int, Param("clients per round", low=1)]
GOLDEN_RATIO = 0.6180339887498949  # its multiples, modulo 1, spread evenly over [0, 1)


def uniform(per_round: PerRound = 5) -> Sampler:
    """per_round clients, uniformly at random without replacement."""

    def choose(round: int, key: Key, sizes: Sequence[int]) -> list[int]:
        order = torch.randperm(len(sizes), generator=key.generator())
        return sorted(order[: _at_most(per_round, len(sizes))].tolist())

    return choose


def everyone() -> Sampler:
    """Every client, every round."""
    return lambda round, key, sizes: list(range(len(sizes)))


def by_size(per_round: PerRound = 5) -> Sampler:
    """per_round clients without replacement, with probability proportional to sample counts."""

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
        float, Param("mean share of clients that are available; 1 is uniform", above=0, high=1)
    ] = 0.5,
    period: Annotated[
        int,
        Param("rounds per day; each client has its own time of day, 0: no daily cycle", low=0),
    ] = 0,
) -> Sampler:
    """Uniform among the clients that are available this round.

    With a period, the probability that a client is available follows a daily cycle, shifted by the
    client's own time of day.
    """

    def choose(round: int, key: Key, sizes: Sequence[int]) -> list[int]:
        hours = torch.arange(len(sizes), dtype=torch.float64) * GOLDEN_RATIO % 1.0
        cycle = torch.ones_like(hours)
        if period:
            cycle = 1 + torch.cos(2 * math.pi * (round / period + hours))
        draws = torch.rand(len(sizes), generator=key.fold("awake").generator(), dtype=torch.float64)
        reached = (draws < share * cycle).nonzero().flatten()
        if len(reached) == 0:  # a real server would wait until the first client answers
            reached = torch.randint(len(sizes), (1,), generator=key.fold("straggler").generator())
        order = torch.randperm(len(reached), generator=key.fold("choice").generator())
        return sorted(reached[order[:per_round]].tolist())

    return choose


def in_advance(
    per_round: PerRound = 5,
    seed: Annotated[
        int, Param("seed of Python's generator, independent of the run's seed", low=0)
    ] = 1,
) -> Sampler:
    """The cohorts of FedAlign's authors: `random.sample` from one generator for all rounds.

    Each round repeats the draws of all earlier rounds to reach its own.
    """

    def choose(round: int, key: Key, sizes: Sequence[int]) -> list[int]:
        generator, count = random.Random(seed), _at_most(per_round, len(sizes))
        cohorts = [generator.sample(range(len(sizes)), count) for _ in range(round + 1)]
        return sorted(cohorts[-1])

    return choose


def _at_most(per_round: int, clients: int) -> int:
    if per_round > clients:
        raise UserError(
            f"per_round={per_round} is more than the {clients} clients; "
            "lower sample.per_round or add clients"
        )
    return per_round


SAMPLERS: dict[str, Callable[..., Sampler]] = {
    "uniform": uniform,
    "all": everyone,
    "by-size": by_size,
    "availability": availability,
    "in-advance": in_advance,
}
