"""CIFAR-10 and CIFAR-100, binary version: one or two label bytes and 3 x 32 x 32 pixels each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedloom.core.errors import UserError
from fedloom.data.dataset import Dataset
from fedloom.data.sources.build import Name, RawSplit, build_dataset, raw_split
from fedloom.data.sources.constants import CONSTANTS
from fedloom.data.sources.errors import data_error, folder_listing

LOOKS_FOR = (
    "data_batch_1.bin ... and test_batch.bin (CIFAR-10), "
    "or train.bin and test.bin (CIFAR-100), in a folder"
)
SHAPE = (3, 32, 32)
PIXELS = 3072


@dataclass(frozen=True)
class Layout:
    """How the two sets differ. The last label byte counts: CIFAR-100's first is the superclass."""

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
    """Whether the folder holds files of either set; `read` then rejects pickled ones."""
    return path.is_dir() and (_is_pickled(path) or _layout(path) is not None)


def read(path: Path, name: Name = None) -> Dataset:
    """The data set of a folder with the binary version."""
    if _is_pickled(path):
        raise UserError(
            f"{path} holds the pickled python version of CIFAR, and unpickling can run any code; "
            "use the binary version (cifar-10-binary.tar.gz or cifar-100-binary.tar.gz)"
        )
    layout = _layout(path)
    if layout is None:
        remedy = "give the folder that holds the .bin files"
        raise data_error(path, folder_listing(path), LOOKS_FOR, remedy)
    return build_dataset(
        name or layout.name,
        "image",
        _read_split(path, layout.train, layout),
        _read_split(path, layout.test, layout),
        {"format": "cifar", "source": str(path)},
        _class_names(path / layout.names, layout),
        CONSTANTS[layout.name],
    )


def _is_pickled(path: Path) -> bool:
    is_cifar100 = all((path / name).is_file() for name in ("train", "test", "meta"))
    return (path / "data_batch_1").is_file() or (path / "test_batch").is_file() or is_cifar100


def _layout(path: Path) -> Layout | None:
    for layout in LAYOUTS:
        if any(path.glob(layout.train)) or any(path.glob(layout.test)):
            return layout
    return None


def _read_split(path: Path, pattern: str, layout: Layout) -> RawSplit:
    files = sorted(path.glob(pattern))
    if not files:
        raise data_error(path, folder_listing(path), pattern, "add the missing split")
    records = np.concatenate([_records(file, layout) for file in files])
    x = np.ascontiguousarray(records[:, layout.label_bytes :]).reshape(-1, *SHAPE)
    return raw_split(x, records[:, layout.label_bytes - 1], path / pattern)


def _records(file: Path, layout: Layout) -> np.ndarray:
    """The records of a file as rows of bytes."""
    size = layout.label_bytes + PIXELS
    data = np.fromfile(file, np.uint8)
    if not len(data) or len(data) % size:
        expected = f"a multiple of {size} ({layout.name} records)"
        raise data_error(file, f"{len(data)} bytes", expected, "download it again")
    records = data.reshape(-1, size)
    labels = records[:, layout.label_bytes - 1]
    if labels.max() >= layout.classes:
        found = f"label {labels.max()} in record {int(labels.argmax())}"
        remedy = f"check that it is a file of {layout.name}"
        raise data_error(file, found, f"0 to {layout.classes - 1}", remedy)
    return records


def _class_names(file: Path, layout: Layout) -> tuple[str, ...]:
    """The class names in the file that comes with the records; without it, their numbers."""
    if not file.is_file():
        return tuple(str(c) for c in range(layout.classes))
    lines = file.read_text(encoding="utf-8").splitlines()
    names = tuple(line.strip() for line in lines if line.strip())
    if len(names) != layout.classes:
        found, remedy = f"{len(names)} class names", "restore the file or delete it"
        raise data_error(file, found, str(layout.classes), remedy)
    return names
