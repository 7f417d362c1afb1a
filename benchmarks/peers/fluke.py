"""fluke: its FedAVG in one process, all it offers; its FastDataLoader, and stateless clients."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.peers.clock import Clock, contest
from benchmarks.peers.work import WORK, Work, data, model

# PyPI's torchvision has no operators for torch without CUDA; once they are declared, it imports.
if torch.version.cuda is None:
    for operator in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{operator}",
            "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        )

from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import FastDataLoader
from fluke.utils import FederationObserver


class Shards:
    """The interface of fluke's splitter: training loaders for the clients, none for tests."""

    def __init__(self, work: Work) -> None:
        self.x, self.y = data(work)

    def assign(
        self, clients: int, batch: int
    ) -> tuple[tuple[list[FastDataLoader], list[None]], None]:
        loaders = [
            FastDataLoader(x, y, num_labels=10, batch_size=batch, shuffle=True)
            for x, y in zip(self.x, self.y, strict=True)
        ]
        return (loaders, [None] * clients), None


class Tick(FederationObserver):
    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def end_round(self, *_: Any, **__: Any) -> None:
        self.clock.tick()


def run(name: str, way: str, clock: Clock) -> None:
    torch.set_num_threads(1)
    work = WORK[name]
    FlukeENV().set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    client = {
        "batch_size": work.batch,
        "local_epochs": work.epochs,
        "loss": "CrossEntropyLoss",
        "persistency": False,
    }
    client |= {
        "optimizer": {"name": "SGD", "lr": work.lr},
        "scheduler": {"step_size": 1, "gamma": 1},
    }
    settings = DDict({"client": client, "server": {"weighted": True}, "model": model(name)})
    algorithm = FedAVG(work.clients, Shards(work), settings)
    algorithm.set_callbacks(Tick(clock))
    clock.tick()
    algorithm.run(10**6, work.per_round / work.clients)


if __name__ == "__main__":
    contest(run)
