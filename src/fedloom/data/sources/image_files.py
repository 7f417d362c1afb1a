"""Picture files as uint8 arrays, decoded with Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedloom.data.sources.errors import bad, missing_extra

SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp"}
)
MODES = {1: "L", 3: "RGB"}


def pictures_in(folder: Path) -> list[Path]:
    """The picture files directly in a folder, by name."""
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())


def stack(files: Sequence[Path], channels: int, size: int | None = None) -> np.ndarray:
    """The pictures as (N,C,H,W); all of one size, or cut and scaled to size x size."""
    first = _decoded(files[0], channels, size)
    out = np.empty((len(files), *first.shape), dtype=np.uint8)
    for i, file in enumerate(files):
        picture = _decoded(file, channels, size)
        if picture.shape != first.shape:
            found, expected = (
                f"a picture of {_said(picture)}",
                f"{_said(first)} as in {files[0].name}",
            )
            raise bad(file, found, expected, "give size=N to bring all pictures to N x N")
        out[i] = picture
    return out


def all_grey(files: Sequence[Path]) -> bool:
    """Whether no picture has a colour, by their heads alone."""
    return all(_opened(file).mode in ("1", "L") for file in files)


def _said(picture: np.ndarray) -> str:
    return f"{picture.shape[2]} x {picture.shape[1]} pixels"


def _opened(file: Path) -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise missing_extra("reading picture files", "Pillow", "images") from None
    try:
        return Image.open(file)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise bad(
            file, f"no picture ({error})", "a PNG, JPEG or the like", "replace or delete the file"
        ) from None


def _decoded(file: Path, channels: int, size: int | None) -> np.ndarray:
    """One picture as (C,H,W)."""
    with _opened(file) as picture:
        try:
            plain = picture.convert(MODES[channels])
        except (OSError, SyntaxError, ValueError) as error:
            raise bad(
                file, f"a damaged picture ({error})", "a complete one", "replace or delete the file"
            ) from None
    if size is not None:
        from PIL import ImageOps

        plain = ImageOps.fit(plain, (size, size))
    array = np.asarray(plain)
    return array[None] if channels == 1 else array.transpose(2, 0, 1)
