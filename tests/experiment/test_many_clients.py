"""Five hundred clients, ten per round: resumed bit for bit, and memory does not grow with them."""

import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedloom.core.params import Params, sha256
from fedloom.core.request import Broadcast, Task
from fedloom.core.simulation import Engine
from fedloom.core.state import ClientStore
from fedloom.experiment.callbacks import Callback
from fedloom.experiment.prepare import prepare
from fedloom.experiment.train import Interrupted, train
from fedloom.metrics.records import RoundRecord
from fedloom.runs.folder import RunFolder
from fedloom.settings.config import Config, load

CLIENTS, ROUNDS, STOP = 500, 20, 10
# rounds after which memory is measured: FedGKD has its five models, and nothing was scored yet
LOOKS = (8, 13, 18)
# methods with state, and the slot that their clients remember
REMEMBERING = {"feddyn": "feddyn", "scaffold": "control", "fedgkd": None, "ditto": "personal"}
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


class OnRound(Callback):
    """Calls a function after every round."""

    def __init__(self, call: Callable[[RoundRecord], None]) -> None:
        self._call = call

    def on_round(self, record: RoundRecord) -> None:
        self._call(record)


def memories(store: ClientStore) -> dict[str, Params]:
    """Every client's, by client and slot."""
    return {f"{c}/{slot}": p for c in range(CLIENTS) for slot, p in store.recall(c).items()}


def identity(folder: RunFolder) -> dict[str, Any]:
    """The state after the last round: of the server and of every client that has one."""
    restored = folder.restore()
    assert restored is not None
    remembered = {name: sha256(p) for name, p in memories(folder.store).items()}
    return {"round": restored.state.round, "server": sha256(restored.state.tensors())} | remembered


def weight() -> int:
    """Bytes of all tensors alive; other kinds, which tracing leaves, have no memory."""
    gc.collect()
    alive = (
        o.untyped_storage()
        for o in gc.get_objects()
        if type(o) in (torch.Tensor, torch.nn.Parameter) and o.layout is torch.strided
    )
    return sum({s.data_ptr(): s.nbytes() for s in alive}.values())


@every_method
def test_resumed_halfway_equals_uninterrupted(tmp_path: Path, method: str) -> None:
    config = settings(method)
    with RunFolder.create(tmp_path / "whole", config.text()) as folder:
        train(prepare(config), folder)
        whole = identity(folder)
    rounds: list[int] = []
    count = OnRound(lambda record: rounds.append(record.round))
    with RunFolder.create(tmp_path / "part", config.text()) as folder, pytest.raises(Interrupted):
        train(prepare(config), folder, [count], stop=lambda: len(rounds) == STOP - 1)
    with RunFolder.open(tmp_path / "part") as folder:
        train(prepare(config), folder, [count])
        assert identity(folder) == whole
    assert rounds == list(range(1, ROUNDS + 1))
    slot = REMEMBERING[method]
    assert {name.split("/")[1] for name in whole if "/" in name} == ({slot} if slot else set())
    if slot:
        # some clients took part twice, most of them never
        assert 10 * STOP < sum("/" in name for name in whole) < 10 * ROUNDS


def weighed(method: str, folder: RunFolder | None) -> list[int]:
    found = []

    def look(record: RoundRecord) -> None:
        if record.round in LOOKS:
            found.append(weight())

    train(prepare(settings(method)), folder, [OnRound(look)])
    return found


@pytest.mark.slow
@every_method
def test_memory_does_not_grow_with_the_clients_that_took_part(tmp_path: Path, method: str) -> None:
    with RunFolder.create(tmp_path / "run", settings(method).text()) as folder:
        first, *later = weighed(method, folder)
    assert later == [first] * len(later)


def test_memory_would_grow_if_clients_were_kept_in_it() -> None:
    """So the test above measures what a client leaves."""
    first, _, last = weighed("feddyn", None)
    assert last - first > 50 * 4 * 8 * 28 * 28  # fifty clients, the first layer of each


class Scales:
    """An engine that measures all tensors after these numbers of personal models were scored."""

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


# models that are in the store, and models that are made when they are needed
@pytest.mark.slow
@pytest.mark.parametrize("method", ["ditto", "finetune"])
def test_memory_does_not_grow_with_the_personal_models_that_were_scored(
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
        weighing = replace(prepared, simulation=replace(prepared.simulation, engine=scales))
        result = train(weighing, folder).result
    assert result.personal_models is not None
    assert len(result.personal_models.correct) == CLIENTS
    first, *later = scales.found
    assert later == [first] * 2
