"""Shows the rounds of a run that another process trains, as `fedloom run` shows its own."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from fedloom.experiment.callbacks import RunStart
from fedloom.experiment.progress import Progress
from fedloom.experiment.stored_run import read_run
from fedloom.runs.folder_layout import CONFIG, METRICS


class RunProgress:
    """Rounds that were there at the first look are not shown again."""

    def __init__(self, path: Path, console: Console) -> None:
        self.path = path
        self.progress = Progress(console=console)
        self.shown: int | None = None
        self.size = -1
        if (path / METRICS).exists():
            self.look()

    def __enter__(self) -> RunProgress:
        self.progress.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.__exit__(*error)

    def look(self) -> None:
        """Show the rounds that were added since the last look."""
        metrics = self.path / METRICS
        if not (self.path / CONFIG).exists() or not metrics.exists():
            return
        if metrics.stat().st_size == self.size:
            return
        self.size = metrics.stat().st_size
        run = read_run(self.path)
        done = len(run.history)
        if self.shown is None:
            start = RunStart(run.config.title, run.config, 0, run.config.rounds, completed=done)
            self.progress.on_start(start)
            self.shown = done
        for record in run.history[self.shown :]:
            self.progress.on_round(record)
        self.shown = max(self.shown, done)
