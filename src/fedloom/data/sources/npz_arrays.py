"""The arrays of an .npz archive; what an array declares is checked before it is read."""

from __future__ import annotations

import io
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedloom.core.errors import UserError
from fedloom.data.sources.errors import data_error
from fedloom.data.sources.memory import check_fits_in_memory

# What NumPy and zipfile raise for damaged files, including encrypted ones and unknown compression.
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
UNPICKLING = "it needs unpickling, which can run any code"
REMEDY = "write it again with np.savez and plain arrays of numbers or text"

MAX_HEADER = 1 << 16  # bytes; NumPy itself reads descriptions of up to 10,000
MAX_CHARACTER = 0x10FFFF  # of Unicode; 0xD800 to 0xDFFF are no characters either
HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@dataclass(frozen=True)
class Archive:
    """The names of all arrays of an archive, and those arrays that were wanted."""

    names: tuple[str, ...]
    arrays: Mapping[str, np.ndarray]


def read_archive(file: Path, wanted: Collection[str]) -> Archive:
    """The wanted arrays of an archive, as far as it has them."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = {m.filename.removesuffix(".npy"): m for m in archive.infolist()}
            chosen = {name: members[name] for name in members if name in wanted}
            total = sum(_declared_size(archive, member) for member in chosen.values())
            check_fits_in_memory(total, file, "arrays")
            return Archive(tuple(members), {n: _read(archive, m) for n, m in chosen.items()})
    except UserError:
        raise
    except (*DAMAGED, *FOREIGN) as error:
        reason = str(error)
        if "pickle" in reason:  # NumPy's message advises unpickling, which fedloom never does
            reason = UNPICKLING
        found = f"no readable archive ({reason})"
        raise data_error(file, found, "NumPy arrays", REMEDY) from None


def _declared_size(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """The bytes of an array according to its header, which must be those of the archive."""
    with archive.open(member) as stream:
        start = io.BytesIO(stream.read(MAX_HEADER))
    version = np.lib.format.read_magic(start)
    if version not in HEADERS:
        raise ValueError(f"{member.filename} has the .npy version {version}")
    shape, _, dtype = HEADERS[version](start)
    if dtype.hasobject:
        raise ValueError(UNPICKLING)
    size = math.prod(shape) * dtype.itemsize
    declared = f"{member.filename} declares {dtype} of shape {shape}"
    if not dtype.itemsize or min(shape, default=0) < 0:
        raise ValueError(declared)
    if (actual := member.file_size - start.tell()) != size:
        raise ValueError(f"{declared}, which is {size} bytes, and has {actual}")
    return size


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as stream:
        array: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False)
    if array.dtype.kind == "U" and array.size:
        _check_text(array, member.filename)
    return array


def _check_text(array: np.ndarray, name: str) -> None:
    """Raise for numbers that are no characters, with which Python's text cannot be made."""
    codes = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))).view(np.uint32)
    if codes.max() > MAX_CHARACTER or ((codes >= 0xD800) & (codes < 0xE000)).any():
        raise ValueError(f"{name} holds text with numbers that are no characters")
