"""info.json of an added data set: classes, users, constants, and the checksums of its two splits.

It is sealed: any changed byte is noticed. It is also what counts as the data set: the files of the
splits are named by their content, and those that info.json does not name are leftovers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedloom.core.errors import UserError
from fedloom.core.sealed_json import seal, unseal

VERSION = 2  # of info.json
INFO = "info.json"
SPLITS = ("train", "test")
SPLIT_FILE = re.compile(r"(train|test)(-[0-9a-f]{12})?\.safetensors")  # no digits: version 1
_SHA256 = re.compile("[0-9a-f]{64}")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_list_of(*types: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(type(item) in types for item in value)


_FIELDS: dict[str, Callable[[object], bool]] = {
    "name": _is_text,
    "kind": _is_text,
    "classes": _is_list_of(str),
    "users": _is_list_of(str),
    "mean": _is_list_of(float, int),
    "std": _is_list_of(float, int),
    "about": lambda value: isinstance(value, dict) and all(map(_is_text, value.values())),
}


def split_file(split: str, sha256: str) -> str:
    """The name of the file of a split.

    >>> split_file("test", "0123456789abcdef" * 4)
    'test-0123456789ab.safetensors'
    """
    return f"{split}-{sha256[:12]}.safetensors"


def info_bytes(facts: Mapping[str, Any]) -> bytes:
    """The content of info.json for these facts."""
    return seal({"version": VERSION, **facts})


def read_info(folder: Path) -> dict[str, Any]:
    """The facts in a data set's info.json.

    Raises UserError if it is damaged, of another version, or not what fedloom writes.
    """
    file = folder / INFO
    data = file.read_bytes()
    info = unseal(data)
    version = _version(data) if info is None else info.get("version")
    if version not in (VERSION, None):
        raise UserError(
            f"{file} has version {version}, this fedloom reads version {VERSION}; "
            f"add the data set again with: fedloom data add {folder.name} --from PATH --replace"
        )
    if info is None:
        raise damaged(file, "its content does not match its checksum")
    for field, is_right in _FIELDS.items():
        if not is_right(info.get(field)):
            raise damaged(file, f"no valid entry '{field}'")
    for split in SPLITS:
        split_sha256(info, split, file)
    return info


def split_sha256(info: Mapping[str, Any], split: str, file: Path) -> str:
    """The checksum of the file of a split."""
    try:
        sha256 = info["files"][split]["sha256"]
    except (KeyError, TypeError):
        sha256 = None
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise damaged(file, f"no checksum of the split '{split}'")
    return sha256


def split_files(info: Mapping[str, Any], folder: Path) -> dict[str, Path]:
    """The file of each split."""
    return {s: folder / split_file(s, split_sha256(info, s, folder / INFO)) for s in SPLITS}


def damaged(file: Path, reason: str) -> UserError:
    """The error for a file of an added data set that cannot be used."""
    return UserError(
        f"{file} is damaged ({reason}); add the data set again with: "
        f"fedloom data add {file.parent.name} --from PATH --replace"
    )


@contextmanager
def disk_errors(failure: str) -> Iterator[None]:
    """Turn an OSError into a UserError that starts with `failure`."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{failure}: {error.strerror or error}; check the disk and its permissions"
        ) from None


def _version(data: bytes) -> int | None:
    """The version of an info.json that is not sealed as this version is, if it is a number."""
    try:
        version = json.loads(data)["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return version if type(version) is int else None
