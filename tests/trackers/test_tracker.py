"""What every tracker does, with one that writes to a list: no package is needed."""

from __future__ import annotations

import importlib.util
import json
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from cli import talk
from fedloom import trackers
from fedloom.core.errors import RunError, UserError
from fedloom.core.params import sha256
from fedloom.experiment.build import resolve_auto
from fedloom.experiment.callbacks import RunStart
from fedloom.experiment.execute import execute
from fedloom.trackers.contents import run_name
from fedloom.trackers.contents import settings as flat
from fedloom.trackers.memory import FILE, LogMemory
from fedloom.trackers.registry import build, build_all, names
from fedloom.trackers.tracker import Ending, Numbers, RunLog, Tracker, check_installed
from trackers.following import METRICS, PERSONAL, accuracies, cut_off, resume, settings


class Listed:
    """A log that is a list. fails: the call that raises."""

    look = "read the list"

    def __init__(self, fails: str) -> None:
        self.fails = fails
        self.rounds: dict[int, dict[str, float]] = {}
        self.kept: dict[str, bytes] = {}
        self.scores: dict[str, dict[int, float]] = {}
        self.last: dict[str, float] = {}
        self.ending: Ending | None = None

    def attempt(self, call: str) -> None:
        if call == self.fails:
            raise OSError(28, "No space left on device")

    def round(self, number: int, metrics: Numbers) -> None:
        self.attempt(f"round {number}")
        self.rounds[number] = dict(metrics)

    def final(self, rounds: int, metrics: Numbers) -> None:
        self.attempt("final")
        self.last = dict(metrics)

    def clients(self, scores: Mapping[str, Mapping[int, float]]) -> None:
        self.scores = {name: dict(each) for name, each in scores.items()}

    def files(self, paths: Sequence[Path]) -> None:
        self.kept = {path.name: path.read_bytes() for path in paths}

    def close(self, ending: Ending) -> None:
        self.ending = ending
        self.attempt("close")


class Lister(Tracker):
    """name: of a package that is always there."""

    name = "json"

    def __init__(self, fails: str = "", **options: bool) -> None:
        super().__init__(**options)
        self.fails = fails
        self.logs: list[Listed] = []

    def open_log(self, start: RunStart) -> RunLog:
        if self.fails == "open":
            raise OSError(28, "No space left on device")
        self.logs.append(Listed(self.fails))
        return self.logs[-1]


def test_every_round_the_end_and_the_files_are_written(desk: Path) -> None:
    tracker = Lister()
    trained = execute(settings(method="finetune"), desk / "run", callbacks=[tracker])
    (log,) = tracker.logs
    assert set(log.rounds) == {1, 2, 3, 4}
    assert set(log.rounds[2]) == METRICS
    assert {n: r["accuracy"] for n, r in log.rounds.items()} == accuracies(desk / "run")
    assert set(log.last) == PERSONAL
    assert (log.ending, log.scores, tracker.look) == ("finished", {}, "read the list")
    names = ["config.toml", "metrics.jsonl", "result.json"]
    assert [log.kept[name] for name in names] == [
        (desk / "run" / name).read_bytes() for name in names
    ]
    (desk / "x").write_bytes(log.kept["model.safetensors"])
    assert sha256(load_file(desk / "x")) == trained.result.weights_sha256


def test_a_run_in_memory_has_the_same_files(desk: Path) -> None:
    tracker = Lister()
    trained = execute(settings(), callbacks=[tracker])
    kept = tracker.logs[0].kept
    assert list(kept) == ["config.toml", "metrics.jsonl", "result.json", "model.safetensors"]
    assert kept["config.toml"].decode() == resolve_auto(settings()).text()
    assert len(kept["metrics.jsonl"].splitlines()) == 4
    assert json.loads(kept["result.json"])["accuracy"] == trained.result.accuracy


def test_clients_are_scored_on_request(desk: Path) -> None:
    tracker = Lister(clients=True)
    trained = execute(settings(method="finetune"), desk / "run", callbacks=[tracker])
    scores, personal = tracker.logs[0].scores, trained.result.personal_models
    assert personal is not None
    assert scores["accuracy"][5] == sum(personal.correct[5]) / 80
    assert sum(scores["rounds"].values()) == 4 * 3
    assert scores["rejected"] == dict.fromkeys(range(8), 0)


def test_without_personal_models_clients_have_no_accuracy(desk: Path) -> None:
    tracker = Lister(clients=True)
    execute(settings(), desk / "run", callbacks=[tracker])
    assert set(tracker.logs[0].scores) == {"rounds", "rejected"}


@pytest.mark.parametrize("fails", ["open", "round 1", "round 3", "final", "close"])
def test_a_tracker_that_fails_does_not_stop_the_run(fails: str, desk: Path) -> None:
    broken, other, said = Lister(fails), Lister(), list[str]()
    trained = execute(settings(), desk / "run", callbacks=[broken, other], warn=said.append)
    alone = execute(settings())
    assert trained.result.weights_sha256 == alone.result.weights_sha256
    assert said == [
        "note: json has stopped (OSError: [Errno 28] No space left on device); "
        "the run goes on without it"
    ]
    assert broken.look is None
    assert set(other.logs[0].rounds) == {1, 2, 3, 4}


def test_a_tracker_that_fails_and_cannot_be_closed_is_left_alone(desk: Path) -> None:
    tracker = Lister("round 2")
    tracker.open_log = lambda start: NeverCloses("round 2")  # type: ignore[method-assign]
    said: list[str] = []
    execute(settings(), callbacks=[tracker], warn=said.append)
    assert len(said) == 1


class NeverCloses(Listed):
    def close(self, ending: Ending) -> None:
        raise OSError("gone")


@pytest.mark.parametrize("completed", [1, 2, 3])
def test_a_resumed_run_writes_the_rounds_that_a_new_log_lacks(desk: Path, completed: int) -> None:
    cut_off(desk / "run", completed)
    tracker = Lister()
    resume(desk / "run", tracker)
    assert {n: r["accuracy"] for n, r in tracker.logs[0].rounds.items()} == accuracies(desk / "run")


@pytest.mark.parametrize(
    ("error", "ending"),
    [(KeyboardInterrupt, "interrupted"), (ValueError, "failed")],
)
def test_a_run_that_stops_says_how(
    desk: Path, error: type[BaseException], ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = Lister()

    def stop() -> bool:
        raise error

    with pytest.raises(error):
        execute(settings(), callbacks=[tracker], stop=stop)
    assert tracker.logs[0].ending == ending


def test_one_tracker_follows_several_runs(desk: Path) -> None:
    tracker = Lister(clients=True)
    execute(settings(), callbacks=[tracker])
    execute(settings(rounds=2), callbacks=[tracker])
    first, second = tracker.logs
    assert (len(first.rounds), len(second.rounds)) == (4, 2)
    assert sum(second.scores["rounds"].values()) == 2 * 3
    assert len(second.kept["metrics.jsonl"].splitlines()) == 2


def test_settings_are_flat_and_complete() -> None:
    values = flat(settings(method="fedprox(mu=0.5)", evaluate={"target": None}))
    assert values["method.name"] == "fedprox" and values["method.fedprox.mu"] == 0.5
    assert values["train.batch"] == 10 and values["guard.strict"] is False
    assert "evaluate.target" not in values


@pytest.mark.parametrize("method", ["fedavg", "fedprox(mu=0.1)+fedavgm"])
def test_the_name_of_a_run_is_one_for_a_folder(method: str) -> None:
    name = run_name(settings(method=method, seed=3))
    assert name.startswith(method[:6]) and name.endswith("-s3") and Path(name).name == name


def test_a_log_is_remembered_in_the_run_folder(tmp_path: Path) -> None:
    LogMemory(tmp_path, "mlflow", "here").keep("abc")
    LogMemory(tmp_path, "wandb", "there").keep("def", 7)
    assert LogMemory(tmp_path, "mlflow", "here").name == "abc"
    remembered = LogMemory(tmp_path, "wandb", "there")
    assert (remembered.name, remembered.rounds) == ("def", 7)
    assert LogMemory(tmp_path, "wandb", "elsewhere").name is None


@pytest.mark.parametrize(
    "entry",
    [
        '{"wandb x": {"name": "../../evil", "rounds": 0}}',
        '{"wandb x": {"name": "..", "rounds": 0}}',
        '{"wandb x": {"name": "a", "rounds": "1"}}',
        '{"wandb x": {"name": "a"}}',
        '{"wandb x": 3}',
        "[]",
        "{",
        "[" * 10_000,
    ],
)
def test_a_damaged_or_malicious_memory_is_rejected(tmp_path: Path, entry: str) -> None:
    (tmp_path / FILE).write_text(entry)
    with pytest.raises(RunError, match=r"trackers\.json is damaged; delete it"):
        LogMemory(tmp_path, "wandb", "x")


def test_no_public_name_is_hidden_by_a_module() -> None:
    """Importing a module of a package sets the attribute of that name."""
    modules = {module.name for module in pkgutil.iter_modules(trackers.__path__)}
    assert not modules & set(trackers.__all__)
    assert trackers.build is build


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name in names():
        with pytest.raises(UserError) as caught:
            build(name)
        assert str(caught.value) == (
            f"tracker '{name}' needs the package {name}; install it with: "
            f'pip install "fedloom[{name}]"'
        )


def test_a_folder_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as ./wandb, which holds the offline runs."""
    (tmp_path / "unheard_of_tracker").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.util.find_spec("unheard_of_tracker") is not None
    with pytest.raises(UserError, match="needs the package unheard_of_tracker"):
        check_installed("unheard_of_tracker")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--track", "tensorbord"], "no tracker 'tensorbord'; did you mean 'tensorboard'?"),
        (["--track", "mlflow="], "--track mlflow= names no place; leave out the ="),
        (["--track", "mlflow", "--track", "mlflow"], "--track mlflow is given twice"),
        (["--track-clients"], "add --track with tensorboard, mlflow or wandb"),
    ],
)
@pytest.mark.parametrize("command", ["run", "compare"])
def test_what_cannot_be_tracked_is_an_error_before_the_run(
    desk: Path, command: str, words: list[str], sentence: str
) -> None:
    more: list[Any] = ["--methods", "fedavg"] if command == "compare" else []
    said = talk.fedloom(command, *more, *talk.TINY, *words, "--out", "run", code=2)
    assert sentence in said.flat
    assert not Path("run").exists()


def test_a_replayed_client_is_not_tracked(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedloom.trackers.registry.TRACKERS", {"json": f"{__name__}:Placed"})
    cut_off(desk / "run", 1)
    said = talk.fedloom("resume", "run", "--client", 1, "--track", "json", code=2)
    assert "leave out --track" in said.flat


class Placed(Lister):
    def __init__(self, where: str | None, clients: bool) -> None:
        super().__init__(clients=clients)


def test_trackers_are_built_with_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[tuple[str, Any, bool]] = []

    def note(name: str, where: Any, *, clients: bool) -> None:
        built.append((name, where, clients))

    monkeypatch.setattr("fedloom.trackers.registry.build", note)
    build_all(["mlflow", "mlflow=http://a?b=c", "wandb=us/them"], clients=True)
    assert built == [
        ("mlflow", None, True),
        ("mlflow", "http://a?b=c", True),
        ("wandb", "us/them", True),
    ]
