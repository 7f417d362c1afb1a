"""A small run from settings, on any engine, and a digest of every round."""

from pathlib import Path
from typing import Any

from fedloom.core.params import Params, sha256
from fedloom.core.round import rounds
from fedloom.core.simulation import init_state
from fedloom.core.spec import parse
from fedloom.core.state import MemoryStore
from fedloom.core.user_code import allow
from fedloom.engines.pool import Pool
from fedloom.engines.ray import RayCluster
from fedloom.experiment.prepare import PreparedRun, prepare
from fedloom.methods.registry import names
from fedloom.settings.config import load

SHORTENED = {
    "perfedavg": "perfedavg(steps=2)",
    "pfedme": "pfedme(inner=2)",
}  # as many steps as the other methods
EVERY_METHOD = [
    *(SHORTENED.get(name, name) for name in names()),
    "fedprox+fedavgm",
    "scaffold+fedadam",
]
USER_METHODS = Path(__file__).with_name("user_methods.py")
SMALL_CONFIG = {
    "rounds": 3,
    "seed": 3,
    "model": "resnet8(width=4, norm=batch)",  # so that statistics and counters travel too
    "data": {"clients": 60, "partition": "dirichlet(alpha=0.3)", "augment": ["flip", "pad-crop"]},
    "train": {"steps": 2, "batch": 8, "momentum": 0.9, "reset": False},
    "sample": {"per_round": 5},
    "evaluate": {"batch": 250},
    "guard": {"strict": True},
}
OWN_STEPS = {"perfedavg", "pfedme"}  # methods that do not use the run's optimiser
FEW_CLIENTS = {
    "rounds": 1,
    "data": {"clients": 4},
    "sample": {"per_round": 2},
}  # overrides for tests that go through every client
ENGINES = {type(None): "inprocess", Pool: "pool", RayCluster: "ray"}


def prepare_small(
    method: str, workers: Pool | RayCluster | None = None, **changes: Any
) -> PreparedRun:
    """The prepared run of a method on these workers, or in this process."""
    names = {spec.name for spec in parse(method)}
    allow(names)
    settings = {**SMALL_CONFIG, "method": method, "engine": ENGINES[type(workers)]}
    if names & OWN_STEPS:
        settings["train"] = {"steps": 2, "batch": 8}
    return prepare(load({**settings, **changes}), pool=workers)


def sha_per_round(prepared: PreparedRun) -> list[str]:
    """After every round, a digest of the weights and of the server's and clients' memories."""
    store, everyone = MemoryStore(), range(len(prepared.clients))

    def memories() -> Params:
        slots = (
            (client, slot, p) for client in everyone for slot, p in store.recall(client).items()
        )
        return {f"client {client}/{slot}/{n}": t for client, slot, p in slots for n, t in p.items()}

    done = rounds(
        prepared.simulation,
        init_state(prepared.simulation, prepared.model),
        store,
        prepared.config.rounds,
    )
    return [sha256(state.tensors() | memories()) for state, _ in done]
