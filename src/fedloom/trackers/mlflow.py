"""MLflow: a folder on this machine, a database, or a tracking server.

A resumed run continues its MLflow run, whose id is in the run folder. MLflow cannot take metrics
back, so rounds that it has already are not written again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from filelock import FileLock

import fedloom
from fedloom.core.errors import UserError
from fedloom.experiment.callbacks import RunStart
from fedloom.trackers.contents import run_name, settings
from fedloom.trackers.memory import LogMemory
from fedloom.trackers.tracker import Ending, Numbers, RunLog, Tracker

FOLDER = "mlruns"
EXPERIMENT = "fedloom"
STATUS: dict[Ending, str] = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
MAX_BATCH = {"metrics": 1000, "params": 100}  # of one request, as MLflow limits it
LONGEST_VALUE = 6000
# MLflow reports its use to its makers, refuses folders unless it is told to accept them, and asks
# a server that is gone for minutes. A variable that the user has set stays as it is.
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ALLOW_FILE_STORE": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}


class MLflow(Tracker):
    """Writes metrics, settings and files to MLflow.

    where: a folder, or the address of a database or server, such as sqlite:///mlflow.db or
    http://127.0.0.1:5000; by default MLFLOW_TRACKING_URI, else the folder mlruns. experiment: by
    default MLFLOW_EXPERIMENT_NAME, else fedloom. clients: also a score for each client at the end;
    its number is the step.
    """

    name = "mlflow"

    def __init__(
        self,
        where: str | Path | None = None,
        *,
        experiment: str | None = None,
        clients: bool = False,
    ) -> None:
        super().__init__(clients=clients)
        self.where = str(where or os.environ.get("MLFLOW_TRACKING_URI") or FOLDER)
        self.experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        if Path(self.where).is_file():
            raise UserError(
                f"tracker 'mlflow': '{self.where}' is a file; name a folder, "
                "or a database as sqlite:///FILE"
            )

    def open_log(self, start: RunStart) -> RunLog:
        """The MLflow run of this run, continued if there is one."""
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        address = _address(self.where)
        client = MlflowClient(tracking_uri=address)
        memory = LogMemory(start.folder, self.name, _without_password(address))
        run = None if memory.name is None else _existing(client, memory.name)
        if run is None:
            with _alone(_folder(self.where)):
                experiment = _experiment_id(client, self.experiment)
            run = client.create_run(
                experiment,
                run_name=run_name(start.config),
                tags={"fedloom.version": fedloom.__version__},
            )
            memory.keep(run.info.run_id)
        else:
            client.update_run(run.info.run_id, status="RUNNING")
        log = MlflowRun(client, run, _look(self.where))
        log.settings(settings(start.config))
        return log


def _address(where: str) -> str:
    """The address of a store; a folder becomes a file: address."""
    folder = _folder(where)
    return where if folder is None else folder.as_uri()


def _folder(where: str) -> Path | None:
    """The folder of a store; None if it is a database or a server.

    >>> _folder("file:///data/my%20runs"), _folder("http://127.0.0.1:5000")
    (PosixPath('/data/my runs'), None)
    """
    if where.startswith("file:"):
        return Path(url2pathname(urlsplit(where).path)).resolve()
    return None if "://" in where or where.startswith("databricks") else Path(where).resolve()


@contextmanager
def _alone(folder: Path | None) -> Iterator[None]:
    """Keep other runs from making the store or an experiment in this folder meanwhile.

    In a folder, MLflow would make two experiments of one name; databases and servers refuse the
    second one. The lock is next to the folder, because MLflow fills only a folder that it makes.
    """
    if folder is None:
        yield
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f".{folder.name}.lock")):
        yield


def _look(where: str) -> str:
    """How to look at a store: the address of a server, or the command that starts one."""
    if where.startswith(("http://", "https://")):
        return _without_password(where)
    command = f"mlflow ui --backend-store-uri {_without_password(where)}"
    return command if "://" in where else f"MLFLOW_ALLOW_FILE_STORE=true {command}"


def _without_password(address: str) -> str:
    """An address as it may be shown and stored.

    >>> _without_password("https://me:secret@host/path")
    'https://host/path'
    """
    scheme, colon, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{colon}{host.rpartition('@')[2]}{slash}{path}"


def _existing(client: Any, run_id: str) -> Any:
    """The run with this id; None if it was deleted."""
    from mlflow.exceptions import MlflowException

    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise
    return run if run.info.lifecycle_stage == "active" else None


def _experiment_id(client: Any, name: str) -> str:
    """The experiment of that name, made if there is none."""
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        with suppress(MlflowException):  # another run may be faster
            return str(client.create_experiment(name))
        found = client.get_experiment_by_name(name)
    return str(found.experiment_id)


class MlflowRun:
    """One run in MLflow."""

    def __init__(self, client: Any, run: Any, look: str) -> None:
        self.look = look
        self._client, self._id = client, run.info.run_id
        self._params = set(run.data.params)
        self._logged = {
            (name, metric.step)
            for name in run.data.metrics
            for metric in client.get_metric_history(self._id, name)
        }

    def settings(self, values: Mapping[str, Any]) -> None:
        """Write settings as parameters, which never change once they are written."""
        from mlflow.entities import Param

        self._write(
            "params",
            [
                Param(name, str(value)[:LONGEST_VALUE])
                for name, value in values.items()
                if name not in self._params
            ],
        )

    def round(self, number: int, metrics: Numbers) -> None:
        self._metrics((name, value, number) for name, value in metrics.items())

    def final(self, rounds: int, metrics: Numbers) -> None:
        self.round(rounds, metrics)

    def clients(self, scores: Mapping[str, Mapping[int, float]]) -> None:
        self._metrics(
            (f"client/{name}", score, client)
            for name, by_client in scores.items()
            for client, score in by_client.items()
        )

    def files(self, paths: Sequence[Path]) -> None:
        for path in paths:
            self._client.log_artifact(self._id, str(path))

    def close(self, ending: Ending) -> None:
        self._client.set_terminated(self._id, status=STATUS[ending])

    def _metrics(self, metrics: Iterable[tuple[str, float, int]]) -> None:
        """Write each value with its step, unless there is one."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        new = [
            Metric(name, value, now, step)
            for name, value, step in metrics
            if (name, step) not in self._logged
        ]
        self._write("metrics", new)
        self._logged.update((metric.key, metric.step) for metric in new)

    def _write(self, kind: str, items: Sequence[Any]) -> None:
        most = MAX_BATCH[kind]
        for first in range(0, len(items), most):
            self._client.log_batch(self._id, **{kind: items[first : first + most]})
