"""Make the packaged subset of Fashion-MNIST from the full data set.

    apt-get install dataset-fashion-mnist
    python scripts/make_fashion_subset.py [SOURCE [DESTINATION]]

It takes the first 1,000 training and the first 200 test images of each class, in their original
order. SHA256SUMS holds the checksums of the uncompressed idx files, so that they do not depend on
the version of zlib.
"""

from __future__ import annotations

import gzip
import hashlib
import sys
from pathlib import Path

import numpy as np

from fedloom.data.sources.idx import parse

SOURCE = Path("/usr/share/datasets/fashion-mnist")
DESTINATION = Path(__file__).resolve().parents[1] / "src" / "fedloom" / "data" / "packaged"
PER_CLASS = {"train": 1000, "t10k": 200}


def first_of_each_class(labels: np.ndarray, count: int) -> np.ndarray:
    """The indices of the first `count` samples of each class, in their original order."""
    return np.sort(np.concatenate([np.flatnonzero(labels == c)[:count] for c in np.unique(labels)]))


def array(file: Path, dims: int) -> np.ndarray:
    """The array of a gzipped idx file."""
    with gzip.open(file) as stream:
        return parse(stream, dims, file)


def idx_bytes(array: np.ndarray) -> bytes:
    """A uint8 array as an idx file."""
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    return header + array.tobytes()


def subset(source: Path) -> dict[str, bytes]:
    """The idx files of the subset, by name."""
    files = {}
    for prefix, count in PER_CLASS.items():
        names = {3: f"{prefix}-images-idx3-ubyte", 1: f"{prefix}-labels-idx1-ubyte"}
        arrays = {dims: array(source / f"{name}.gz", dims) for dims, name in names.items()}
        rows = first_of_each_class(arrays[1], count)
        files |= {name: idx_bytes(arrays[dims][rows]) for dims, name in names.items()}
    return files


def main(source: Path = SOURCE, destination: Path = DESTINATION) -> None:
    """Write the files and their checksums."""
    files = subset(source)
    for name, data in files.items():
        (destination / f"{name}.gz").write_bytes(gzip.compress(data, 9, mtime=0))
    sums = "".join(
        f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items())
    )
    (destination / "SHA256SUMS").write_text(sums)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
