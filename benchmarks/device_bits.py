"""Checks that every method has the same result on a simulated GPU as on the CPU, bit for bit.

    python -m benchmarks.device_bits [--only fedavg,m2m]

The arithmetic is the same, so a difference would be a tensor that is left on the wrong device, a
draw that depends on the device, or a copy that shares memory. Two rounds on a net with batch norm,
with augmentation, all memories and the server's state; where a method trains after the last round,
a client's own model too.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext

import numpy as np

from benchmarks.simulated_gpu import DEVICE, SimulatedGpu, register
from benchmarks.transfers import BATCH, CLASSES, CLIENTS, SAMPLES, build, dataset
from fedloom.core.federation import Federation
from fedloom.core.guard import Guard
from fedloom.core.job import build_isolated
from fedloom.core.key import Key
from fedloom.core.params import sha256
from fedloom.core.request import Broadcast, ClientTask
from fedloom.core.round import rounds
from fedloom.core.sampler import everyone
from fedloom.core.simulation import Simulation, init_state
from fedloom.core.solver import Sgd
from fedloom.core.spec import parse
from fedloom.core.state import MemoryStore
from fedloom.data import augment
from fedloom.data.client import federate
from fedloom.engines.inprocess import InProcess
from fedloom.methods.registry import entry, names


def result(name: str, device: str) -> str:
    """The checksum of a method's result on a device."""
    method, parts = entry(name).make(), np.split(np.arange(SAMPLES * CLIENTS), CLIENTS)
    with nullcontext() if device == "cpu" else SimulatedGpu():
        clients = federate(dataset(), parts, augment.build(parse("pad-crop+flip")), device=device)
        federation = Federation(
            method,
            build("batch", method, device),
            clients,
            Sgd(batch=BATCH, steps=2),
            Key.root(0),
            classes=CLASSES,
        )
        simulation = Simulation(federation, everyone(), InProcess(federation), Guard(strict=True))
        state = init_state(simulation, build_isolated(federation.build))
        *_, (state, _) = rounds(simulation, state, MemoryStore(), until=2)
        tensors = state.tensors()
        if method.finale:
            sent = Broadcast("personalise", 2, state.params, state.shared)
            own = simulation.answer(sent, ClientTask(0))
            tensors |= {f"own/{n}": t for n, t in own.items()}
        return sha256({n: t.cpu() for n, t in tensors.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(names()), help="some of the methods")
    register()
    differing = []
    for name in parser.parse_args().only.split(","):
        same = result(name, "cpu") == result(name, DEVICE)
        print(f"{name:15} {'same bits' if same else 'DIFFERENT'}", flush=True)
        differing += [] if same else [name]
    if differing:
        sys.exit(f"other results on the simulated GPU: {', '.join(differing)}")


if __name__ == "__main__":
    main()
