"""The choice of an engine and the number of lanes on another device than a CPU."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from fedloom.core.chain import Chain
from fedloom.core.request import Broadcast
from fedloom.engines import calibrate, choose, vectorised
from fedloom.engines.calibrate import Timing
from fedloom.engines.choose import EngineChoice
from fedloom.experiment import open_engine
from fedloom.experiment.prepare import prepare
from fedloom.settings.config import load

CONFIG = {
    "rounds": 3,
    "model": "mlp(layers=1, width=8)",
    "data": {"clients": 200, "partition": "iid"},
    "sample": {"per_round": 4},
    "workers": 2,
}


@pytest.mark.parametrize(
    ("seconds", "engine"), [(0.5, "vectorised"), (0.9, "inprocess")], ids=["faster", "slower"]
)
def test_auto_calibrates_on_another_device_without_the_pool(
    seconds: float, engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(choose, "PARALLEL_MACS", 1e6)
    monkeypatch.setattr(calibrate, "measure", lambda *_: Timing(1.0, seconds))
    base = prepare(load({**CONFIG, "engine": "inprocess"}))
    monkeypatch.setattr(open_engine, "resolve_device", lambda name: torch.device("mps"))
    config = load(CONFIG)
    workload = open_engine.workload_of(
        config, base.dataset, base.simulation.federation, base.clients
    )
    choice: EngineChoice = open_engine.choose_engine(
        config, base.dataset, base.clients, base.model, workload
    )
    assert choice.engine == engine
    (label,) = json.loads((tmp_path / "fedloom" / "calibration.json").read_text())
    assert json.loads(label)["device"] == "mps"


def test_another_device_is_timed_until_its_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[torch.device] = []
    monkeypatch.setattr(torch.accelerator, "synchronize", waited.append)
    engine = cast(Any, SimpleNamespace(map=lambda sent, tasks: iter(())))
    for kind in ("cpu", "mps"):
        device = torch.device(kind)
        assert calibrate._seconds(engine, Broadcast("train", 0, {}), [], device) >= 0
    assert waited == [torch.device("mps")]


def test_lanes_take_half_of_the_free_memory_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def chain(kind: str) -> Chain:
        parameter = SimpleNamespace(device=torch.device(kind))
        return cast(Chain, SimpleNamespace(parameters=lambda: iter([parameter])))

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (8 * 2**30, 16 * 2**30))
    assert vectorised.usable_bytes(chain("cuda")) == 4 * 2**30
    assert vectorised.usable_bytes(chain("cpu")) == vectorised.MEMORY_BYTES
