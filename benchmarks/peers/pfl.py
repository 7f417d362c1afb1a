"""pfl: its FederatedAveraging on the simulated backend, in one process or two (gloo).

Data are slices of tensors in memory.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.peers.clock import Clock, contest
from benchmarks.peers.work import WORK, data, model

RANK = "PFL_WORKER_RANK"  # pfl reads it, and the other PFL_ variables, when it is imported


def run(work: str, way: str, clock: Clock) -> None:
    if way == "1 process":
        run_worker(work, clock)
    elif RANK in os.environ:
        run_worker(work, None)
    else:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        os.environ |= {
            "PFL_WORKER_ADDRESSES": f"{address},{address}",
            "GLOO_SOCKET_IFNAME": "lo",
            RANK: "0",
        }
        second = subprocess.Popen(
            [sys.executable, *sys.orig_argv[1:]], env={**os.environ, RANK: "1"}
        )
        try:
            run_worker(work, clock)
        finally:
            second.kill()  # it is waiting for the next round


def run_worker(name: str, clock: Clock | None) -> None:
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import MinimizeReuseUserSampler
    from pfl.hyperparam.base import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    class Tick(TrainingProcessCallback):
        def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Metrics]:
            if clock:
                clock.tick()
            return False, Metrics()

    torch.set_num_threads(1)
    work, net = WORK[name], model(name)
    x, y = data(work)
    net.loss = lambda x, y: F.cross_entropy(net(x), y)
    net.metrics = lambda x, y: {}  # called in the first round, which is not timed
    users = FederatedDataset(
        lambda c: Dataset((x[c], y[c])), MinimizeReuseUserSampler(list(range(work.clients)))
    )
    wrapped = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    params = NNAlgorithmParams(10**6, 10**6, work.per_round, val_cohort_size=None)
    local = NNTrainHyperParams(
        local_batch_size=work.batch, local_num_epochs=work.epochs, local_learning_rate=work.lr
    )
    if clock:
        clock.tick()
    FederatedAveraging().run(
        params, SimulatedBackend(users, users), wrapped, local, callbacks=[Tick()]
    )


if __name__ == "__main__":
    contest(run)
