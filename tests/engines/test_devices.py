"""Devices of the pool's workers: who gets which; the same bits on a simulated GPU as on a CPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedloom.core.errors import RunError, UserError
from fedloom.core.transfer import all_to_device
from fedloom.data.dataset import Dataset, Split
from fedloom.engines import pool as pool_module
from fedloom.engines.forkserver import ForkServer
from fedloom.engines.pool import Pool
from fedloom.engines.worker_handle import WorkerHandle
from fedloom.engines.workload import Recipe, Workload, usable_cores
from fedloom.experiment import open_engine
from fedloom.experiment.build import server_device, worker_devices
from fedloom.experiment.prepare import prepare
from fedloom.experiment.train import train
from fedloom.methods.fedavg import fedavg
from fedloom.settings.config import load
from support.small_run import FEW_CLIENTS, USER_METHODS, prepare_small, sha_per_round

pytestmark = pytest.mark.xdist_group("pool")
TESTS = Path(__file__).parents[1]
GPUS = ("cuda:0", "cuda:1", "cuda:2")


@pytest.fixture
def three_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)


@pytest.mark.usefixtures("three_gpus")
@pytest.mark.parametrize(
    ("device", "expected"),
    [("cpu", ()), ("cuda", GPUS), ("auto", GPUS), ("cuda:1", ("cuda:1",)), ("cuda:0", GPUS[:1])],
)
def test_workers_share_the_gpus_that_the_settings_name(
    device: str, expected: tuple[str, ...]
) -> None:
    assert worker_devices(load({"device": device})) == expected


@pytest.mark.usefixtures("three_gpus")
@pytest.mark.parametrize(
    ("engine", "expected"),
    [("pool", "cpu"), ("inprocess", "cuda:2"), ("auto", "cuda:2"), ("vectorised", "cuda:2")],
)
def test_the_server_leaves_gpus_to_its_workers(engine: str, expected: str) -> None:
    config = load({"device": "cuda:2", "engine": engine})
    assert server_device(config) == torch.device(expected)


class CountedPool:
    """Knows only how many workers it was to have."""

    def __init__(self, workers: int, fork_server: ForkServer | None) -> None:
        self.workers = workers

    def load(self, recipe: Recipe) -> None:
        pass


@pytest.mark.parametrize(
    ("devices", "asked", "expected"),
    [(GPUS, 0, 3), (GPUS[:1], 0, 1), (GPUS, 5, 5), ((), 0, usable_cores()), ((), 5, 5)],
)
def test_there_is_a_worker_for_each_gpu(
    devices: tuple[str, ...], asked: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "Pool", CountedPool)
    recipe = Recipe("nowhere:federation", "", {}, {}, devices)
    not_used: Any = None
    _, opened = pool_module.open(Workload(not_used, not_used, recipe, asked))
    assert opened.workers == expected  # type: ignore[comparison-overlap]


def test_workers_take_devices_in_turn_and_a_new_one_that_of_the_lost(
    fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []
    monkeypatch.setattr(WorkerHandle, "build", lambda _, recipe: given.append(recipe["device"]))
    with closing(Pool(3, fork_server)) as pool:
        pool.start({"build": "nowhere:federation", "devices": ["cuda:0", "cuda:1"]})
        assert given == ["cuda:0", "cuda:1", "cuda:0"]
        pool._new_worker_for(pool.workers[1])
        assert given[3:] == ["cuda:1"]
        pool.start({"build": "nowhere:federation", "devices": []})
        assert given[4:] == ["cpu"] * 3


def test_nothing_is_copied_on_the_cpu() -> None:
    tensors = {"a": torch.ones(2), "b": torch.zeros(0)}
    moved = all_to_device(tensors, torch.device("cpu"))
    assert all(moved[name] is t for name, t in tensors.items()) and len(moved) == 2


@pytest.fixture(scope="module")
def mixed_pool() -> Iterator[Pool]:
    """Two workers that know the simulated GPU."""
    with pytest.MonkeyPatch.context() as patch:
        folders = (str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", ""))
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, folders)))
        with (
            closing(ForkServer("support.simulated_worker")) as fork_server,
            closing(Pool(2, fork_server)) as pool,
        ):
            yield pool


@pytest.fixture
def one_gpu_one_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first worker gets the simulated GPU, the second the CPU."""
    monkeypatch.setattr(open_engine, "worker_devices", lambda config: ("simulated:0", "cpu"))


@pytest.mark.usefixtures("one_gpu_one_cpu")
@pytest.mark.parametrize("method", ["scaffold+fedadam", "fedbn", "globalmixup"])
def test_a_worker_on_a_simulated_gpu_has_the_same_bits(method: str, mixed_pool: Pool) -> None:
    everyone: dict[str, Any] = {  # in every round, so that memories are recalled
        "rounds": 2,
        "data": {"clients": 4, "augment": ["flip", "pad-crop"]},
        "sample": {"per_round": 4},
    }
    alone = sha_per_round(prepare_small(method, **everyone))
    assert sha_per_round(prepare_small(method, mixed_pool, **everyone)) == alone


@pytest.mark.usefixtures("one_gpu_one_cpu")
def test_each_worker_trains_on_its_device(mixed_pool: Pool, tmp_path: Path) -> None:
    sha_per_round(prepare_small(f"{USER_METHODS}:witness(folder={tmp_path})", mixed_pool))
    assert {file.name for file in tmp_path.iterdir()} == {"simulated:0", "cpu"}


@pytest.mark.usefixtures("one_gpu_one_cpu")
def test_exchange_evaluation_and_finale_work_too(mixed_pool: Pool) -> None:
    alone, on_devices = (
        train(prepare_small(f"{USER_METHODS}:everything", pool, **FEW_CLIENTS)).result
        for pool in (None, mixed_pool)
    )
    assert replace(on_devices, seconds=0.0) == replace(alone, seconds=0.0)


def data_of_three_users() -> Dataset:
    draws = torch.Generator().manual_seed(1)

    def split(samples: int) -> Split:
        users = torch.arange(3).repeat(samples)
        return Split(torch.randn(3 * samples, 4, generator=draws), users % 2, users)

    return Dataset("users", "table", split(9), split(4), ("no", "yes"), users=tuple("abc"))


@pytest.mark.usefixtures("one_gpu_one_cpu")
def test_clients_are_scored_on_their_own_test_data(mixed_pool: Pool) -> None:
    settings = {
        "rounds": 2,
        "model": "mlp",
        "method": "ditto",
        "data": {"name": "users", "partition": "user", "clients": 3},
        "train": {"steps": 2, "batch": 4},
        "sample": {"per_round": 2},
        "evaluate": {"on": "own"},
        "guard": {"strict": True},
    }
    alone, on_devices = (
        train(prepare(load({**settings, "engine": engine}), data_of_three_users(), pool)).result
        for engine, pool in (("inprocess", None), ("pool", mixed_pool))
    )
    assert replace(on_devices, seconds=0.0) == replace(alone, seconds=0.0)


def test_a_gpu_that_a_worker_cannot_use_is_an_error_with_its_cause(
    fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_engine, "worker_devices", lambda config: ("cuda:7",))
    with (
        closing(Pool(1, fork_server)) as pool,
        pytest.raises(RunError, match=r"(?i)a worker of the pool could not build the run: .*cuda"),
    ):
        sha_per_round(prepare_small("fedavg", pool))


def test_objects_without_a_name_are_refused_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_engine, "_on_cpu", lambda config: False)
    settings = {"method": "python:mine", "engine": "pool", "model": "mlp"}
    with pytest.raises(UserError, match=r"cannot import method .*use --engine inprocess\. Put it"):
        prepare(load(settings), values={"python:mine": fedavg()})
