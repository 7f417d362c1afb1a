"""Image files as uint8 arrays, decoded with Pillow."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedloom.data.sources.errors import data_error, missing_extra
from fedloom.data.sources.memory import check_fits_in_memory

SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp"}
)
MODES = {1: "L", 3: "RGB"}  # Pillow's mode by the number of channels
REPLACE = "replace or delete the file"
MAX_PIXELS = 1 << 26  # of one image: 8192 x 8192
DAMAGED = (OSError, SyntaxError, ValueError)  # what Pillow raises for files it cannot read


@dataclass(frozen=True)
class EncodedImage:
    """The content of an image file that is a cell of a table; in messages it is its place."""

    data: bytes
    parent: str  # the table and the column
    row: int

    @property
    def name(self) -> str:
        return f"row {self.row}"

    def __str__(self) -> str:
        return f"{self.parent}, {self.name}"


ImageFile = Path | EncodedImage


def image_files_in(folder: Path) -> list[Path]:
    """The image files directly in a folder, sorted by name."""
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())


def load_images(files: Sequence[ImageFile], channels: int, size: int | None = None) -> np.ndarray:
    """The images as (N,C,H,W); all of one size, or cropped and scaled to size x size."""
    first = _decoded(files[0], channels, size)
    check_fits_in_memory(len(files) * first.size, files[0].parent, f"{len(files)} images")
    images = np.empty((len(files), *first.shape), dtype=np.uint8)
    for i, file in enumerate(files):
        image = _decoded(file, channels, size)
        if image.shape != first.shape:
            found = f"an image of {_dimensions(image)}"
            expected = f"{_dimensions(first)} as in {files[0].name}"
            raise data_error(file, found, expected, "set size=N to scale all images to N x N")
        images[i] = image
    return images


def all_grey(files: Sequence[ImageFile]) -> bool:
    """Whether every image is greyscale; only file headers are read."""
    return all(_is_grey(file) for file in files)


def _is_grey(file: ImageFile) -> bool:
    with _opened(file) as image:
        return image.mode in ("1", "L")


def _dimensions(image: np.ndarray) -> str:
    return f"{image.shape[2]} x {image.shape[1]} pixels"


def _opened(file: ImageFile) -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise missing_extra("reading image files", "Pillow", "images") from None
    try:
        with warnings.catch_warnings():  # Pillow warns of large images, which are refused here
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(file.data) if isinstance(file, EncodedImage) else file)
    except (*DAMAGED, Image.DecompressionBombError) as error:
        found = f"no readable image ({error})"
        raise data_error(file, found, "a PNG, JPEG or similar file", REPLACE) from None
    if image.width * image.height > MAX_PIXELS:
        image.close()
        found = f"an image of {image.width} x {image.height} pixels"
        raise data_error(file, found, f"at most {MAX_PIXELS:,} pixels", "scale it down")
    return image


def _decoded(file: ImageFile, channels: int, size: int | None) -> np.ndarray:
    """One image as (C,H,W)."""
    with _opened(file) as image:
        try:
            converted = image.convert(MODES[channels])
        except DAMAGED as error:
            found = f"a damaged image ({error})"
            raise data_error(file, found, "a complete one", REPLACE) from None
    if size is not None:
        from PIL import ImageOps

        converted = ImageOps.fit(converted, (size, size))
    array = np.asarray(converted)
    return array[None] if channels == 1 else array.transpose(2, 0, 1)
