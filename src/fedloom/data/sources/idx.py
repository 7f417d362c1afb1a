"""The idx files of MNIST: four of them, plain or gzip'ed, in one folder."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from fedloom.data.dataset import Dataset
from fedloom.data.sources.build import Name, Part, dataset, part
from fedloom.data.sources.errors import bad, listing

LOOKS_FOR = "train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz] and the two t10k-... files in a folder"
SPLITS = {"train": "train", "test": "t10k"}
REMEDY = "download it again"


def detect(path: Path) -> bool:
    """Whether the folder holds at least one of the four files."""
    return any(
        _find(path, prefix, what)
        for prefix in SPLITS.values()
        for what in ("images-idx3", "labels-idx1")
    )


def read(path: Path, name: Name = None) -> Dataset:
    """The data set of a folder with the four files of MNIST's layout."""
    train, test = (_split(path, prefix) for prefix in SPLITS.values())
    return dataset(name or path.name, "image", train, test, {"format": "idx", "source": str(path)})


def _split(path: Path, prefix: str) -> Part:
    files = [_find(path, prefix, what) for what in ("images-idx3", "labels-idx1")]
    for what, file in zip(("images-idx3", "labels-idx1"), files, strict=True):
        if file is None:
            raise bad(
                path,
                listing(path),
                f"{prefix}-{what}-ubyte or {prefix}-{what}-ubyte.gz",
                "add the missing file",
            )
    x, y = (
        parse(unpacked(file), dims, file)
        for file, dims in zip(files, (3, 1), strict=True)
        if file is not None
    )
    return part(x[:, None], y, files[1])


def _find(path: Path, prefix: str, what: str) -> Path | None:
    """The file, which some mirrors name train-images.idx3-ubyte."""
    spelled = (what, what.replace("-", "."))
    names = (f"{prefix}-{s}-ubyte{gz}" for s in spelled for gz in ("", ".gz"))
    return next((path / n for n in names if (path / n).is_file()), None)


def unpacked(file: Path) -> bytes:
    """The bytes of a file that may be gzip'ed."""
    data = file.read_bytes()
    if file.suffix != ".gz":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise bad(file, f"a damaged gzip file ({error})", "a complete one", REMEDY) from None


def parse(data: bytes, dims: int, where: object) -> np.ndarray:
    """The uint8 array of an idx file: magic 0x0000080D, D sizes of 4 bytes, big-endian, then the values."""
    magic, head = 0x0800 + dims, 4 + 4 * dims
    if len(data) < head:
        raise bad(where, f"{len(data)} bytes", f"an idx file with a head of {head} bytes", REMEDY)
    found = int.from_bytes(data[:4], "big")
    if found != magic:
        raise bad(
            where,
            f"magic number 0x{found:08x}",
            f"0x{magic:08x} (uint8, {dims} dimensions)",
            "check that it is the right file",
        )
    shape = tuple(int(n) for n in np.frombuffer(data, ">u4", dims, 4))
    if len(data) != head + math.prod(shape):
        raise bad(
            where,
            f"{len(data) - head} bytes of values",
            f"{math.prod(shape)} for shape {shape}",
            REMEDY,
        )
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape).copy()
