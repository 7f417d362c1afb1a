"""An MLflow file store, read back with MLflow's own client."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from safetensors.torch import load_file

from cli import talk
from fedloom.core.errors import UserError
from fedloom.core.params import sha256
from fedloom.experiment.callbacks import RunStart
from fedloom.experiment.execute import execute
from trackers.following import METRICS, PERSONAL, accuracies, cut_off, resume, settings

pytest.importorskip("mlflow", reason='needs: pip install "fedloom[mlflow]"')

from fedloom.trackers.mlflow import ENVIRONMENT, MLflow

RUNS = 3  # that begin at the same time


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user's configuration, and the same afterwards."""
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def stored(folder: str = "mlruns", experiment: str = "fedloom") -> tuple[Any, list[Any]]:
    """A client of the store, and its runs, the first one first."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=Path(folder).resolve().as_uri())
    found = client.get_experiment_by_name(experiment)
    runs = client.search_runs([found.experiment_id], order_by=["attributes.start_time ASC"])
    return client, list(runs)


def history(client: Any, run: Any, name: str) -> list[tuple[int, float]]:
    return [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)]


def test_a_run_is_written_with_settings_and_files(desk: Path) -> None:
    said = talk.fedloom(
        "run", *talk.TINY, "--method", "finetune", "--rounds", 3, "--out", "run",
        "--track", "mlflow", "--track-clients",
    )  # fmt: skip
    assert "mlflow ui --backend-store-uri mlruns" in said.flat
    client, (run,) = stored()
    clients = {"client/accuracy", "client/rounds", "client/rejected"}
    assert set(run.data.metrics) == METRICS | PERSONAL | clients
    assert dict(history(client, run, "accuracy")) == accuracies(Path("run"))
    assert [step for step, _ in history(client, run, "client/accuracy")] == list(range(8))
    assert run.data.params["method.name"] == "finetune" and run.data.params["train.batch"] == "10"
    assert (run.info.run_name, run.info.status) == ("finetune-s0", "FINISHED")
    names = {"config.toml", "metrics.jsonl", "result.json", "model.safetensors"}
    assert {f.path for f in client.list_artifacts(run.info.run_id)} == names
    weights = client.download_artifacts(run.info.run_id, "model.safetensors", str(desk))
    sha = talk.fedloom("resume", "run", "--json").json["weights_sha256"]
    assert sha256(load_file(weights)) == sha


def test_a_resumed_run_continues_its_mlflow_run(desk: Path) -> None:
    """Round 3 was written, but its checkpoint was not: it is run again, and not written again."""
    cut_off(desk / "run", 3, MLflow(), checkpoint_every=2)
    _, (run,) = stored()
    assert run.info.status == "KILLED"
    resume(desk / "run", MLflow())
    client, (run,) = stored()
    assert run.info.status == "FINISHED"
    for name in METRICS:
        assert [step for step, _ in history(client, run, name)] == [1, 2, 3, 4]
    assert dict(history(client, run, "accuracy")) == accuracies(desk / "run")


def test_a_finished_run_can_be_written_afterwards_and_again(desk: Path) -> None:
    talk.run(Path("run"))
    for _ in range(2):
        talk.fedloom("resume", "run", "--track", "mlflow", "--track-clients")
        client, (run,) = stored()
        assert [step for step, _ in history(client, run, "accuracy")] == [1, 2, 3]
        assert [step for step, _ in history(client, run, "client/rounds")] == list(range(8))


def test_settings_that_a_resumed_run_changes_do_not_stop_the_log(desk: Path) -> None:
    """MLflow refuses another value of a parameter, and `resume --engine` brings one."""
    cut_off(desk / "run", 1, MLflow())
    said = talk.fedloom("resume", "run", "--engine", "vectorised", "--track", "mlflow")
    assert "has stopped" not in said.err
    assert stored()[1][0].data.params["engine"] == "inprocess"


def test_a_run_whose_log_was_deleted_begins_another(desk: Path) -> None:
    cut_off(desk / "run", 2, MLflow())
    client, (run,) = stored()
    client.delete_run(run.info.run_id)
    resume(desk / "run", MLflow())
    client, (other,) = stored()
    assert other.info.run_id != run.info.run_id
    assert [step for step, _ in history(client, other, "accuracy")] == [1, 2, 3, 4]


@pytest.mark.slow
def test_runs_of_a_comparison_side_by_side(desk: Path) -> None:
    talk.fedloom(
        "compare", "--methods", "fedavg,fedprox", *talk.TINY, "--rounds", 2, "--jobs", 2,
        "--track", "mlflow=store",
    )  # fmt: skip
    client, runs = stored("store")
    assert {run.info.run_name for run in runs} == {"fedavg-s0", "fedprox-s0"}
    for run in runs:
        assert [step for step, _ in history(client, run, "accuracy")] == [1, 2]


@pytest.mark.parametrize("where", ["new/store", "file:{desk}/store"])
def test_runs_that_begin_at_the_same_time_share_an_experiment(
    desk: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder accepts two experiments of one name, and only one of them would be shown."""
    from mlflow import MlflowClient
    from mlflow.store.tracking.file_store import FileStore

    check = FileStore._validate_experiment_does_not_exist

    def check_slowly(store: FileStore, name: str) -> None:
        check(store, name)
        time.sleep(0.2)  # so that all runs check before any of them makes the experiment

    monkeypatch.setattr(FileStore, "_validate_experiment_does_not_exist", check_slowly)
    together, where = Barrier(RUNS), where.format(desk=desk)

    def begin(number: int) -> None:
        tracker = MLflow(where)
        together.wait()
        tracker.open_log(RunStart("FedAvg", settings(seed=number), clients=8, rounds=4))

    with ThreadPoolExecutor(RUNS) as threads:
        list(threads.map(begin, range(RUNS)))
    folder = where.removeprefix("file:")
    client = MlflowClient(tracking_uri=Path(folder).resolve().as_uri())
    assert sorted(found.name for found in client.search_experiments()) == ["Default", "fedloom"]
    assert len(stored(folder)[1]) == RUNS


def test_the_user_s_configuration_is_used(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "ours")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "theirs")
    execute(settings(), callbacks=[MLflow()])
    assert len(stored("ours", "theirs")[1]) == 1
    execute(settings(), callbacks=[MLflow("other", experiment="third")])
    assert len(stored("other", "third")[1]) == 1


def test_a_server_that_is_not_there_does_not_stop_the_run(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    said: list[str] = []
    tracker = MLflow("http://me:secret@127.0.0.1:9")
    execute(settings(), desk / "run", callbacks=[tracker], warn=said.append)
    assert len(said) == 1 and said[0].startswith("note: mlflow has stopped (MlflowException")
    assert said[0].endswith("the run goes on without it")


def test_a_file_is_no_folder(desk: Path) -> None:
    Path("mlflow.db").write_text("")
    with pytest.raises(UserError, match="or a database as sqlite:///FILE"):
        MLflow("mlflow.db")
