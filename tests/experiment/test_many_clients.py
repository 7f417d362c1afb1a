"""Five hundred clients, ten of them a round: resumed bit for bit, in memory that does not grow with who has taken part."""

import gc
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedloom.core.client import Broadcast, Task
from fedloom.core.params import Params, sha256
from fedloom.core.round import Engine
from fedloom.core.state import ClientStore
from fedloom.experiment.prepare import prepare
from fedloom.experiment.train import Interrupted, run
from fedloom.runs.folder import RunFolder
from fedloom.settings.config import Config, load

CLIENTS, ROUNDS, STOP = 500, 20, 10
LOOKS = (
    8,
    13,
    18,
)  # rounds after which memory is weighed: FedGKD has its five models by then, and nothing was scored yet
REMEMBERING = {
    "feddyn": "feddyn",
    "scaffold": "control",
    "fedgkd": None,
    "ditto": "personal",
}  # and what its clients remember
every_method = pytest.mark.parametrize("method", REMEMBERING)


def settings(method: str) -> Config:
    return load(
        {
            "method": method,
            "rounds": ROUNDS,
            "model": "mlp(width=8)",
            "engine": "inprocess",
            "data": {"clients": CLIENTS, "partition": "iid"},
            "sample": {"per_round": CLIENTS // 50},
            "train": {"steps": 2, "batch": 4},
            "evaluate": {"every": ROUNDS, "batch": 500, "personal": False},
        }
    )


def memories(store: ClientStore) -> dict[str, Params]:
    """Every client's, by client and slot."""
    return {f"{c}/{slot}": p for c in range(CLIENTS) for slot, p in store.recall(c).items()}


def identity(folder: RunFolder) -> dict[str, Any]:
    """All there is after the last round: the server's weights and memory, and what each client remembers."""
    restored = folder.restore()
    assert restored is not None
    remembered = {name: sha256(p) for name, p in memories(folder.store).items()}
    return {"round": restored.state.round, "server": sha256(restored.state.tensors())} | remembered


def weight() -> int:
    """Bytes of all tensors alive; those of other kinds, which tracing leaves behind, have no memory."""
    gc.collect()
    alive = (
        o.untyped_storage()
        for o in gc.get_objects()
        if type(o) in (torch.Tensor, torch.nn.Parameter)
    )
    return sum({s.data_ptr(): s.nbytes() for s in alive}.values())


@every_method
def test_resumed_halfway_equals_uninterrupted(tmp_path: Path, method: str) -> None:
    config = settings(method)
    with RunFolder.create(tmp_path / "whole", config.text()) as folder:
        run(prepare(config), folder)
        whole = identity(folder)
    rounds: list[int] = []
    with RunFolder.create(tmp_path / "part", config.text()) as folder, pytest.raises(Interrupted):
        run(
            prepare(config),
            folder,
            lambda line: rounds.append(line["round"]),
            stop=lambda: len(rounds) == STOP - 1,
        )
    with RunFolder.open(tmp_path / "part") as folder:
        run(prepare(config), folder, lambda line: rounds.append(line["round"]))
        assert identity(folder) == whole
    assert rounds == list(range(1, ROUNDS + 1))
    slot = REMEMBERING[method]
    assert {name.split("/")[1] for name in whole if "/" in name} == ({slot} if slot else set())
    if slot:
        assert (
            10 * STOP < sum("/" in name for name in whole) < 10 * ROUNDS
        )  # some clients took part again, most never did


def weighed(method: str, folder: RunFolder | None) -> list[int]:
    found = []

    def look(line: dict[str, Any]) -> None:
        if line["round"] in LOOKS:
            found.append(weight())

    run(prepare(settings(method)), folder, look)
    return found


@every_method
def test_memory_does_not_grow_with_the_clients_that_took_part(tmp_path: Path, method: str) -> None:
    with RunFolder.create(tmp_path / "run", settings(method).text()) as folder:
        first, *later = weighed(method, folder)
    assert later == [first] * len(later)


def test_memory_would_grow_if_clients_were_kept_in_it() -> None:
    """So what is weighed above is what a client leaves."""
    first, _, last = weighed("feddyn", None)
    assert last - first > 50 * 4 * 8 * 28 * 28  # fifty clients, the first layer of each


class Scales:
    """An engine that weighs all tensors once it has scored so many clients' own models."""

    def __init__(self, engine: Engine, after: tuple[int, ...]) -> None:
        self._engine, self._after = engine, after
        self.found: list[int] = []

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        for number, answer in enumerate(self._engine.map(sent, tasks), start=1):
            yield answer
            if sent.work == "score" and number in self._after:
                self.found.append(weight())

    def close(self) -> None:
        self._engine.close()


@pytest.mark.parametrize(
    "method", ["ditto", "finetune"]
)  # a model each in the store, and one that is made when it is asked for
def test_memory_does_not_grow_with_the_own_models_that_were_scored(
    tmp_path: Path, method: str
) -> None:
    config = load(
        {
            "method": method,
            "rounds": 1,
            "model": "mlp(width=8)",
            "engine": "inprocess",
            "data": {"name": f"crowd-{CLIENTS}", "clients": CLIENTS, "partition": "user"},
            "sample": "all",
            "evaluate": {"batch": 1000},
        }
    )
    prepared = prepare(config)
    scales = Scales(prepared.simulation.engine, after=(20, 250, 480))
    with RunFolder.create(tmp_path / "run", config.text()) as folder:
        result = run(
            replace(prepared, simulation=replace(prepared.simulation, engine=scales)), folder
        )
    assert len(result["personal"]["hits"]) == CLIENTS
    first, *later = scales.found
    assert later == [first] * 2
