"""Which files a run folder holds, and whether a folder is a run or could become one.

    config.toml      the format of the folder, and the complete settings the run began with
    metrics.jsonl    one line per round
    checkpoint/      round-N.safetensors and MANIFEST-N.json of the last three checkpoints;
                     frozen.safetensors, once for all, if the model has frozen weights
    clients.sqlite   the clients' memories; only if the method has memories
    clients/         large memories, a file each; only if there are any
    result.json      the summary of a finished run
    analysis/        what `fedloom analyze` has found; only if it was asked to
    lock             held by the process that writes
    copying          only while rounds of another run are copied into this one

The first line of config.toml names the format of the folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from fedloom.core.errors import UserError
from fedloom.core.regular_files import check_folder, check_regular
from fedloom.runs.durable_files import TMP_SUFFIX, file_error, read_if_exists

FORMAT = 2  # of the folder; another number means that other versions of fedloom cannot read it
CONFIG = "config.toml"
METRICS = "metrics.jsonl"
CHECKPOINT = "checkpoint"
DEPTHS = ("*", "*/*")  # of runs in the folder of a comparison
MOST_SHOWN = 3  # runs that a message names
CLIENTS = "clients.sqlite"
RESULT = "result.json"
ANALYSIS = "analysis"
LOCK = "lock"
COPYING = "copying"

_HEADER = f"# fedloom run folder, format {FORMAT}\n"
_ANY_HEADER = re.compile(rb"# fedloom run folder, format (\d{1,9})\r?\n")


def with_header(config_text: str) -> bytes:
    """The contents of config.toml: a line that names the format, and the settings."""
    return (_HEADER + config_text).encode()


def without_header(path: Path, data: bytes) -> str:
    """The settings, from the contents of config.toml."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not text (byte {error.start}); put it back as it was when the run began"
        ) from error
    return text.removeprefix(_HEADER)


def check_run(path: Path) -> None:
    """Raise unless the folder holds a run in the format of this version."""
    needed = {CONFIG: check_regular, CHECKPOINT: check_folder}
    missing = [name for name, check in needed.items() if not is_there(path / name, check)]
    if missing:
        raise UserError(
            f"{path} is not the folder of a run: it has no {' and no '.join(missing)}; "
            f"{_runs_inside(path) or 'make one with `fedloom run`'}"
        )
    written = _written_format(path / CONFIG)
    if written != str(FORMAT):
        raise UserError(
            f"{path} was written in run-folder format {written}, "
            f"and this version of fedloom reads format {FORMAT}; "
            "start a new run, or use the version that wrote it"
        )


def each_run(folders: Iterable[Path]) -> list[Path]:
    """These run folders; in place of a folder of `compare` or `sweep`, the runs inside it.

    Runs inside that have no checkpoint yet are left out. Other folders are returned as they are,
    and reading them raises an error.
    """

    def runs_of(folder: Path) -> list[Path]:
        if is_there(folder / CONFIG, check_regular):
            return [folder]
        return [run for run in _inside(folder) if (run / CHECKPOINT).is_dir()] or [folder]

    return [run for folder in folders for run in runs_of(folder)]


def _inside(path: Path) -> list[Path]:
    """The runs in a folder of `compare` or `sweep`."""
    return sorted(file.parent for depth in DEPTHS for file in path.glob(f"{depth}/{CONFIG}"))


def _runs_inside(path: Path) -> str:
    """The runs in a folder of `compare` or `sweep`, as advice; empty if there are none."""
    runs = [str(run) for run in _inside(path)]
    if not runs:
        return ""
    more = f" and {len(runs) - MOST_SHOWN} more" if len(runs) > MOST_SHOWN else ""
    return f"name a run inside it: {', '.join(runs[:MOST_SHOWN])}{more}"


def is_there(path: Path, check: Callable[[Path], bool]) -> bool:
    """Whether a file or folder of the run exists; an error if it is something else."""
    try:
        return check(path)
    except OSError as error:
        raise file_error(path, error, UserError) from error


def _written_format(config: Path) -> str:
    """The format that the first line of config.toml names."""
    header = _ANY_HEADER.match(read_if_exists(config) or b"")
    return "1 (or without a version)" if header is None else header[1].decode()


def check_vacant(path: Path) -> None:
    """Raise unless there is nothing, or only what a killed `create` has left."""
    if (path / CONFIG).exists():
        raise UserError(
            f"{path} holds a run already; "
            f"resume it with `fedloom resume {path}`, or choose another --out"
        )
    if not path.exists():
        return
    if not path.is_dir():
        raise UserError(f"{path} is a file; choose another --out")
    ours = {LOCK, METRICS, CHECKPOINT, CONFIG + TMP_SUFFIX, METRICS + TMP_SUFFIX}
    others = sorted(p.name for p in path.iterdir() if p.name not in ours)
    if others:
        raise UserError(
            f"{path} is not empty (it holds {others[0]}); choose another --out, or an empty folder"
        )
