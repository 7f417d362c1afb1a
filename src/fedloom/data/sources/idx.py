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
from fedloom.data.sources.memory import Stream, check_fits_in_memory, read_up_to

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
    x, y = _array(images, 3), _array(labels, 1)
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


def _array(file: Path, dims: int) -> np.ndarray:
    """The array of a file that may be gzipped."""
    with file.open("rb") as raw:
        if file.suffix != ".gz":
            return parse(raw, dims, file)
        try:
            return parse(gzip.GzipFile(fileobj=raw), dims, file)
        except (OSError, EOFError, zlib.error) as error:
            found = f"a damaged gzip file ({error})"
            raise data_error(file, found, "a complete one", REMEDY) from None


def parse(stream: Stream, dims: int, where: object) -> np.ndarray:
    """The uint8 array of an idx file; at most one byte more than it declares is read.

    The format is big-endian: magic number 0x0000080D for D dimensions, D sizes of 4 bytes, values.
    """
    magic, header_size = 0x0800 + dims, 4 + 4 * dims
    header = read_up_to(stream, header_size)
    if len(header) < header_size:
        expected = f"an idx file with a header of {header_size} bytes"
        raise data_error(where, f"{len(header)} bytes", expected, REMEDY)
    actual = int.from_bytes(header[:4], "big")
    if actual != magic:
        expected = f"0x{magic:08x} (uint8, {dims} dimensions)"
        remedy = "check that it is the right file"
        raise data_error(where, f"magic number 0x{actual:08x}", expected, remedy)
    shape = tuple(int(n) for n in np.frombuffer(header, ">u4", dims, 4))
    return np.frombuffer(_values(stream, shape, where), np.uint8).reshape(shape)


def _values(stream: Stream, shape: tuple[int, ...], where: object) -> bytearray:
    size = math.prod(shape)
    check_fits_in_memory(size, where, f"values of shape {shape}")
    values = read_up_to(stream, size + 1)
    if len(values) != size:
        found = f"more than {size}" if len(values) > size else str(len(values))
        raise data_error(where, f"{found} bytes of values", f"{size} for shape {shape}", REMEDY)
    return values
