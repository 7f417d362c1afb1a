"""The idx files of MNIST: four of them, plain or gzipped, in one folder."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from fedloom.data.dataset import Dataset
from fedloom.data.sources.build import Name, RawSplit, build_dataset, raw_split
from fedloom.data.sources.errors import data_error, folder_listing

LOOKS_FOR = (
    "train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz] and the two t10k-... files "
    "in a folder"
)
PREFIXES = ("train", "t10k")
IMAGES, LABELS = "images-idx3", "labels-idx1"
REMEDY = "download it again"


def detect(path: Path) -> bool:
    """Whether the folder holds at least one of the four files."""
    return any(
        _find_file(path, prefix, content) for prefix in PREFIXES for content in (IMAGES, LABELS)
    )


def read(path: Path, name: Name = None) -> Dataset:
    """The data set of a folder with the four files of MNIST's layout."""
    train, test = (_read_split(path, prefix) for prefix in PREFIXES)
    about = {"format": "idx", "source": str(path)}
    return build_dataset(name or path.name, "image", train, test, about)


def _read_split(path: Path, prefix: str) -> RawSplit:
    images, labels = (_required_file(path, prefix, content) for content in (IMAGES, LABELS))
    x, y = parse(unpacked(images), 3, images), parse(unpacked(labels), 1, labels)
    return raw_split(x[:, None], y, labels)


def _required_file(path: Path, prefix: str, content: str) -> Path:
    file = _find_file(path, prefix, content)
    if file is None:
        expected = f"{prefix}-{content}-ubyte or {prefix}-{content}-ubyte.gz"
        raise data_error(path, folder_listing(path), expected, "add the missing file")
    return file


def _find_file(path: Path, prefix: str, content: str) -> Path | None:
    """The file, which some mirrors name train-images.idx3-ubyte."""
    for spelling in (content, content.replace("-", ".")):
        for suffix in ("", ".gz"):
            file = path / f"{prefix}-{spelling}-ubyte{suffix}"
            if file.is_file():
                return file
    return None


def unpacked(file: Path) -> bytes:
    """The bytes of a file that may be gzipped."""
    data = file.read_bytes()
    if file.suffix != ".gz":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise data_error(file, f"a damaged gzip file ({error})", "a complete one", REMEDY) from None


def parse(data: bytes, dims: int, where: object) -> np.ndarray:
    """The uint8 array of an idx file.

    The format is big-endian: magic number 0x0000080D for D dimensions, D sizes of 4 bytes, values.
    """
    magic, header = 0x0800 + dims, 4 + 4 * dims
    if len(data) < header:
        expected = f"an idx file with a header of {header} bytes"
        raise data_error(where, f"{len(data)} bytes", expected, REMEDY)
    actual = int.from_bytes(data[:4], "big")
    if actual != magic:
        expected = f"0x{magic:08x} (uint8, {dims} dimensions)"
        remedy = "check that it is the right file"
        raise data_error(where, f"magic number 0x{actual:08x}", expected, remedy)
    shape = tuple(int(n) for n in np.frombuffer(data, ">u4", dims, 4))
    if len(data) != header + math.prod(shape):
        found = f"{len(data) - header} bytes of values"
        raise data_error(where, found, f"{math.prod(shape)} for shape {shape}", REMEDY)
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape).copy()
