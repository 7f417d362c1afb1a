"""CIFAR-10 and CIFAR-100, binary version: records of one or two label bytes and 3 x 32 x 32 pixels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedloom.core.errors import UserError
from fedloom.data.dataset import Dataset
from fedloom.data.sources.build import Name, Part, dataset, part
from fedloom.data.sources.constants import CONSTANTS
from fedloom.data.sources.errors import bad, listing

LOOKS_FOR = "data_batch_1.bin ... and test_batch.bin (CIFAR-10), or train.bin and test.bin (CIFAR-100), in a folder"
SHAPE = (3, 32, 32)
PIXELS = 3072


@dataclass(frozen=True)
class Layout:
    """What tells the two sets apart; the last label byte counts (CIFAR-100 puts the superclass before it)."""

    name: str
    train: str
    test: str
    names: str
    classes: int
    label_bytes: int


LAYOUTS = (
    Layout("cifar10", "data_batch_*.bin", "test_batch.bin", "batches.meta.txt", 10, 1),
    Layout("cifar100", "train.bin", "test.bin", "fine_label_names.txt", 100, 2),
)


def detect(path: Path) -> bool:
    """Whether the folder holds files of either set, the pickled ones included, which are then refused."""
    return path.is_dir() and (_pickled(path) or _layout(path) is not None)


def read(path: Path, name: Name = None) -> Dataset:
    """The data set of a folder with the binary version."""
    if _pickled(path):
        raise UserError(
            f"{path} holds the pickled python version of CIFAR, and unpickling can run any code; "
            "use the binary version (cifar-10-binary.tar.gz or cifar-100-binary.tar.gz)"
        )
    layout = _layout(path)
    if layout is None:
        raise bad(path, listing(path), LOOKS_FOR, "give the folder that holds the .bin files")
    train, test = (_split(path, pattern, layout) for pattern in (layout.train, layout.test))
    about = {"format": "cifar", "source": str(path)}
    return dataset(
        name or layout.name,
        "image",
        train,
        test,
        about,
        _names(path / layout.names, layout),
        CONSTANTS[layout.name],
    )


def _pickled(path: Path) -> bool:
    cifar100 = all((path / n).is_file() for n in ("train", "test", "meta"))
    return (path / "data_batch_1").is_file() or (path / "test_batch").is_file() or cifar100


def _layout(path: Path) -> Layout | None:
    return next(
        (known for known in LAYOUTS if any(path.glob(known.train)) or any(path.glob(known.test))),
        None,
    )


def _split(path: Path, pattern: str, layout: Layout) -> Part:
    files = sorted(path.glob(pattern))
    if not files:
        raise bad(path, listing(path), pattern, "add the missing split")
    rows = np.concatenate([_records(file, layout) for file in files])
    x = np.ascontiguousarray(rows[:, layout.label_bytes :]).reshape(-1, *SHAPE)
    return part(x, rows[:, layout.label_bytes - 1], path / pattern)


def _records(file: Path, layout: Layout) -> np.ndarray:
    size = layout.label_bytes + PIXELS
    data = np.fromfile(file, np.uint8)
    if not len(data) or len(data) % size:
        raise bad(
            file,
            f"{len(data)} bytes",
            f"a multiple of {size} ({layout.name} records)",
            "download it again",
        )
    rows = data.reshape(-1, size)
    labels = rows[:, layout.label_bytes - 1]
    if labels.max() >= layout.classes:
        found = f"label {labels.max()} in record {int(labels.argmax())}"
        raise bad(
            file, found, f"0 to {layout.classes - 1}", f"check that it is a file of {layout.name}"
        )
    return rows


def _names(file: Path, layout: Layout) -> tuple[str, ...]:
    """The class names of the file beside the records, else their numbers."""
    if not file.is_file():
        return tuple(str(c) for c in range(layout.classes))
    names = tuple(
        line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()
    )
    if len(names) != layout.classes:
        raise bad(
            file, f"{len(names)} class names", str(layout.classes), "restore the file or delete it"
        )
    return names
