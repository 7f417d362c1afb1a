"""A site in this process that runs its clients with the in-process engine, and an engine for it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedloom.core.federation import Federation
from fedloom.engines.flower.delivery import Delivery, Patience
from fedloom.engines.flower.engine import CheckReport, FlowerEngine, Setup
from fedloom.engines.flower.messages import (
    HelloRequest,
    Parts,
    SetupRequest,
    answers_reply,
    hello_reply,
    read_request,
    setup_reply,
    unknown_setup_reply,
)
from fedloom.engines.flower.status import StatusBoard
from fedloom.engines.inprocess import InProcess
from support.dictionary_transport import LIMIT, DictionaryTransport, FakeTime

DIGEST = hashlib.sha256(b"the agreement").hexdigest()
SETUP = Setup(
    "run-1", DIGEST, {"classes": ["a", "b"]}, {"a": [0, 3, 6], "b": [1, 4, 7], "c": [2, 5]}
)


class FakeSite:
    """Answers as a site does. asked: kinds of the requests that it was sent."""

    def __init__(self, name: str, federation: Federation) -> None:
        self.name, self.engine = name, InProcess(federation)
        self.setups = set[str]()
        self.asked: list[str] = []
        self.oldest: int | None = None

    def handle(self, parts: Parts) -> Parts:
        request = read_request(parts, LIMIT)
        self.asked.append(type(request).__name__)
        if isinstance(request, HelloRequest):
            return hello_reply(request.header, {"site": self.name})
        if isinstance(request, SetupRequest):
            self.setups.add(request.digest)
            return setup_reply(request.header, request.digest)
        if request.setup not in self.setups:
            return unknown_setup_reply(request)
        self.oldest = request.oldest
        return answers_reply(request, self.engine.map(request.sent, request.tasks))


@dataclass
class Deployment:
    """An engine, and everything around it that a test may look at or break."""

    engine: FlowerEngine
    transport: DictionaryTransport
    time: FakeTime
    sites: Mapping[str, FakeSite]
    changes: list[Any]

    @property
    def kinds(self) -> dict[str, list[str]]:
        """What each site was asked."""
        return {name: site.asked for name, site in self.sites.items()}


def deployed(
    federation: Federation,
    clients: Mapping[str, Sequence[int]] = SETUP.clients,
    patience: Patience | None = None,
    limit: int = LIMIT,
    check_report: CheckReport = lambda site, report: None,
    local: Any = None,
) -> Deployment:
    """The federation, with its clients at fake sites."""
    time, changes = FakeTime(), list[Any]()
    sites = {name: FakeSite(name, federation) for name in clients}
    transport = DictionaryTransport({name: s.handle for name, s in sites.items()}, time)
    board = StatusBoard(sites, changes.append, time.clock)
    delivery = Delivery(transport, board, patience, limit, time.clock, time.sleep)
    setup = Setup(SETUP.run, SETUP.digest, SETUP.agreement, clients)
    engine = FlowerEngine(delivery, setup, local, check_report)
    return Deployment(engine, transport, time, sites, changes)
