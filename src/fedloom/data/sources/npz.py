"""NumPy archives: train.npz and test.npz with x and y, one archive with x_train, y_train, x_test, y_test, or one with x and y.

Beside them `users` (or `writer`, `client`) may say whose sample it is, and `classes` how the classes are called.
"""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedloom.data.dataset import Dataset
from fedloom.data.sources import holdout
from fedloom.data.sources.arrays import assembled, samples
from fedloom.data.sources.build import Name, Part, named
from fedloom.data.sources.errors import bad, listing, some

LOOKS_FOR = "an .npz file with x and y (or x_train, y_train, x_test, y_test), or a folder with train.npz and test.npz"
USERS = ("users", "writer", "client")

# What NumPy and zipfile raise on damaged or foreign bytes, encrypted or unknown compression included.
DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    tokenize.TokenError,
    EOFError,
    MemoryError,
    OSError,
)
FOREIGN = (ValueError, KeyError, AttributeError, TypeError, SyntaxError, RuntimeError)

Archive = Mapping[str, np.ndarray]


def detect(path: Path) -> bool:
    """Whether it is an archive or a folder with train.npz."""
    return (path.suffix == ".npz" and path.is_file()) or (path / "train.npz").is_file()


def read(path: Path, name: Name = None, test_share: holdout.TestShare = 0.2) -> Dataset:
    """The data set of one archive or of a folder with two."""
    train, test, classes = _folder(path) if path.is_dir() else _file(path)
    about = {"format": "npz", "source": str(path)}
    return assembled(name or named(path), train, test, test_share, about, classes)


def _folder(path: Path) -> tuple[Part, Part, tuple[str, ...]]:
    files = path / "train.npz", path / "test.npz"
    for file in files:
        if not file.is_file():
            raise bad(
                path,
                listing(path),
                file.name,
                "add the missing split, or give the one archive itself to have a split made",
            )
    train, test = (_opened(file) for file in files)
    return _part(train, files[0]), _part(test, files[1]), _classes(train)


def _file(path: Path) -> tuple[Part, Part | None, tuple[str, ...]]:
    archive = _opened(path)
    if "x_train" not in archive:
        return _part(archive, path), None, _classes(archive)
    return _part(archive, path, "_train"), _part(archive, path, "_test"), _classes(archive)


def _opened(file: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (*DAMAGED, *FOREIGN) as error:
        # NumPy's own words on objects advise to unpickle them, which fedloom never does.
        why = (
            "it needs unpickling, which can run any code" if "pickle" in str(error) else str(error)
        )
        remedy = "write it again with np.savez and plain arrays of numbers or text"
        raise bad(file, f"no readable archive ({why})", "NumPy arrays", remedy) from None


def _part(archive: Archive, file: Path, ending: str = "") -> Part:
    for name in (f"x{ending}", f"y{ending}"):
        if name not in archive:
            raise bad(
                file, some(archive), f"an array '{name}'", "name the samples x and the labels y"
            )
    users = next((archive[f"{u}{ending}"] for u in USERS if f"{u}{ending}" in archive), None)
    return samples(archive[f"x{ending}"], archive[f"y{ending}"], file, users)


def _classes(archive: Archive) -> tuple[str, ...]:
    return tuple(str(c) for c in archive["classes"].tolist()) if "classes" in archive else ()
