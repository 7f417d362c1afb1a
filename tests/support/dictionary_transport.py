"""A transport without a network: sites are functions in a dictionary, and time is a number.

Every push to a site takes the next fault from the site's list; without one, the reply comes at
once. A fault takes the site's function and the request, and says what arrives when.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import count
from typing import Any

from fedloom.core.params import Params
from fedloom.engines.flower.envelope import decode, encode
from fedloom.engines.flower.messages import REPLY, Parts
from fedloom.engines.flower.transport import Failure
from fedloom.engines.wire import Facts

Handle = Callable[[Parts], Parts]
Arrivals = list[tuple[float, Parts | Failure]]  # seconds from now, and what arrives
Fault = Callable[[Handle, Parts], Arrivals]
LIMIT = 10**8


class FakeTime:
    """A clock that moves only when someone sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class DictionaryTransport:
    """away: from when until when a site is not connected. pushed: every request, in order.

    `pull` also gives what was not asked for, as a careless network might.
    """

    def __init__(self, sites: Mapping[str, Handle], time: FakeTime) -> None:
        self.sites, self.time = dict(sites), time
        self.faults: dict[str, list[Fault]] = {}
        self.away: dict[str, tuple[float, float]] = {}
        self.pushed: list[tuple[str, Parts]] = []
        self.closed = False
        self._numbers = count()
        self._on_the_way: list[tuple[float, str, Parts | Failure]] = []

    def connected(self) -> Collection[str]:
        return [site for site in self.sites if not self._is_away(site)]

    def push(self, site: str, parts: Parts, seconds: float) -> str | Failure:
        assert seconds > 0
        self.pushed.append((site, parts))
        if self._is_away(site):
            return Failure("is not connected")
        ticket = f"ticket {next(self._numbers)}"
        faults = self.faults.get(site, [])
        arrivals = (faults.pop(0) if faults else answers)(self.sites[site], parts)
        self._on_the_way += [(self.time.now + wait, ticket, what) for wait, what in arrivals]
        return ticket

    def pull(self, tickets: Collection[str]) -> Mapping[str, Parts | Failure]:
        due = [item for item in self._on_the_way if item[0] <= self.time.now]
        first = {ticket: item for item in reversed(due) for ticket in [item[1]]}
        self._on_the_way = [item for item in self._on_the_way if item not in first.values()]
        return {ticket: item[2] for ticket, item in first.items()}

    def close(self) -> None:
        self.closed = True

    def _is_away(self, site: str) -> bool:
        begin, end = self.away.get(site, (0.0, 0.0))
        return begin <= self.time.now < end


# ------------------------------------------------------------------ what may go wrong


def answers(handle: Handle, parts: Parts) -> Arrivals:
    """Nothing goes wrong."""
    return [(0.0, handle(parts))]


def request_lost(handle: Handle, parts: Parts) -> Arrivals:
    return []


def reply_lost(handle: Handle, parts: Parts) -> Arrivals:
    handle(parts)
    return []


def late(seconds: float) -> Fault:
    return lambda handle, parts: [(seconds, handle(parts))]


def twice(handle: Handle, parts: Parts) -> Arrivals:
    reply = handle(parts)
    return [(0.0, reply), (0.1, reply), (1.0, reply)]


def failure(reason: str, final: bool = False) -> Fault:
    """The transport says that there is no reply."""
    return lambda handle, parts: [(0.0, Failure(reason, final))]


def replied(content: bytes | Parts) -> Fault:
    """The reply is this, whatever was asked."""
    parts = {REPLY: content} if isinstance(content, bytes) else content
    return lambda handle, _: [(0.0, parts)]


def damaged(position: int) -> Fault:
    """One bit of the reply is flipped."""

    def fault(handle: Handle, parts: Parts) -> Arrivals:
        reply = bytearray(handle(parts)[REPLY])
        reply[position % len(reply)] ^= 1
        return [(0.0, {REPLY: bytes(reply)})]

    return fault


def changed(change: Callable[[Facts, Params], Any]) -> Fault:
    """A well-formed reply in which the facts or tensors were changed in place."""

    def fault(handle: Handle, parts: Parts) -> Arrivals:
        facts, tensors = decode(handle(parts)[REPLY], LIMIT)
        change(facts, tensors)
        return [(0.0, {REPLY: encode(facts, tensors)})]

    return fault
