"""Named data sets on disk.

NAME/train-SHA.safetensors, NAME/test-SHA.safetensors, and NAME/info.json with their checksums.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from fedloom.core.errors import UserError, unknown_name
from fedloom.core.learning_task import TASKS
from fedloom.core.warn import warn_user
from fedloom.data import fashion, synthetic
from fedloom.data.dataset import Dataset, Kind, Split
from fedloom.data.from_files import read_files
from fedloom.data.info_file import (
    INFO,
    SPLITS,
    damaged,
    disk_errors,
    info_bytes,
    read_info,
    split_file,
    split_files,
)
from fedloom.data.listing import ADD_HINT, NAME, PACKAGED, Root, home, names
from fedloom.data.sources.checks import problems_and_notes
from fedloom.data.staging import exclusive, put_in_place, staging_folder, sync


def add(
    name: str,
    path: str | Path,
    format: str = "auto",
    options: Mapping[str, Any] | None = None,
    root: Root = None,
    replace: bool = False,
    warn: Callable[[str], None] = warn_user,
) -> Dataset:
    """Read and check a source, and store it under a name.

    warn: what to do with each warning; by default it becomes a Python warning.
    """
    _free_folder(name, root, replace)
    dataset = read_files(path, format, warn=warn, **{**(options or {}), "name": name})
    save(dataset, root, replace)
    return dataset


def save(dataset: Dataset, root: Root = None, replace: bool = False) -> None:
    """Store a data set under its name; if it is killed, the data set is the old or the new one."""
    folder = _free_folder(dataset.name, root, replace)
    with (
        disk_errors(f"cannot write data set '{dataset.name}' to {folder}"),
        staging_folder(folder.parent) as staging,
    ):
        new = staging / dataset.name
        new.mkdir()
        _write_files(new, dataset)
        with exclusive(folder.parent):
            _free_folder(dataset.name, root, replace)  # another process may have been faster
            put_in_place(new, folder)


def load(name: str, root: Root = None) -> Dataset:
    """The data set of that name, after verifying its checksums."""
    if name == PACKAGED:
        return fashion.load()
    if (users := synthetic.user_count(name)) is not None:
        return synthetic.load(users)
    if name not in names(root):
        raise UserError(f"{unknown_name('data set', name, names(root))}; {ADD_HINT}")
    folder = home(root) / name
    with disk_errors(f"cannot read data set '{name}' in {folder}"):
        return _read_whole(folder)


def check(name: str, root: Root = None) -> list[str]:
    """Problems, warnings and notes about a stored data set; empty if nothing is unusual.

    Each line starts with 'problem: ', 'warning: ' or 'note: '.
    """
    try:
        return problems_and_notes(load(name, root))
    except UserError as error:
        if name not in names(root):
            raise
        return [f"problem: {error}"]


def remove(name: str, root: Root = None) -> None:
    """Delete a stored data set."""
    folder = _user_folder(name, root)
    stored = [n for n in names(root) if n != PACKAGED]
    if name not in stored:
        raise unknown_name("data set", name, stored)
    with (
        disk_errors(f"cannot remove data set '{name}' in {folder}"),
        staging_folder(folder.parent) as staging,
    ):
        folder.rename(staging / name)


def _user_folder(name: str, root: Root) -> Path:
    """The folder of a data set; raises for names a user may not write."""
    if not NAME.fullmatch(name):
        raise UserError(
            f"data set name '{name}' must consist of letters, digits, '-', '_' and '.', "
            "start with a letter or digit and have at most 100 characters; choose another name"
        )
    if name == PACKAGED or synthetic.user_count(name) is not None:
        raise UserError(
            f"data set '{name}' is built into fedloom and cannot be changed; "
            f"choose another name, such as {name}-full"
        )
    return home(root) / name


def _free_folder(name: str, root: Root, replace: bool) -> Path:
    """The folder for a new data set; raises if it is taken and may not be replaced."""
    folder = _user_folder(name, root)
    if folder.exists() and name not in names(root):
        raise UserError(
            f"{folder} already exists and is not a data set of fedloom; "
            "choose another name or move it away"
        )
    if folder.exists() and not replace:
        raise UserError(
            f"data set '{name}' already exists, in {folder}; "
            "choose another name, or set replace=True (--replace)"
        )
    return folder


def _write_files(folder: Path, dataset: Dataset) -> None:
    """Write the files of a data set into an empty folder, and sync each to disk."""
    files = {split: _write_split(folder, split, getattr(dataset, split)) for split in SPLITS}
    fields = ("name", "kind", "task", "classes", "mean", "std", "users", "about")
    facts = {field: getattr(dataset, field) for field in fields}
    info = folder / INFO
    info.write_bytes(info_bytes({**facts, "files": files}))
    sync(info)
    sync(folder)


def _write_split(folder: Path, name: str, split: Split) -> dict[str, Any]:
    """Write one split; the entry of its file in info.json."""
    tensors = _tensors(split)
    file = folder / f"{name}.safetensors"
    save_file(tensors, file)
    sync(file)
    sha256 = _sha256(file)
    file = file.rename(folder / split_file(name, sha256))
    shapes = {n: [str(t.dtype).removeprefix("torch."), *t.shape] for n, t in tensors.items()}
    return {"sha256": sha256, "bytes": file.stat().st_size, "tensors": shapes}


def _tensors(split: Split) -> dict[str, Any]:
    tensors = {"x": split.x.contiguous(), "y": split.y}
    if split.users is not None:
        tensors["users"] = split.users
    return tensors


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read_whole(folder: Path) -> Dataset:
    """The data set of a folder; if it is replaced meanwhile, the new one."""
    info = read_info(folder)
    try:
        for split, file in split_files(info, folder).items():
            if _sha256(file) != info["files"][split]["sha256"]:
                raise damaged(file, f"its sha256 differs from that in {INFO}")
        return _dataset(folder, info)
    except FileNotFoundError:
        if read_info(folder) == info:
            raise
        return _read_whole(folder)


def _dataset(folder: Path, info: Mapping[str, Any]) -> Dataset:
    try:
        train, test = (Split(**load_file(file)) for file in split_files(info, folder).values())
        if info["kind"] not in get_args(Kind):
            raise ValueError(f"no kind '{info['kind']}'")
        if info.get("task", "classification") not in TASKS:
            raise ValueError(f"no task '{info['task']}'")
        tuples = {field: tuple(info[field]) for field in ("classes", "mean", "std", "users")}
        return Dataset(
            name=info["name"],
            kind=info["kind"],
            train=train,
            test=test,
            about=dict(info["about"]),
            task=info.get("task", "classification"),  # all data sets of older versions
            **tuples,
        )
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise damaged(folder / INFO, f"it does not match the splits: {error}") from None
