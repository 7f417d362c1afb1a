"""The data set that ships with fedloom: 10,000 + 2,000 pictures of Fashion-MNIST, balanced by class."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from importlib import resources

import numpy as np

from fedloom.core.errors import UserError
from fedloom.data.dataset import Dataset
from fedloom.data.sources.build import Part, dataset, part
from fedloom.data.sources.idx import parse

NAME = "fashion-mnist"
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
ABOUT = {
    "format": "packaged",
    "source": "Fashion-MNIST, https://github.com/zalandoresearch/fashion-mnist (Debian package dataset-fashion-mnist)",
    "licence": "MIT, (c) 2017 Zalando SE",
    "subset": "the first 1,000 training and 200 test pictures of each class, in their original order",
}


def load() -> Dataset:
    """The packaged subset, its checksums verified."""
    sums = _checksums()
    return dataset(NAME, "image", _split("train", sums), _split("t10k", sums), ABOUT, CLASSES)


def _split(prefix: str, sums: dict[str, str]) -> Part:
    x, y = (
        _array(f"{prefix}-{what}-idx{dims}-ubyte", dims, sums)
        for what, dims in (("images", 3), ("labels", 1))
    )
    return part(x[:, None], y, prefix)


def _array(name: str, dims: int, sums: dict[str, str]) -> np.ndarray:
    """The array of a packaged file; the checksum is that of the idx file inside the gzip, which no zlib version changes."""
    try:
        data = gzip.decompress(_packaged(f"{name}.gz"))
    except (OSError, EOFError, zlib.error):
        data = b""
    if hashlib.sha256(data).hexdigest() != sums.get(name):
        raise UserError(
            f"the packaged file {name}.gz is damaged (its sha256 is not that of SHA256SUMS); reinstall fedloom"
        )
    return parse(data, dims, name)


def _checksums() -> dict[str, str]:
    lines = _packaged("SHA256SUMS").decode().splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def _packaged(name: str) -> bytes:
    return resources.files("fedloom.data").joinpath("packaged", name).read_bytes()
