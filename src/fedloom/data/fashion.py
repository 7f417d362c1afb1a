"""The data set that ships with fedloom: a class-balanced subset of Fashion-MNIST.

10,000 training and 2,000 test images.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from importlib import resources

import numpy as np

from fedloom.core.errors import UserError
from fedloom.data.dataset import Dataset
from fedloom.data.listing import PACKAGED, PACKAGED_ABOUT
from fedloom.data.sources.build import RawSplit, build_dataset, raw_split
from fedloom.data.sources.idx import parse

CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


def load() -> Dataset:
    """The packaged subset, after verifying its checksums."""
    checksums = _checksums()
    train, test = (_split(prefix, checksums) for prefix in ("train", "t10k"))
    return build_dataset(PACKAGED, "image", train, test, PACKAGED_ABOUT, CLASSES)


def _split(prefix: str, checksums: dict[str, str]) -> RawSplit:
    images = _array(f"{prefix}-images-idx3-ubyte", 3, checksums)
    labels = _array(f"{prefix}-labels-idx1-ubyte", 1, checksums)
    return raw_split(images[:, None], labels, prefix)


def _array(name: str, dims: int, checksums: dict[str, str]) -> np.ndarray:
    """The array of a packaged file.

    The checksum is that of the idx file inside the gzip, which does not depend on zlib's version.
    """
    try:
        data = gzip.decompress(_packaged(f"{name}.gz"))
    except (OSError, EOFError, zlib.error):
        data = b""
    if hashlib.sha256(data).hexdigest() != checksums.get(name):
        raise UserError(
            f"the packaged file {name}.gz is damaged (its sha256 differs from SHA256SUMS); "
            "reinstall fedloom"
        )
    return parse(io.BytesIO(data), dims, name)


def _checksums() -> dict[str, str]:
    lines = _packaged("SHA256SUMS").decode().splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def _packaged(name: str) -> bytes:
    return resources.files("fedloom.data").joinpath("packaged", name).read_bytes()
