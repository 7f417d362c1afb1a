"""Writers of tiny files in each format, independent of the readers."""

from __future__ import annotations

import csv
import gzip
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def idx_bytes(array: np.ndarray, magic: int | None = None) -> bytes:
    head = 0x0800 + array.ndim if magic is None else magic
    return struct.pack(f">I{array.ndim}I", head, *array.shape) + array.astype(np.uint8).tobytes()


def idx(folder: Path, train: tuple[Any, Any], test: tuple[Any, Any], packed: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for prefix, (x, y) in (("train", train), ("t10k", test)):
        for name, array in ((f"{prefix}-images-idx3-ubyte", x), (f"{prefix}-labels-idx1-ubyte", y)):
            data = idx_bytes(np.asarray(array))
            (folder / f"{name}.gz" if packed else folder / name).write_bytes(
                gzip.compress(data) if packed else data
            )
    return folder


def cifar10(folder: Path, batches: Mapping[str, Sequence[int]], pixel: int = 7) -> Path:
    """Each record is its label and 3072 pixels: red `pixel`, green label, blue 0."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, labels in batches.items():
        records = [
            bytes([y]) + bytes([pixel]) * 1024 + bytes([y]) * 1024 + bytes(1024) for y in labels
        ]
        (folder / f"{name}.bin").write_bytes(b"".join(records))
    return folder


def cifar100(folder: Path, **splits: Sequence[int]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, labels in splits.items():
        (folder / f"{name}.bin").write_bytes(
            b"".join(bytes([y // 5, y]) + bytes([y]) * 3072 for y in labels)
        )
    return folder


def picture(file: Path, colour: Any, size: tuple[int, int] = (4, 4), mode: str = "RGB") -> Path:
    from PIL import Image

    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(file)
    return file


def tiny(folder: Path, wnids: Sequence[str] = ("n02", "n01")) -> Path:
    """Two training images and one test image per class; class c is filled with 10 + 100 c."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "wnids.txt").write_text("\n".join(wnids) + "\n")
    (folder / "words.txt").write_text("".join(f"{w}\tword of {w}\n" for w in sorted(wnids)))
    notes = []
    for c, wnid in enumerate(wnids):
        for i in range(2):
            picture(folder / "train" / wnid / "images" / f"{wnid}_{i}.png", (10 + 100 * c,) * 3)
        picture(folder / "val" / "images" / f"val_{c}.png", 10 + 100 * c, mode="L")
        notes.append(f"val_{c}.png\t{wnid}\t0\t0\t3\t3")
    (folder / "val" / "val_annotations.txt").write_text("\n".join(notes) + "\n")
    return folder


def leaf(file: Path, samples: Mapping[str, tuple[list[Any], list[Any]]], **changes: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    data = {
        "users": list(samples),
        "num_samples": [len(y) for _, y in samples.values()],
        "user_data": {u: {"x": x, "y": y} for u, (x, y) in samples.items()},
    }
    file.write_text(json.dumps(data | changes))
    return file


def table(file: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    """A CSV or a Parquet file of the same content; None is a missing value."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        columns = {name: [row[i] for row in rows] for i, name in enumerate(header)}
        pyarrow.parquet.write_table(pyarrow.table(columns), file)
        return file
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows(
            [header, *(["" if v is None else v for v in row] for row in rows)]
        )
    return file


def npz(file: Path, **arrays: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, **arrays)
    return file
