"""Calibration: measured once, stored, deleted; and the engine that "auto" chooses by it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedloom.core.federation import Federation
from fedloom.data.client import ClientData
from fedloom.engines import calibrate, choose
from fedloom.engines.calibrate import Timing
from fedloom.engines.choose import EngineChoice
from fedloom.experiment.open_engine import choose_engine, resume_config, workload_of
from fedloom.experiment.prepare import PreparedRun, prepare
from fedloom.experiment.train import Interrupted, train
from fedloom.runs.folder import RunFolder
from fedloom.settings.config import load

AUTO = {
    "rounds": 3,
    "model": "mlp(layers=1, width=8)",
    "data": {"clients": 200, "partition": "iid"},
    "train": {"batch": 20},
    "sample": {"per_round": 4},
    "evaluate": {"every": 3, "batch": 500},
    "workers": 2,
}
EXACT = "engine: inprocess (calibrated: vectorised 0.90 of in-process, pool of 1 1.00)"
AHEAD = (
    "engine: vectorised (calibrated: vectorised 0.39 of in-process, pool of 2 0.50; "
    "equal to the exact engines up to rounding, not the same bits)"
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache for this test only, and a threshold that makes any run large enough."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(choose, "PARALLEL_MACS", 1e6)
    return tmp_path / "cache" / "fedloom" / "calibration.json"


def fake_timing(monkeypatch: pytest.MonkeyPatch, inprocess: float, vectorised: float) -> list[int]:
    """Replace the measurement by these seconds; the list grows by one for each call."""
    asked: list[int] = []

    def measure(federation: Federation, stackable: Federation, clients: int, steps: int) -> Timing:
        asked.append(clients)
        return Timing(inprocess, vectorised)

    monkeypatch.setattr(calibrate, "measure", measure)
    return asked


def auto(**changes: Any) -> PreparedRun:
    return prepare(load({**AUTO, **changes}))


@pytest.fixture(scope="module")
def base() -> PreparedRun:
    return auto(engine="inprocess")


def chosen(base: PreparedRun, **changes: Any) -> EngineChoice:
    """The choice for these settings, without opening an engine."""
    config, federation = load({**AUTO, **changes}), base.simulation.federation
    workload = workload_of(config, base.dataset, federation, base.clients)
    return choose_engine(config, base.dataset, base.clients, base.model, workload)


@pytest.mark.parametrize(
    ("ratio", "workers", "engine"),
    [(0.39, 2, "vectorised"), (0.41, 2, "pool"), (0.79, 1, "vectorised"), (0.81, 1, "inprocess")],
)
def test_the_vectorised_engine_must_be_clearly_faster(
    base: PreparedRun, monkeypatch: pytest.MonkeyPatch, ratio: float, workers: int, engine: str
) -> None:
    fake_timing(monkeypatch, 2.0, 2.0 * ratio)
    assert chosen(base, workers=workers).engine == engine


def test_timings_are_stored_and_deleted(
    base: PreparedRun, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    asked = fake_timing(monkeypatch, 1.0, 0.39)
    for _ in range(3):
        assert chosen(base, seed=len(asked)).engine == "vectorised"
    assert asked == [4]
    assert calibrate.stored_summaries() == [
        "fedavg on mlp, 4 clients per round, batches of 20: vectorised 0.39 of in-process"
    ]
    chosen(base, train={"batch": 10})
    assert asked == [4, 4]
    assert len(json.loads(cache.read_text())) == 2
    calibrate.forget()
    calibrate.forget()
    assert calibrate.stored_timings() == {} and not cache.exists()


def test_other_settings_are_measured_separately(
    base: PreparedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = fake_timing(monkeypatch, 1.0, 0.3)
    others: list[dict[str, Any]] = [
        {"model": "mlp(layers=1, width=9)"},
        {"method": "fedprox"},
        {"dtype": "float64"},
        {"sample": {"per_round": 5}},
        {"train": {"batch": 20, "epochs": 2}},
    ]
    for number, change in enumerate([{}, *others], 1):
        chosen(base, **change)
        assert len(asked) == number, change


BROKEN = [
    "",
    "{",
    "[]",
    "7",
    "[" * 100_000,
    '{"a": 1}',
    '{"a": {"inprocess": 1}}',
    '{"a": {"inprocess": "x", "vectorised": 1}}',
    '{"a": {"inprocess": 0, "vectorised": 1}}',
    '{"a": {"inprocess": NaN, "vectorised": 1}}',
]


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_a_broken_file_counts_as_empty(
    base: PreparedRun, monkeypatch: pytest.MonkeyPatch, cache: Path, text: str
) -> None:
    fake_timing(monkeypatch, 1.0, 0.3)
    cache.parent.mkdir(parents=True)
    cache.write_text(text)
    assert calibrate.stored_timings() == {} and calibrate.stored_summaries() == []
    assert chosen(base).engine == "vectorised"
    assert len(calibrate.stored_timings()) == 1


def test_a_timing_that_cannot_be_stored_is_not_used(
    base: PreparedRun, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    """Otherwise every run would decide by a new timing, and one seed could have two results."""
    fake_timing(monkeypatch, 1.0, 0.3)
    cache.parent.parent.write_text("a file where the folder should be")
    assert chosen(base, workers=1) == EngineChoice(
        "inprocess", f"not vectorised, since a calibration cannot be stored in {cache}"
    )


def test_small_runs_and_named_engines_are_not_measured(
    base: PreparedRun, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    asked = fake_timing(monkeypatch, 1.0, 0.3)
    assert chosen(base, engine="inprocess") == EngineChoice("inprocess")
    assert chosen(base, engine="vectorised") == EngineChoice("vectorised")
    monkeypatch.setattr(choose, "PARALLEL_MACS", 1e12)
    assert chosen(base) == EngineChoice("inprocess")
    assert asked == [] and not cache.exists()


def test_the_choice_says_why_it_is_not_vectorised(cache: Path) -> None:
    choice = auto(workers=1, train={"batch": 20, "momentum": 0.9, "reset": False}).engine_choice
    assert choice.engine == "inprocess"
    assert (
        choice.why == "not vectorised, since train.reset=false keeps each client's momentum, "
        "and vectorised clients start without momentum"
    )
    assert not cache.exists()


def test_a_real_measurement_runs_a_few_steps_of_a_few_clients() -> None:
    federation, visits = (
        auto(engine="inprocess", method="scaffold").simulation.federation,
        list[int](),
    )

    class Watched(Sequence[ClientData]):
        def __len__(self) -> int:
            return len(federation.clients)

        def __getitem__(self, index: Any) -> Any:
            visits.append(index)
            return federation.clients[index]

    timing = calibrate.measure(
        federation, replace(federation, clients=Watched()), clients=3, steps=2
    )
    assert isinstance(timing, Timing)
    assert timing.vectorised > 0 and timing.inprocess > 0
    assert visits == [0, 66, 133]


@pytest.mark.parametrize(("ratio", "workers", "line"), [(0.39, 2, AHEAD), (0.9, 1, EXACT)])
def test_the_choice_is_reported(
    monkeypatch: pytest.MonkeyPatch, ratio: float, workers: int, line: str
) -> None:
    fake_timing(monkeypatch, 1.0, ratio)
    heard: list[str] = []
    train(auto(workers=workers, rounds=1), inform=heard.append)
    assert heard == [line]


@pytest.mark.parametrize("ratio", [0.3, 0.9])
def test_a_run_resumes_with_the_engine_it_began_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ratio: float
) -> None:
    fake_timing(monkeypatch, 1.0, ratio)
    config = load({**AUTO, "workers": 1})
    whole = train(prepare(config)).result
    asked = itertools.count(1)
    with RunFolder.create(tmp_path / "run", config.text()) as folder, pytest.raises(Interrupted):
        assert resume_config(config, folder.path) == config
        train(prepare(config), folder, stop=lambda: next(asked) == 1)
    calibrate.forget()
    fake_timing(monkeypatch, 1.0, 1.2 - ratio)  # which would choose the other engine
    with RunFolder.open(tmp_path / "run") as folder:
        prepared = prepare(resume_config(config, folder.path))
        assert prepared.engine_choice.engine == ("vectorised" if ratio < 0.5 else "inprocess")
        assert train(prepared, folder).result.weights_sha256 == whole.weights_sha256
    with RunFolder.open(tmp_path / "run") as folder:
        assert resume_config(load({**AUTO, "engine": "pool"}), folder.path).engine == "pool"
