"""The table of engines: complete, importable without torch, and the only place that names them."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedloom.cli.main import app
from fedloom.core import user_code
from fedloom.core.errors import UserError
from fedloom.engines import registry
from fedloom.engines.forkserver import ForkServer
from fedloom.engines.inprocess import InProcess
from fedloom.engines.pool import Pool
from fedloom.engines.registry import ENGINES, EngineEntry
from fedloom.engines.workload import Workload
from fedloom.experiment import open_engine as module
from fedloom.experiment.build import build_federation
from fedloom.experiment.open_engine import choose_engine, open_engine, workload_of
from fedloom.experiment.prepare import PreparedRun, prepare
from fedloom.settings.config import load
from support.small_run import SMALL_CONFIG, sha_per_round

SETTINGS = {**SMALL_CONFIG, "rounds": 1, "engine": "inprocess"}


@pytest.mark.parametrize("entry", ENGINES.values(), ids=ENGINES)
def test_every_loader_leads_to_a_function(entry: EngineEntry) -> None:
    name, _, function = entry.loader.partition(":")
    assert callable(getattr(importlib.import_module(name), function))
    assert entry.summary and "\n" not in entry.summary
    assert entry.uses_workers or not entry.uses_fork_server


def test_only_engines_that_fork_need_a_system_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(entry.available for entry in ENGINES.values())
    monkeypatch.delattr("os.fork")
    assert [name for name, entry in ENGINES.items() if not entry.available] == ["pool"]
    registry.check_available("auto")
    registry.check_available("ray")
    with pytest.raises(UserError, match=r"'pool' forks its workers, which .* cannot do; use --eng"):
        registry.check_available("pool")


def test_the_registry_is_imported_without_torch() -> None:
    code = "import sys, fedloom.engines.registry; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_engine_is_rejected_with_the_choices() -> None:
    with pytest.raises(UserError) as caught:
        load({**SETTINGS, "engine": "pol"})
    assert "no engine 'pol'; did you mean 'pool'? (choices: auto, inprocess, pool, " in str(
        caught.value
    )
    for name in registry.CHOICES:
        assert load({**SETTINGS, "engine": name}).engine == name


def test_the_command_line_lists_every_engine(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        app(["run", "--help"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in registry.CHOICES)


def open_counting(workload: Workload) -> Any:
    """An engine as a user might add one."""
    return workload.federation, InProcess(workload.federation)


def test_a_new_engine_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "some_new_engine", sys.modules[__name__])
    entry = EngineEntry("new", "the new engine", "for this test", "some_new_engine:open_counting")
    monkeypatch.setitem(ENGINES, "new", entry)
    prepared = prepare(load({**SETTINGS, "engine": "new"}))
    assert prepared.engine_choice.engine == "new"
    assert sha_per_round(prepared) == sha_per_round(prepare(load(SETTINGS)))


@pytest.mark.parametrize("engine", [e.name for e in ENGINES.values() if e.cpu_only])
def test_engines_for_cpus_reject_other_devices(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare(load(SETTINGS))
    monkeypatch.setattr(module, "_on_cpu", lambda config: False)
    with pytest.raises(UserError, match=f"engine '{engine}' runs on the CPU only"):
        opened(prepared, engine, {})


USER_MODULE = """
from fedloom.methods.fedprox import fedprox

def stiff():
    return fedprox(mu=0.5)
"""


def test_workers_import_what_their_server_can_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fork_server: ForkServer
) -> None:
    """Also what became importable only after they had started."""
    (tmp_path / "fedloom_test_module.py").write_text(USER_MODULE)
    pool = Pool(1, fork_server)
    assert pool.workers[0].process.pid
    monkeypatch.syspath_prepend(tmp_path)
    settings = {**SETTINGS, "method": "fedloom_test_module:stiff"}
    user_code.allow(["fedloom_test_module:stiff"])
    with prepare(load({**settings, "engine": "pool"}), pool=pool) as pooled:
        assert sha_per_round(pooled) == sha_per_round(prepare(load(settings)))


VALUES = {"python:doubt": object()}


def opened(prepared: PreparedRun, engine: str, values: dict[str, Any]) -> Any:
    config = load({**SETTINGS, "engine": engine})
    federation = prepared.simulation.federation
    return open_engine(
        config, prepared.dataset, federation, prepared.clients, prepared.model, values=values
    )


@pytest.mark.parametrize(
    ("engine", "label"), [(e.name, e.label) for e in ENGINES.values() if e.uses_workers]
)
def test_objects_without_an_importable_name_run_in_process_with_a_warning(
    engine: str, label: str
) -> None:
    prepared = prepare(load(SETTINGS))
    federation, running, choice = opened(prepared, engine, VALUES)
    assert isinstance(running, InProcess) and federation is prepared.simulation.federation
    assert choice.engine == "inprocess" and choice.why == ""
    assert choice.warning == (
        f"engine '{engine}' runs clients in other processes, which cannot import method 'doubt' "
        f"(defined in a notebook or script); running in-process. "
        f"Put it into a module to use {label}."
    )


def test_the_warning_names_every_such_object() -> None:
    prepared = prepare(load(SETTINGS))
    config = load({**SETTINGS, "engine": "pool"}).model_copy(
        update={"model": prepared.config.model.__class__("python:net")}
    )
    workload = workload_of(
        config, prepared.dataset, prepared.simulation.federation, prepared.clients
    )
    values = {**VALUES, "python:net": object()}
    choice = choose_engine(
        config, prepared.dataset, prepared.clients, prepared.model, workload, values
    )
    assert "cannot import method 'doubt' and model 'net' (" in choice.warning
    assert "Put them into a module" in choice.warning


@pytest.mark.parametrize("engine", ["auto", "inprocess"])
def test_in_process_they_run_silently(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedloom.engines.choose.PARALLEL_MACS", 0)
    _, running, choice = opened(prepare(load(SETTINGS)), engine, VALUES)
    assert isinstance(running, InProcess)
    assert (choice.engine, choice.why, choice.warning) == ("inprocess", "", "")


def test_the_vectorised_engine_is_built_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def build(config: Any, dataset: Any, clients: Any, *values: Any) -> Any:
        given.append((config.layout, *values))
        return build_federation(config, dataset, clients)

    monkeypatch.setattr(module, "build_federation", build)
    prepared = prepare(load(SETTINGS))
    for values, passed in (({}, ("contiguous", {})), (VALUES, ("contiguous", VALUES))):
        given.clear()
        _, _, choice = opened(prepared, "vectorised", values)
        assert choice.engine == "vectorised" and given == [passed]
