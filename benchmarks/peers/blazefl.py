"""BlazeFL: its FedAvg, sequential, in two processes (shared memory) or in two threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from blazefl.contrib import fedavg
from blazefl.core import IPCMode
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from benchmarks.peers.clock import Clock, contest
from benchmarks.peers.work import WORK, Work, data, model


class Shards:
    """Loaders that index a whole batch at once, the fastest way with a DataLoader in memory."""

    def __init__(self, work: Work) -> None:
        self.x, self.y = data(work)

    def set_dataset(self, **_: Any) -> None:
        """Does nothing: the workers return a client's data unchanged."""

    def get_dataloader(
        self, type_: str, cid: int, batch_size: int, generator: torch.Generator
    ) -> DataLoader:
        rows = TensorDataset(self.x[cid], self.y[cid])
        return DataLoader(
            rows,
            batch_size=None,
            sampler=BatchSampler(RandomSampler(rows, generator=generator), batch_size, False),
        )


class Models:
    def select_model(self, name: str) -> torch.nn.Module:
        torch.set_num_threads(1)  # here, because every worker calls this
        return model(name)


def run(name: str, way: str, clock: Clock) -> None:
    torch.set_num_threads(1)
    work = WORK[name]
    shards = Shards(work)
    common = {
        "model_selector": Models(),
        "model_name": name,
        "dataset": shards,
        "device": "cpu",
        "seed": 0,
    }
    common |= {"num_clients": work.clients, "batch_size": work.batch}
    server = fedavg.FedAvgBaseServerHandler(
        **common, global_round=10**6, sample_ratio=work.per_round / work.clients
    )
    clients = trainer(way, common | {"epochs": work.epochs, "lr": work.lr})
    # Imports half of torch, which workers inherit; otherwise they would import it in every round.
    torch.optim.SGD(server.model.parameters())
    clock.tick()
    while True:
        clients.local_process(server.downlink_package(), server.sample_clients())
        for package in clients.uplink_package():
            server.load(package)
        clock.tick()


def trainer(way: str, settings: dict[str, Any]) -> Any:
    """The clients' side, in one of three ways."""
    if way == "2 processes":
        folders = {"share_dir": Path("share"), "state_dir": Path("state")}
        return fedavg.FedAvgProcessPoolClientTrainer(
            **settings, **folders, num_parallels=2, ipc_mode=IPCMode.SHARED_MEMORY
        )
    if way == "2 threads":
        return fedavg.FedAvgThreadPoolClientTrainer(**settings, num_parallels=2)
    return fedavg.FedAvgBaseClientTrainer(**settings)


if __name__ == "__main__":
    contest(run)
