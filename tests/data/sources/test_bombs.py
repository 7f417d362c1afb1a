"""Small files that unpack to a lot are refused before they fill the memory."""

import gzip
import io
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedloom.core.errors import UserError
from fedloom.data.sources import memory, read
from fedloom.data.sources.idx import parse

GIGABYTE = 1 << 30
ZEROS = bytes(1 << 20)


@contextmanager
def little_memory(limit: int = 32 << 20) -> Iterator[None]:
    """A scope in which Python and NumPy hold at most `limit` bytes more than before."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npy_header(shape: tuple[int, ...], dtype: str = "|u1", version: int = 1) -> bytes:
    text = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode() + b"\n"
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text


def write_zip(file: Path, members: dict[str, bytes], zeros: int = 0, into: str = "x.npy") -> Path:
    """An archive; member `into` continues with that many zeros."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in members.items():
            with archive.open(name, "w", force_zip64=True) as stream:
                stream.write(data)
                for _ in range(zeros // len(ZEROS) if name == into else 0):
                    stream.write(ZEROS)
    return file


LABELS = npy(np.arange(10) % 2)


class Counted(io.RawIOBase):
    """An endless stream after a header, which counts what is read of it."""

    def __init__(self, header: bytes) -> None:
        self.header, self.read_bytes = io.BytesIO(header), 0

    def read(self, size: int = -1) -> bytes:
        assert size >= 0, "reading to the end has no end here"
        data = self.header.read(size)
        data += bytes(size - len(data))
        self.read_bytes += len(data)
        return data


def test_idx_is_read_to_one_byte_beyond_what_it_declares() -> None:
    stream = Counted(struct.pack(">4I", 0x0803, 10, 4, 4))
    with pytest.raises(UserError, match=r"more than 160 bytes of values, expected 160 for shape"):
        parse(stream, 3, "bomb")
    assert stream.read_bytes == 16 + 160 + 1


def test_a_gzipped_idx_of_one_gigabyte_that_declares_160_bytes(write: Any, tmp_path: Path) -> None:
    x, y = np.zeros((10, 4, 4)), np.arange(10) % 2
    folder = write.idx(tmp_path / "d", (x, y), (x, y))
    file = folder / "train-images-idx3-ubyte.gz"
    with gzip.open(file, "wb", compresslevel=1) as stream:
        stream.write(struct.pack(">4I", 0x0803, 10, 4, 4))
        for _ in range(GIGABYTE // len(ZEROS)):
            stream.write(ZEROS)
    assert file.stat().st_size < 8 << 20
    with little_memory(), pytest.raises(UserError, match=f"{file.name}: found more than 160 bytes"):
        read(folder)


def test_idx_that_declares_more_than_there_is_memory(write: Any, tmp_path: Path) -> None:
    x, y = np.zeros((10, 4, 4)), np.arange(10) % 2
    folder = write.idx(tmp_path / "d", (x, y), (x, y), packed=False)
    (folder / "train-images-idx3-ubyte").write_bytes(
        struct.pack(">4I", 0x0803, 4_000_000_000, 4_000_000_000, 4) + bytes(100)
    )
    with little_memory(), pytest.raises(UserError, match="at most half of the free memory"):
        read(folder)


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (npy_header((10, 2, 2)), r"x\.npy declares uint8 of shape \(10, 2, 2\), which is 40 bytes"),
        (npy_header((10**9, 10**9)), "which is 1000000000000000000 bytes, and has"),
        (npy_header((-5, 3)), r"shape \(-5, 3\)"),
        (npy_header((10**12,), "<U0"), r"of shape \(1000000000000,\)"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "no readable archive"),
        (b"\x93NUMPY\x03\x00\x10\x00\x00\x00", r"the \.npy version \(3, 0\)"),
    ],
)
def test_an_array_that_is_not_as_large_as_it_says(header: bytes, says: str, tmp_path: Path) -> None:
    file = write_zip(tmp_path / "a.npz", {"x.npy": header, "y.npy": LABELS}, zeros=256 << 20)
    with little_memory(), pytest.raises(UserError, match=says):
        read(file)


def test_arrays_that_do_not_fit_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 100 << 20)
    file = write_zip(
        tmp_path / "a.npz",
        {"x.npy": npy_header((64 << 20, 1)), "y.npy": LABELS},
        zeros=64 << 20,
    )
    with little_memory(), pytest.raises(UserError, match=r"arrays of 0\.0671 GB, expected at most"):
        read(file)


def test_arrays_that_are_not_needed_are_not_read(tmp_path: Path) -> None:
    x = npy(np.arange(40, dtype=np.uint8).reshape(10, 2, 2))
    members = {"x.npy": x, "y.npy": LABELS, "more.npy": npy_header((256 << 20,))}
    file = write_zip(tmp_path / "a.npz", members, zeros=256 << 20, into="more.npy")
    with little_memory():
        assert len(read(file).train) == 8


def png(file: Path, width: int, height: int, rows: int) -> Path:
    """A grey PNG that declares a size and has that many rows of zeros."""

    def chunk(name: bytes, data: bytes) -> bytes:
        body = name + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    packer, packed = zlib.compressobj(1), b""
    for _ in range(rows):
        packed += packer.compress(bytes(width + 1))
    header = struct.pack(">2I5B", width, height, 8, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", packed + packer.flush()), (b"IEND", b"")]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*c) for c in chunks))
    return file


@pytest.mark.parametrize("side", [9_000, 12_000, 60_000])
@pytest.mark.filterwarnings("error")
def test_a_picture_of_too_many_pixels(side: int, tmp_path: Path) -> None:
    for name in "ab":
        png(tmp_path / name / "1.png", side, side, rows=10)
    with little_memory(), pytest.raises(UserError, match=r"1\.png: found .*pixels"):
        read(tmp_path)


def test_too_many_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(20):
        png(tmp_path / "ab"[i % 2] / f"{i}.png", 100, 100, rows=100)
    monkeypatch.setattr(memory, "free_memory", lambda: 300_000)
    with pytest.raises(UserError, match=r"20 images of 0\.0002 GB, expected at most half"):
        read(tmp_path)


def test_a_parquet_table_of_too_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow
    import pyarrow.parquet

    file, rows = tmp_path / "t.parquet", 1_000_000
    columns = {"a": np.zeros(rows), "y": np.zeros(rows, np.int8)}
    pyarrow.parquet.write_table(pyarrow.table(columns), file)
    assert file.stat().st_size < 20_000
    monkeypatch.setattr(memory, "free_memory", lambda: 100 << 20)
    with little_memory(), pytest.raises(UserError, match="a table of 2,000,000 cells"):
        read(file)


def test_free_memory_is_that_of_the_machine_or_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    assert memory.free_memory() is None
    memory.check_fits_in_memory(10**30, "x", "everything")  # unknown: not refused
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:   2000 kB\n")
    assert memory.free_memory() == 2000 * 1024
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_memory() == 2000 * 1024
    (tmp_path / "memory.max").write_text("5000\n")
    assert memory.free_memory() == 4000
