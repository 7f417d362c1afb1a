"""Averages of other clients' data, as a method asks for them and draws from them.

A method asks with a decorator, which adds the parameters of `averaged_data_exchange` to the
method's own:

    @exchanging
    def naivemix(share: ... = 0.1, *, averaged: AveragedData) -> Method:
        ...  x_g, y_g = averaged.draw(step.job, step.key)
        return Method("naivemix", ..., prologue=(averaged.exchange,))

exchange/averaged_data_exchange.py says what clients send and how the server pools it.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from torch import Tensor

from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.method import Exchange, Method
from fedloom.core.spec import Param
from fedloom.exchange.averaged_data_exchange import NAME, averaged_data_exchange

ExcludeSelf = Annotated[
    bool,
    Param(
        "whether a client mixes only with other clients' averages; "
        "false, as in the paper's algorithm: with its own too"
    ),
]


@dataclass(frozen=True)
class AveragedData:
    """The exchange a method asks for, and how the method draws from the pooled averages."""

    exchange: Exchange
    exclude_self: bool = False

    def draw(self, job: Job, key: Key) -> tuple[Tensor, Tensor]:
        """Draw one average and its label, for one batch."""
        return draw(job, key, self.exclude_self)


def draw(job: Job, key: Key, exclude_self: bool = False) -> tuple[Tensor, Tensor]:
    """Draw one average and its label uniformly; methods draw once per batch.

    exclude_self: only from other clients' averages, if there are any.
    """
    shared, allowed = job.shared[NAME], job.once(_allowed_entries, exclude_self)
    at = allowed[key.fold(NAME).below(len(allowed))]
    return shared["x"][at], shared["y"][at]


def _allowed_entries(job: Job, exclude_self: bool) -> list[int]:
    """The entries a client may draw; its own if there are no others."""
    owners = job.shared[NAME]["owner"].tolist()
    foreign = [i for i, owner in enumerate(owners) if owner != job.client]
    return foreign if exclude_self and foreign else list(range(len(owners)))


def exchanging(make: Callable[..., Method]) -> Callable[..., Method]:
    """Decorate a method's factory: add the parameters of the exchange to its own.

    The decorated factory also takes those of `averaged_data_exchange` and `exclude_self`; the
    original one receives them as an AveragedData, `averaged`.
    """
    added = {p.name: p for p in inspect.signature(averaged_data_exchange).parameters.values()}
    added["exclude_self"] = inspect.Parameter(
        "exclude_self", inspect.Parameter.KEYWORD_ONLY, default=False
    )

    @functools.wraps(make)
    def factory(**args: Any) -> Method:
        given = {name: args.pop(name) for name in added.keys() & args.keys()}
        exclude_self = given.pop("exclude_self", False)
        averaged = AveragedData(averaged_data_exchange(**given), exclude_self)
        return make(**args, averaged=averaged)

    # The signature and the annotations are what the command line, checks and documentation read.
    factory.__annotations__ = {
        **typing.get_type_hints(averaged_data_exchange, include_extras=True),
        "exclude_self": ExcludeSelf,
        **typing.get_type_hints(make, include_extras=True),
    }
    own = [p for p in inspect.signature(make).parameters.values() if p.name != "averaged"]
    keyword_only = [p.replace(kind=p.KEYWORD_ONLY) for p in (*own, *added.values())]
    factory.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
    return factory
