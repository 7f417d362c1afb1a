"""Calibration: measured once, kept, thrown away, never in the way of a run; and the engine that "auto" makes of it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedloom.core.client import Federation
from fedloom.data.client import ClientData
from fedloom.engines import calibrate, choose
from fedloom.engines.calibrate import Timing
from fedloom.engines.choose import EngineChoice
from fedloom.experiment.open_engine import choose_engine, resume_config, workload_of
from fedloom.experiment.prepare import PreparedRun, prepare
from fedloom.experiment.train import Interrupted, run
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
    "within 1e-5 of the exact engines, not the same bits)"
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own, and runs that are large enough for it however small they are."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(choose, "PARALLEL_MACS", 1e6)
    return tmp_path / "cache" / "fedloom" / "calibration.json"


def clocked(monkeypatch: pytest.MonkeyPatch, inprocess: float, vectorised: float) -> list[int]:
    """From now on a measurement gives these seconds; the list grows by one each time."""
    asked: list[int] = []

    def measured(one_by_one: Federation, beside: Federation, clients: int, steps: int) -> Timing:
        asked.append(clients)
        return Timing(inprocess, vectorised)

    monkeypatch.setattr(calibrate, "measure", measured)
    return asked


def auto(**changes: Any) -> PreparedRun:
    return prepare(load({**AUTO, **changes}))


@pytest.fixture(scope="module")
def base() -> PreparedRun:
    return auto(engine="inprocess")


def taken(base: PreparedRun, **changes: Any) -> EngineChoice:
    """What such settings come to, without an engine being opened."""
    config, federation = load({**AUTO, **changes}), base.simulation.federation
    workload = workload_of(config, base.dataset, federation, base.clients)
    return choose_engine(config, base.dataset, base.clients, base.model, workload)


@pytest.mark.parametrize(
    ("ratio", "workers", "engine"),
    [(0.39, 2, "vectorised"), (0.41, 2, "pool"), (0.79, 1, "vectorised"), (0.81, 1, "inprocess")],
)
def test_the_vectorised_engine_must_be_clearly_ahead(
    base: PreparedRun, monkeypatch: pytest.MonkeyPatch, ratio: float, workers: int, engine: str
) -> None:
    clocked(monkeypatch, 2.0, 2.0 * ratio)
    assert taken(base, workers=workers).engine == engine


def test_what_was_found_is_kept_and_thrown_away(
    base: PreparedRun, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    asked = clocked(monkeypatch, 1.0, 0.39)
    for _ in range(3):
        assert taken(base, seed=len(asked)).engine == "vectorised"
    assert asked == [4]
    assert calibrate.stored_summaries() == [
        "fedavg on mlp, 4 clients per round, batches of 20: vectorised 0.39 of in-process"
    ]
    taken(base, train={"batch": 10})
    assert asked == [4, 4]
    assert len(json.loads(cache.read_text())) == 2
    calibrate.forget()
    calibrate.forget()
    assert calibrate.stored_timings() == {} and not cache.exists()


def test_other_work_is_measured_by_itself(
    base: PreparedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = clocked(monkeypatch, 1.0, 0.3)
    others: list[dict[str, Any]] = [
        {"model": "mlp(layers=1, width=9)"},
        {"method": "fedprox"},
        {"dtype": "float64"},
        {"sample": {"per_round": 5}},
        {"train": {"batch": 20, "epochs": 2}},
    ]
    for number, change in enumerate([{}, *others], 1):
        taken(base, **change)
        assert len(asked) == number, change


BROKEN = ["", "{", "[]", "7", "[" * 100_000, '{"a": 1}', '{"a": {"inprocess": 1}}', '{"a": {"inprocess": "x", "vectorised": 1}}',
          '{"a": {"inprocess": 0, "vectorised": 1}}', '{"a": {"inprocess": NaN, "vectorised": 1}}']  # fmt: skip


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_a_broken_file_is_as_none(
    base: PreparedRun, monkeypatch: pytest.MonkeyPatch, cache: Path, text: str
) -> None:
    clocked(monkeypatch, 1.0, 0.3)
    cache.parent.mkdir(parents=True)
    cache.write_text(text)
    assert calibrate.stored_timings() == {} and calibrate.stored_summaries() == []
    assert taken(base).engine == "vectorised"
    assert len(calibrate.stored_timings()) == 1


def test_what_cannot_be_kept_is_not_chosen(
    base: PreparedRun, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    """A clock would decide anew each time, and one seed would have two results."""
    clocked(monkeypatch, 1.0, 0.3)
    cache.parent.parent.write_text("a file where the folder should be")
    assert taken(base, workers=1) == EngineChoice(
        "inprocess", f"not vectorised, since a calibration cannot be stored in {cache}"
    )


def test_little_work_and_named_engines_are_not_measured(
    base: PreparedRun, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    asked = clocked(monkeypatch, 1.0, 0.3)
    assert taken(base, engine="inprocess") == EngineChoice("inprocess")
    assert taken(base, engine="vectorised") == EngineChoice("vectorised")
    monkeypatch.setattr(choose, "PARALLEL_MACS", 1e12)
    assert taken(base) == EngineChoice("inprocess")
    assert asked == [] and not cache.exists()


def test_a_method_that_cannot_go_side_by_side_says_so(cache: Path) -> None:
    choice = auto(workers=1, train={"batch": 20, "momentum": 0.9, "reset": False}).choice
    assert choice.engine == "inprocess"
    assert (
        choice.why == "not vectorised, since train.reset=false keeps each client's momentum, "
        "and vectorised clients start without momentum"
    )
    assert not cache.exists()


def test_a_real_measurement_plays_a_few_steps_of_a_few_clients() -> None:
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
def test_the_user_is_told(
    monkeypatch: pytest.MonkeyPatch, ratio: float, workers: int, line: str
) -> None:
    clocked(monkeypatch, 1.0, ratio)
    heard: list[str] = []
    run(auto(workers=workers, rounds=1), tell=heard.append)
    assert heard == [line]


@pytest.mark.parametrize("ratio", [0.3, 0.9])
def test_a_run_goes_on_with_the_engine_it_began_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ratio: float
) -> None:
    clocked(monkeypatch, 1.0, ratio)
    config = load({**AUTO, "workers": 1})
    whole = run(prepare(config))
    asked = itertools.count(1)
    with RunFolder.create(tmp_path / "run", config.text()) as folder, pytest.raises(Interrupted):
        assert resume_config(config, folder.path) == config
        run(prepare(config), folder, stop=lambda: next(asked) == 1)
    calibrate.forget()
    clocked(monkeypatch, 1.0, 1.2 - ratio)  # by which it would choose the other one
    with RunFolder.open(tmp_path / "run") as folder:
        prepared = prepare(resume_config(config, folder.path))
        assert prepared.choice.engine == ("vectorised" if ratio < 0.5 else "inprocess")
        assert run(prepared, folder)["weights_sha256"] == whole["weights_sha256"]
    with RunFolder.open(tmp_path / "run") as folder:
        assert resume_config(load({**AUTO, "engine": "pool"}), folder.path).engine == "pool"
