"""NumPy archives, in one of three forms:

a folder with train.npz and test.npz, each with x and y; one archive with x_train, y_train, x_test
and y_test; or one with x and y. Optional arrays: `users` (or `writer`, `client`), the user of each
sample, and `classes`, the names of the classes, labels or targets. Samples may be a table (N,F),
signals (N,C,L), images (N,H,W) or (N,C,H,W), or volumes (N,C,D,H,W); `kind` decides where the shape
does not tell.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from fedloom.data.dataset import Dataset
from fedloom.data.sources import holdout
from fedloom.data.sources.array_kinds import ChannelsOption, KindOption
from fedloom.data.sources.arrays import (
    dataset_from_splits,
    split_from_arrays,
    unscaled_splits,
)
from fedloom.data.sources.build import Name, RawSplit, default_name
from fedloom.data.sources.errors import data_error, folder_listing, shortened
from fedloom.data.sources.npz_arrays import Archive, read_archive
from fedloom.data.sources.targets import TaskOption
from fedloom.data.sources.unscaled import Unscaled

LOOKS_FOR = (
    "an .npz file with x and y (or x_train, y_train, x_test, y_test), "
    "or a folder with train.npz and test.npz"
)
USERS = ("users", "writer", "client")
Splits = tuple[RawSplit, RawSplit | None, tuple[str, ...]]  # training, test, class names
ReadSplit = Callable[..., RawSplit]  # (archive, file, suffix of the arrays' names)

WANTED = frozenset(
    f"{name}{suffix}"
    for name in ("x", "y", "classes", *USERS)
    for suffix in ("", "_train", "_test")
)


def detect(path: Path) -> bool:
    """Whether it is an archive or a folder with train.npz."""
    return (path.suffix == ".npz" and path.is_file()) or (path / "train.npz").is_file()


def read(
    path: Path,
    name: Name = None,
    test_share: holdout.TestShare = 0.2,
    kind: KindOption = None,
    channels: ChannelsOption = None,
    task: TaskOption = "classification",
) -> Dataset:
    """The data set of one archive or of a folder with two."""
    train, test, classes = _read_splits(path, kind, channels, task)
    about = {"format": "npz", "source": str(path)}
    name = name or default_name(path)
    return dataset_from_splits(name, train, test, test_share, about, classes, task)


def read_unscaled(
    path: Path,
    name: Name = None,
    test_share: holdout.TestShare = 0.2,
    kind: KindOption = None,
    channels: ChannelsOption = None,
) -> Unscaled:
    """The samples as they are; the features of a table become columns named 1, 2, ..."""
    train, test, classes = _read_splits(path, kind, channels)
    about = {"format": "npz", "source": str(path)}
    return unscaled_splits(train, test, test_share, about, classes)


def _read_splits(
    path: Path, kind: str | None, channels: str | None, task: str = "classification"
) -> Splits:
    split = partial(_split, kind=kind, channels=channels, task=task)
    return (_read_folder if path.is_dir() else _read_file)(path, split)


def _read_folder(path: Path, split: ReadSplit) -> Splits:
    files = path / "train.npz", path / "test.npz"
    for file in files:
        if not file.is_file():
            remedy = "add the missing split, or give the archive itself to hold out a test split"
            raise data_error(path, folder_listing(path), file.name, remedy)
    train, test = (read_archive(file, WANTED) for file in files)
    return split(train, files[0]), split(test, files[1]), _class_names(train)


def _read_file(path: Path, split: ReadSplit) -> Splits:
    archive = read_archive(path, WANTED)
    classes = _class_names(archive)
    if "x_train" not in archive.names:
        return split(archive, path), None, classes
    return split(archive, path, "_train"), split(archive, path, "_test"), classes


def _split(
    archive: Archive,
    file: Path,
    suffix: str = "",
    *,
    kind: str | None,
    channels: str | None,
    task: str,
) -> RawSplit:
    for name in (f"x{suffix}", f"y{suffix}"):
        if name not in archive.names:
            remedy = "name the samples x and the labels y"
            raise data_error(file, shortened(archive.names), f"an array '{name}'", remedy)
    users = None
    for name in USERS:
        if users is None:
            users = archive.arrays.get(f"{name}{suffix}")
    x, y = archive.arrays[f"x{suffix}"], archive.arrays[f"y{suffix}"]
    return split_from_arrays(x, y, file, users, kind, channels, task)


def _class_names(archive: Archive) -> tuple[str, ...]:
    if "classes" not in archive.names:
        return ()
    return tuple(str(name) for name in archive.arrays["classes"].tolist())
