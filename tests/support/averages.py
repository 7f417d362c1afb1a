"""What clients answer to an exchange of averaged data."""

from typing import Any

import torch

from fedloom.core.client import job_for
from fedloom.core.federation import Federation
from fedloom.core.job import Job, ModelPool
from fedloom.core.key import Key
from fedloom.core.method import Exchange, Method
from fedloom.core.params import Params
from fedloom.core.request import Broadcast, ClientTask
from support.clients import tiny_clients
from support.models import CLASSES, nested
from support.simulate import SOLVER

CLIENTS = tiny_clients()
POOL = ModelPool(nested)


def job(client: int = 0, clients: Any = CLIENTS, shared: Any = None) -> Job:
    federation = Federation(Method("none"), nested, clients, SOLVER, Key.root(0), classes=CLASSES)
    return job_for(federation, POOL, Broadcast("exchange", 0, {}, shared or {}), ClientTask(client))


def answer(exchange: Exchange, client: int = 0, clients: Any = CLIENTS) -> Params:
    asked = job(client, clients)
    return exchange.client(asked, asked.key.fold(exchange.name))


def entries(*owners: int) -> list[Params]:
    """Answers of one average each; x and y identify the owner."""
    return [
        {"x": torch.tensor([[float(o)]]), "y": torch.eye(8)[o : o + 1], "owner": torch.tensor([o])}
        for o in owners
    ]
