"""Weights & Biases: offline in ./wandb, unless the user is logged in or WANDB_MODE says otherwise.

A resumed run continues under the same id, which is in the run folder. Offline, every process writes
a folder of its own; `wandb sync` uploads them as one run. W&B writes to the disk with a delay, so
after a process was killed its files say which rounds they have.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from fedloom.core.child_process import module_command
from fedloom.core.errors import UserError
from fedloom.experiment.callbacks import RunStart
from fedloom.trackers.contents import run_name, settings
from fedloom.trackers.memory import LogMemory
from fedloom.trackers.tracker import Ending, Numbers, RunLog, Tracker

PROJECT = "fedloom"
READING_SECONDS = 60
EXIT_CODES: dict[Ending, int] = {"finished": 0, "interrupted": 130, "failed": 1}


class WandB(Tracker):
    """Writes metrics, settings and files to Weights & Biases.

    where: a project or entity/project; by default WANDB_PROJECT, else fedloom. clients: also a
    table with a row for each client at the end.
    """

    name = "wandb"

    def __init__(self, where: str | None = None, *, clients: bool = False) -> None:
        super().__init__(clients=clients)
        self.where = where or os.environ.get("WANDB_PROJECT") or PROJECT
        parts = self.where.split("/")
        if len(parts) > 2 or not all(parts):
            raise UserError(
                f"tracker 'wandb': '{self.where}' is neither PROJECT nor ENTITY/PROJECT; "
                "the folder is chosen with the environment variable WANDB_DIR"
            )
        self._project = parts[-1]
        self._entity = parts[0] if len(parts) == 2 else None

    def open_log(self, start: RunStart) -> RunLog:
        """The W&B run of this run, continued if there is one."""
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # to its makers
        import wandb

        memory = LogMemory(start.folder, self.name, self.where)
        resumed = memory.name is not None
        if not resumed:
            memory.keep(secrets.token_hex(4))
        run = wandb.init(
            entity=self._entity,
            project=self._project,
            id=memory.name,
            name=run_name(start.config),
            config=settings(start.config),
            resume="allow",
            reinit="create_new",
            mode=choose_mode(wandb),
            settings=wandb.Settings(console="off", silent=True),
        )
        on_disk = last_round_on_disk(run) if resumed and run.offline else 0
        return WandbRun(wandb, run, memory, max(memory.rounds, run.step - 1, on_disk))


def choose_mode(wandb: Any) -> Literal["online", "offline"] | None:
    """How to run: what the user has configured, else online only for someone who is logged in."""
    if os.environ.get("WANDB_MODE"):
        return None
    return "online" if wandb.login(prompt=False, verify=False) else "offline"


def last_round_on_disk(run: Any) -> int:
    """The last round in the folders that earlier processes have left of an offline run."""
    folder = Path(run.dir).parent
    earlier = [
        file
        for file in folder.parent.glob(f"offline-run-*-{run.id}/run-{run.id}.wandb")
        if file.parent != folder
    ]
    return max((step for file in earlier for step in _steps(file)), default=0)


def _steps(file: Path) -> list[int]:
    """The steps in a file, as W&B's own reader prints them; it stops where the file is torn."""
    done = subprocess.run(
        module_command("wandb", "leet", "inspect", "--json", str(file)),
        env=os.environ | {"WANDB_MODE": "offline"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=READING_SECONDS,
    )
    records = map(json.loads, done.stdout.splitlines())
    return [record["history"]["step"]["num"] for record in records if record["type"] == "history"]


class WandbRun:
    """One run in Weights & Biases. rounds: how many it has already."""

    def __init__(self, wandb: Any, run: Any, memory: LogMemory, rounds: int) -> None:
        self._wandb, self._run, self._memory, self._rounds = wandb, run, memory, rounds
        self._table: Any = None
        folder = Path(run.dir).parent
        self.look = f"wandb sync {folder}" if run.offline else str(run.url)

    def round(self, number: int, metrics: Numbers) -> None:
        if number > self._rounds:
            self._run.log(dict(metrics), step=number, commit=True)
            self._rounds = number

    def final(self, rounds: int, metrics: Numbers) -> None:
        self._run.summary.update(dict(metrics))

    def clients(self, scores: Mapping[str, Mapping[int, float]]) -> None:
        every = sorted(set().union(*scores.values()))
        rows = [[client, *(scores[name].get(client) for name in scores)] for client in every]
        self._table = self._wandb.Table(columns=["client", *scores], data=rows)

    def files(self, paths: Sequence[Path]) -> None:
        """Keep them as an artifact, together with the table of the clients."""
        artifact = self._wandb.Artifact(f"run-{self._memory.name}", type="run")
        for path in paths:
            artifact.add_file(str(path))
        if self._table is not None:
            artifact.add(self._table, "clients")
        self._run.log_artifact(artifact)

    def close(self, ending: Ending) -> None:
        self._run.finish(exit_code=EXIT_CODES[ending])
        self._memory.keep(self._run.id, self._rounds)  # now that they are written
