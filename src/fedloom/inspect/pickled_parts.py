"""Finds pickles in an archive that torch has written: to load a pickle can run any code."""

from __future__ import annotations

import io
import pickletools
import zipfile


def pickled_parts(archive: bytes) -> list[str]:
    """The members of a zip archive that are pickles, or archives with a pickle in them."""
    with zipfile.ZipFile(io.BytesIO(archive)) as members:
        return [name for name in members.namelist() if _holds_pickle(members.read(name))]


def _holds_pickle(data: bytes) -> bool:
    if zipfile.is_zipfile(io.BytesIO(data)):  # as torch.save writes it
        return bool(pickled_parts(data))
    if not (data.startswith(b"\x80") and data.endswith(b".")):
        return False
    try:
        return any(operation.name == "STOP" for operation, _, _ in pickletools.genops(data))
    except Exception:  # not a pickle: pickletools raises whatever its bytes lead to
        return False
