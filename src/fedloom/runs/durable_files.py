"""Files that survive: written beside, synced, renamed. What cannot be written is said in a sentence; a changed byte is noticed."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedloom.core.errors import RunError, UserError

BESIDE = ".tmp"

_FULL = "free some space, then go on (the last checkpoint stands)"
_CLOSED = "change its permissions, or choose another folder"
_MISSING = "put back the folder it belongs in, or choose another"
_REMEDIES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: _CLOSED,
    errno.EACCES: _CLOSED,
    errno.EPERM: _CLOSED,
    errno.ENOENT: _MISSING,
    errno.ENOTDIR: _MISSING,
}


def failed(path: Path, error: OSError, kind: type[RunError] | type[UserError] = RunError) -> RunError | UserError:
    """The error for a file that could not be read or written: which, why, and what to do.

    >>> print(failed(Path("run/lock"), OSError(errno.EROFS, "Read-only file system")))
    run/lock: read-only file system; change its permissions, or choose another folder
    """
    remedy = _REMEDIES.get(error.errno or 0, "look at the disk, then go on (the last checkpoint stands)")
    why = (error.strerror or str(error)).lower()
    return kind(f"{path}: {why}; {remedy}")


def write_durably(path: Path, data: bytes) -> None:
    """Put the whole file in place, or leave what was there: after this call a power cut does not take it away."""
    beside = path.with_name(path.name + BESIDE)
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise failed(path, error) from error


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable; syncing a file alone does not."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read(path: Path) -> bytes | None:
    """The bytes of a file, or None where there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise failed(path, error) from error


def sha256(data: bytes) -> str:
    """The checksum that is written down wherever one file speaks of another."""
    return hashlib.sha256(data).hexdigest()


def seal(facts: Mapping[str, Any]) -> bytes:
    """Facts as JSON, with a checksum over the rest as the last entry."""
    plain = json.loads(json.dumps(facts))  # as they will be read: names of entries are strings, lists are lists
    return _text({**plain, "checksum": sha256(_text(plain))})


def unseal(data: bytes | None) -> dict[str, Any] | None:
    """The facts that were sealed, or None where so much as one byte differs.

    >>> unseal(seal({"round": 3}))
    {'round': 3}
    >>> unseal(seal({"round": 3}).replace(b"3", b"4", 1)) is None
    True
    """
    try:
        facts = json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
    if not isinstance(facts, dict):
        return None
    facts.pop("checksum", None)
    return facts if seal(facts) == data else None


def _text(facts: Mapping[str, Any]) -> bytes:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding="utf-8", newline="\n") as out:  # piece by piece: the scores of a crowd are many pieces
        json.dump(facts, out, indent=1)
        out.write("\n")
        out.flush()
        return raw.getvalue()
