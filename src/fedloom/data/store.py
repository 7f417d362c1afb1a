"""Named data sets on disk: NAME/train.safetensors, NAME/test.safetensors and NAME/info.json with their checksums."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from fedloom.core.errors import UserError, unknown_name
from fedloom.data import fashion, synthetic
from fedloom.data.dataset import Dataset, Split
from fedloom.data.sources import read
from fedloom.data.sources.checks import findings

VERSION = 1
INFO = "info.json"
SPLITS = ("train", "test")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
ADD = "add it with: fedloom data add NAME --from PATH"

Root = str | Path | None


def home(root: Root = None) -> Path:
    """Where data sets live: root, else $FEDLOOM_HOME/data, else $XDG_DATA_HOME/fedloom/data, else ~/.local/share/fedloom/data."""
    if root is not None:
        return Path(root).expanduser()
    if own := os.environ.get("FEDLOOM_HOME"):
        return Path(own).expanduser() / "data"
    shared = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(shared).expanduser() / "fedloom" / "data"


def names(root: Root = None) -> list[str]:
    """The data sets that can be loaded, the packaged one included."""
    place = home(root)
    with _said(f"cannot list the data sets in {place}"):
        inside = list(place.iterdir()) if place.is_dir() else []
    return sorted(
        {fashion.NAME, *(p.name for p in inside if NAME.fullmatch(p.name) and (p / INFO).is_file())}
    )


def add(
    name: str,
    path: str | Path,
    format: str = "auto",
    options: Mapping[str, Any] | None = None,
    root: Root = None,
    replace: bool = False,
) -> Dataset:
    """Read a source, which checks it, and keep it under a name."""
    _vacant(name, root, replace)
    dataset = read(path, format, **{**(options or {}), "name": name})
    save(dataset, root, replace)
    return dataset


def save(dataset: Dataset, root: Root = None, replace: bool = False) -> None:
    """Keep a data set under its name; the folder appears whole or not at all."""
    place = _vacant(dataset.name, root, replace)
    with _said(f"cannot write data set '{dataset.name}' to {place}"):
        _write(dataset, place)


def load(name: str, root: Root = None) -> Dataset:
    """The data set of that name, its checksums verified."""
    if name == fashion.NAME:
        return fashion.load()
    if (users := synthetic.size_of(name)) is not None:
        return synthetic.load(users)
    if name not in names(root):
        raise UserError(f"{unknown_name('data set', name, names(root))}; {ADD}")
    place = home(root) / name
    with _said(f"cannot read data set '{name}' in {place}"):
        info = _info(place)
        for split in SPLITS:
            _verify(place / f"{split}.safetensors", info)
        return _dataset(place, info)


def check(name: str, root: Root = None) -> list[str]:
    """What is odd about a stored data set, each line beginning with 'problem: ' or 'note: '; nothing if all is well."""
    try:
        return findings(load(name, root))
    except UserError as error:
        if name not in names(root):
            raise
        return [f"problem: {error}"]


def remove(name: str, root: Root = None) -> None:
    """Delete a stored data set."""
    place = _own(name, root)
    if name not in (stored := [n for n in names(root) if n != fashion.NAME]):
        raise unknown_name("data set", name, stored)
    with _said(f"cannot remove data set '{name}' in {place}"):
        shutil.rmtree(place)


def _own(name: str, root: Root) -> Path:
    """The folder of a name that a user may write."""
    if not NAME.fullmatch(name):
        expected = (
            "letters, digits, '-', '_' and '.', beginning with a letter or digit, 100 at most"
        )
        raise UserError(f"data set name '{name}' must be made of {expected}; choose another name")
    if name == fashion.NAME or synthetic.size_of(name) is not None:
        raise UserError(
            f"data set '{name}' ships with fedloom and stays as it is; choose another name, such as {name}-full"
        )
    return home(root) / name


def _vacant(name: str, root: Root, replace: bool) -> Path:
    place = _own(name, root)
    if place.exists() and name not in names(root):
        raise UserError(
            f"{place} is there already and is no data set of fedloom; choose another name or move it away"
        )
    if place.exists() and not replace:
        raise UserError(
            f"data set '{name}' is there already, in {place}; choose another name, or set replace=True (--replace)"
        )
    return place


@contextmanager
def _said(what: str) -> Iterator[None]:
    """Turn what the disk answers into a sentence."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{what}: {error.strerror or error}; check the disk and its permissions"
        ) from None


def _write(dataset: Dataset, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        new = beside / "new"
        new.mkdir()
        _fill(new, dataset)
        if place.exists():
            place.rename(beside / "old")
        new.rename(place)
        _sync(place.parent)
    except BaseException:
        if (beside / "old").exists() and not place.exists():
            (beside / "old").rename(place)
        raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _fill(folder: Path, dataset: Dataset) -> None:
    """Write the files of a data set into an empty folder, info.json last, each of them down to the disk."""
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
    known = {
        k: getattr(dataset, k) for k in ("name", "kind", "classes", "mean", "std", "users", "about")
    }
    info = folder / INFO
    info.write_text(
        json.dumps({"version": VERSION, **known, "files": files}, indent=1) + "\n", encoding="utf-8"
    )
    _sync(info)
    _sync(folder)


def _tensors(split: Split) -> dict[str, Any]:
    found = {"x": split.x.contiguous(), "y": split.y}
    return found if split.users is None else {**found, "users": split.users}


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _damaged(file: Path, how: str) -> UserError:
    name = file.parent.name
    return UserError(
        f"{file} is damaged ({how}); add the data set again with: fedloom data add {name} --from PATH --replace"
    )


def _info(place: Path) -> dict[str, Any]:
    file = place / INFO
    try:
        info = json.loads(file.read_text(encoding="utf-8"))
        version = info["version"]
    except (ValueError, KeyError, TypeError):
        raise _damaged(file, "not the JSON that fedloom wrote") from None
    if version != VERSION:
        raise UserError(
            f"{file} is of version {version}, this fedloom reads version {VERSION}; add the data set again"
        )
    return dict(info)


def _verify(file: Path, info: Mapping[str, Any]) -> None:
    try:
        known = info["files"][file.name]["sha256"]
    except (KeyError, TypeError):
        raise _damaged(file.parent / INFO, f"no checksum of {file.name}") from None
    if _sha256(file) != known:
        raise _damaged(file, f"its sha256 is not that of {INFO}")


def _dataset(place: Path, info: Mapping[str, Any]) -> Dataset:
    try:
        train, test = (Split(**load_file(place / f"{split}.safetensors")) for split in SPLITS)
        lists = {k: tuple(info[k]) for k in ("classes", "mean", "std", "users")}
        return Dataset(
            name=info["name"],
            kind=info["kind"],
            train=train,
            test=test,
            about=dict(info["about"]),
            **lists,
        )
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise _damaged(place / INFO, f"it does not fit the splits: {error}") from None
