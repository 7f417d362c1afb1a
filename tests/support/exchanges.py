"""A method with an exchange, and a simulation in which a client's data have changed."""

from dataclasses import replace
from typing import Any

import torch

from fedloom.core.method import Method, Phase
from fedloom.core.simulation import Simulation
from fedloom.engines.inprocess import InProcess
from fedloom.exchange.averaged_data_exchange import averaged_data_exchange
from fedloom.losses.mixup import interpolated, with_one_hot_labels
from support.clients import TensorClient
from support.models import CLASSES


def blending(**given: Any) -> Method:
    """A method that mixes every batch with the first average."""

    def mix(
        x: torch.Tensor, y: torch.Tensor, job: Any, key: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        sent = job.shared["mashed"]
        return interpolated(with_one_hot_labels(x, y, CLASSES), (sent["x"][0], sent["y"][0]), 0.9)

    return Method("blending", (Phase(mix=mix),), prologue=(averaged_data_exchange(**given),))


def other_data(simulation: Simulation, client: int) -> Simulation:
    clients: list[Any] = list(simulation.federation.clients)
    clients[client] = TensorClient(clients[client].x + 1, clients[client].y)
    federation = replace(simulation.federation, clients=clients)
    return replace(simulation, federation=federation, engine=InProcess(federation))
