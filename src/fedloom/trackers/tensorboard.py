"""TensorBoard: event files in a folder.

Each run has a folder of its own below `where`, named by method and seed, as TensorBoard expects it.
A resumed run writes all of its rounds again and marks the earlier events as void, which TensorBoard
does not show: so the log is complete even if the run began without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedloom.core.errors import UserError
from fedloom.core.regular_files import check_folder
from fedloom.experiment.callbacks import RunStart
from fedloom.settings.config import Config
from fedloom.trackers.contents import run_name, settings
from fedloom.trackers.memory import LogMemory
from fedloom.trackers.tracker import Ending, Numbers, RunLog, Tracker

WITHOUT_FOLDER = Path("runs/tensorboard")  # for a run that is kept in memory


class TensorBoard(Tracker):
    """Writes metrics and settings to TensorBoard event files.

    where: the folder to pass to `tensorboard --logdir`; by default the run's own folder gets one
    that is called tensorboard. clients: also a score for each client at the end; its number is the
    step.
    """

    name = "tensorboard"
    keeps_files = False

    def __init__(self, where: str | Path | None = None, *, clients: bool = False) -> None:
        super().__init__(clients=clients)
        self.where = None if where is None else Path(where)
        if self.where is not None and self.where.is_file():
            raise UserError(f"tracker 'tensorboard': '{where}' is a file; name a folder")

    def open_log(self, start: RunStart) -> RunLog:
        """Event files of this run, continued if there are some."""
        if self.where is None and start.folder is not None:
            folder = start.folder / "tensorboard"
            check_folder(folder)  # a link would lead out of a run that may be a stranger's
            return EventFiles(folder, folder, start.config)
        above = self.where or WITHOUT_FOLDER
        memory = LogMemory(start.folder, self.name, str(above.resolve()))
        if memory.name is None:
            memory.keep(_new_folder(above, run_name(start.config)).name)
        return EventFiles(above / str(memory.name), above, start.config)


def _new_folder(above: Path, name: str) -> Path:
    """A folder that no other run has, made at once: several runs may begin together."""
    above.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        folder = above / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            number += 1


class EventFiles:
    """The event files of one run."""

    def __init__(self, folder: Path, shown: Path, config: Config) -> None:
        from torch.utils.tensorboard import SummaryWriter, summary

        make_hparams: Any = summary.hparams  # without types
        self.look = f"tensorboard --logdir {shown}"
        # This marks the start of a process. From the second mark on, TensorBoard takes it that the
        # events before it, from step 0 on, are void.
        self._writer = SummaryWriter(str(folder), purge_step=0)
        # not add_hparams: that writes to a folder of its own, which looks like another run
        *begin, self._end = make_hparams(settings(config), {"accuracy": 0.0})
        for event in begin:
            self._add(event)
        self._writer.add_text("settings", _indented(config.text()), 0)
        self._writer.flush()

    def round(self, number: int, metrics: Numbers) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, number)
        self._writer.flush()

    def final(self, rounds: int, metrics: Numbers) -> None:
        self.round(rounds, metrics)

    def clients(self, scores: Mapping[str, Mapping[int, float]]) -> None:
        for name, by_client in scores.items():
            for client, score in by_client.items():
                self._writer.add_scalar(f"client/{name}", score, client)

    def files(self, paths: Sequence[Path]) -> None:
        """TensorBoard keeps no files."""

    def close(self, ending: Ending) -> None:
        if ending == "finished":
            self._add(self._end)
        self._writer.close()

    def _add(self, summary: Any) -> None:
        events: Any = self._writer.file_writer
        events.add_summary(summary)


def _indented(text: str) -> str:
    """Text that Markdown shows as it is."""
    return "\n".join(f"    {line}" for line in text.splitlines())
