"""Adding, replacing and removing data sets in steps that a kill cannot leave half done.

What is new is first written to a hidden folder, which its process holds locked. One rename then
makes it count: of the folder if the data set is new, of info.json if it is replaced (the files of
the splits have other names than the old ones), of the folder away from its name if it is removed.
Files left by a killed process are not locked, and the next command deletes it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from fedloom.core.errors import UserError
from fedloom.data.info_file import INFO, SPLIT_FILE, read_info, split_files

LOCK = ".lock"
PREFIX = ".staging-"
PATIENCE = 60.0  # seconds; the lock is held for renames and deletions only


@contextmanager
def exclusive(home: Path, patience: float | None = None) -> Iterator[None]:
    """A scope in which no other process changes the folder of data sets."""
    lock = FileLock(home / LOCK)
    try:
        lock.acquire(timeout=PATIENCE if patience is None else patience)
    except Timeout:
        raise UserError(
            f"another process is changing the data sets in {home}; try again when it has ended"
        ) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def staging_folder(home: Path) -> Iterator[Path]:
    """An empty hidden folder next to the data sets, deleted at the end.

    Deletes what killed processes have left behind, too.
    """
    home.mkdir(parents=True, exist_ok=True)
    with exclusive(home):  # until it is locked, the new folder would look like a leftover
        _delete_leftovers(home)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=home))
        in_use = FileLock(folder / LOCK)
        in_use.acquire(timeout=0)
    try:
        yield folder
    finally:
        in_use.release()
        shutil.rmtree(folder, ignore_errors=True)


def put_in_place(new: Path, folder: Path) -> None:
    """Make the complete and synced folder `new` the data set at `folder`; inside `exclusive`."""
    if not folder.exists():
        new.rename(folder)
        sync(folder.parent)
        return
    try:
        _replace_files(new, folder)
    finally:
        _delete_unused_files(folder)


def _replace_files(new: Path, folder: Path) -> None:
    for file in new.iterdir():
        if file.name != INFO:
            file.replace(folder / file.name)
    sync(folder)
    (new / INFO).replace(folder / INFO)  # from here on the data set is the new one
    sync(folder)


def clear_leftovers(home: Path) -> None:
    """Delete what killed processes have left behind, if that is possible right now."""
    if not home.is_dir() or not any(_leftover_candidates(home)):
        return
    with suppress(UserError, OSError), exclusive(home, patience=0):
        _delete_leftovers(home)


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, survive a power cut.

    Windows syncs names by itself, and files only if they are open for writing.
    """
    is_folder = path.is_dir()
    if is_folder and not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _leftover_candidates(home: Path) -> Iterator[Path]:
    """Hidden folders, and data sets with more files than they should have."""
    for folder in home.iterdir():
        if folder.name.startswith(PREFIX) or ((folder / INFO).is_file() and _unused_files(folder)):
            yield folder


def _delete_leftovers(home: Path) -> None:
    for folder in list(_leftover_candidates(home)):
        if not folder.name.startswith(PREFIX):
            _delete_unused_files(folder)
        elif not _is_in_use(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_in_use(folder: Path) -> bool:
    """Whether a live process holds the lock of a hidden folder."""
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except (Timeout, OSError):
        return True
    lock.release()
    return False


def _delete_unused_files(folder: Path) -> None:
    for file in _unused_files(folder):
        file.unlink(missing_ok=True)


def _unused_files(folder: Path) -> list[Path]:
    """Files of splits that info.json does not name; none if it cannot be read."""
    try:
        used = set(split_files(read_info(folder), folder).values())
    except (UserError, OSError):
        return []
    return [p for p in folder.iterdir() if SPLIT_FILE.fullmatch(p.name) and p not in used]
