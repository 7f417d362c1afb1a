"""Named data sets on disk.

NAME/train.safetensors, NAME/test.safetensors, and NAME/info.json with their checksums.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from fedloom.core.errors import UserError, unknown_name
from fedloom.data import fashion, synthetic
from fedloom.data.dataset import Dataset, Split
from fedloom.data.listing import (
    ADD_HINT,
    INFO,
    NAME,
    PACKAGED,
    VERSION,
    Root,
    damaged,
    disk_errors,
    home,
    names,
    read_info,
)
from fedloom.data.sources import read
from fedloom.data.sources.checks import problems_and_notes

SPLITS = ("train", "test")


def add(
    name: str,
    path: str | Path,
    format: str = "auto",
    options: Mapping[str, Any] | None = None,
    root: Root = None,
    replace: bool = False,
) -> Dataset:
    """Read and check a source, and store it under a name."""
    _free_folder(name, root, replace)
    dataset = read(path, format, **{**(options or {}), "name": name})
    save(dataset, root, replace)
    return dataset


def save(dataset: Dataset, root: Root = None, replace: bool = False) -> None:
    """Store a data set under its name; the folder appears complete or not at all."""
    folder = _free_folder(dataset.name, root, replace)
    with disk_errors(f"cannot write data set '{dataset.name}' to {folder}"):
        _write(dataset, folder)


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
        info = read_info(folder)
        for split in SPLITS:
            _verify(folder / f"{split}.safetensors", info)
        return _read_dataset(folder, info)


def check(name: str, root: Root = None) -> list[str]:
    """Problems and notes about a stored data set; empty if nothing is unusual.

    Each line starts with 'problem: ' or 'note: '.
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
    with disk_errors(f"cannot remove data set '{name}' in {folder}"):
        shutil.rmtree(folder)


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


def _write(dataset: Dataset, folder: Path) -> None:
    """Write to a temporary folder next to it, then swap; on failure the old one is restored."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    new, old = temporary / "new", temporary / "old"
    try:
        new.mkdir()
        _write_files(new, dataset)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
        _sync(folder.parent)
    except BaseException:
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_files(folder: Path, dataset: Dataset) -> None:
    """Write the files of a data set into an empty folder, info.json last, and sync each to disk."""
    files = {}
    for split in SPLITS:
        file = folder / f"{split}.safetensors"
        tensors = _tensors(getattr(dataset, split))
        save_file(tensors, file)
        shapes = {n: [str(t.dtype).removeprefix("torch."), *t.shape] for n, t in tensors.items()}
        files[file.name] = {
            "sha256": _sha256(file),
            "bytes": file.stat().st_size,
            "tensors": shapes,
        }
        _sync(file)
    fields = ("name", "kind", "classes", "mean", "std", "users", "about")
    facts = {field: getattr(dataset, field) for field in fields}
    text = json.dumps({"version": VERSION, **facts, "files": files}, indent=1)
    info = folder / INFO
    info.write_text(f"{text}\n", encoding="utf-8")
    _sync(info)
    _sync(folder)


def _tensors(split: Split) -> dict[str, Any]:
    tensors = {"x": split.x.contiguous(), "y": split.y}
    if split.users is not None:
        tensors["users"] = split.users
    return tensors


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _verify(file: Path, info: Mapping[str, Any]) -> None:
    try:
        expected = info["files"][file.name]["sha256"]
    except (KeyError, TypeError):
        raise damaged(file.parent / INFO, f"no checksum of {file.name}") from None
    if _sha256(file) != expected:
        raise damaged(file, f"its sha256 differs from that in {INFO}")


def _read_dataset(folder: Path, info: Mapping[str, Any]) -> Dataset:
    try:
        train, test = (Split(**load_file(folder / f"{split}.safetensors")) for split in SPLITS)
        tuples = {field: tuple(info[field]) for field in ("classes", "mean", "std", "users")}
        return Dataset(
            name=info["name"],
            kind=info["kind"],
            train=train,
            test=test,
            about=dict(info["about"]),
            **tuples,
        )
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise damaged(folder / INFO, f"it does not match the splits: {error}") from None
