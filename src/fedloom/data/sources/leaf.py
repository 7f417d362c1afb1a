"""LEAF's JSON: {"users": [...], "num_samples": [...], "user_data": {user: {"x": [...], "y": [...]}}}.

Pictures are flat lists of H*H numbers with class numbers as y; texts are strings of one length with the next character as y.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedloom.data.dataset import Dataset, Kind
from fedloom.data.sources import holdout, user_subset
from fedloom.data.sources.build import Name, Part, dataset, named, part
from fedloom.data.sources.errors import bad, listing, some
from fedloom.data.sources.pixel_arrays import images
from fedloom.data.sources.text import alphabet, codes, points

LOOKS_FOR = (
    "all_data.json, or train/*.json and test/*.json, in a folder, or one such .json file (LEAF)"
)


@dataclass(frozen=True)
class Shard:
    """One file: x as uint8 pictures or uint32 code points, y alike, and the user of each sample."""

    x: np.ndarray
    y: np.ndarray
    users: np.ndarray
    file: Path


def detect(path: Path) -> bool:
    """Whether it is a .json file or a folder that holds LEAF's."""
    return (
        path.suffix == ".json"
        if path.is_file()
        else any(_files(path, part) for part in ("all_data", "train"))
    )


def read(
    path: Path,
    name: Name = None,
    test_share: holdout.TestShare = 0.2,
    users: user_subset.Users = 0,
    least: user_subset.Least = 1,
) -> Dataset:
    """The data set of one file or of LEAF's folders; users keep their names, and texts the alphabet of all of them."""
    train, test = _splits(path)
    shards = train + test
    text = shards[0].x.dtype == np.uint32
    if odd := [
        s
        for s in shards
        if s.x.shape[1:] != shards[0].x.shape[1:] or s.x.dtype != shards[0].x.dtype
    ]:
        found, expected = (
            f"samples of shape {odd[0].x.shape[1:]}",
            f"{shards[0].x.shape[1:]} as in {shards[0].file.name}",
        )
        raise bad(odd[0].file, found, expected, "make all files alike")
    letters = alphabet([a for s in shards for a in (s.x, s.y)]) if text else None
    first, second = user_subset.of(
        _joined(train, letters), _joined(test, letters) if test else None, users, least
    )
    about = {"format": "leaf", "source": str(path), **user_subset.said(users, least)}
    about |= {} if test else {"test split": holdout.said(test_share, users=True, tail=text)}
    pair = (first, second) if second is not None else holdout.split(first, test_share, tail=text)
    kind: Kind = "text" if text else "image"
    return dataset(
        name or named(path),
        kind,
        *pair,
        about,
        () if letters is None else [chr(c) for c in letters.tolist()],
    )


def _files(path: Path, split: str) -> list[Path]:
    """The files of a split: in a folder of its name, or all_data*.json themselves."""
    return sorted((path / split).glob("*.json")) or (
        sorted(path.glob("all_data*.json")) if split == "all_data" else []
    )


def _splits(path: Path) -> tuple[list[Shard], list[Shard]]:
    if path.is_file():
        return [_shard(path)], []
    train, test, everything = (_files(path, split) for split in ("train", "test", "all_data"))
    if train and not test:
        raise bad(
            path,
            listing(path),
            "test/*.json beside train/*.json",
            "run LEAF's split_data, or give one all_data.json",
        )
    if not train and not everything:
        raise bad(path, listing(path), LOOKS_FOR, "give the folder that holds the .json files")
    return [_shard(f) for f in train or everything], [_shard(f) for f in (test if train else [])]


def _joined(shards: Sequence[Shard], letters: np.ndarray | None) -> Part:
    x, y, users = (
        np.concatenate([getattr(s, field) for s in shards]) for field in ("x", "y", "users")
    )
    where = shards[0].file if len(shards) == 1 else shards[0].file.parent
    return (
        part(x, y, where, users)
        if letters is None
        else part(codes(x, letters), codes(y, letters), where, users)
    )


def _shard(file: Path) -> Shard:
    data = _parsed(file)
    names = [u for u in data["users"] if data["user_data"][u]["y"]]
    x = [sample for u in names for sample in data["user_data"][u]["x"]]
    y = [label for u in names for label in data["user_data"][u]["y"]]
    if not x:
        raise bad(file, "no samples", "at least one", "run LEAF's preprocessing again")
    users = np.repeat(names, [len(data["user_data"][u]["y"]) for u in names])
    return Shard(
        *(_text(x, y, file) if isinstance(x[0], str) else _pictures(x, y, file)), users, file
    )


def _parsed(file: Path) -> dict[str, Any]:
    """The JSON of a file, with its users and their lengths checked."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise bad(
            file, f"no readable JSON ({error})", "LEAF's JSON", "write the file again"
        ) from None
    if not isinstance(data, dict) or not {"users", "user_data"} <= data.keys():
        found = some(data) if isinstance(data, dict) else f"a {type(data).__name__}"
        raise bad(file, found, "the fields users and user_data", "check that it is a file of LEAF")
    if not isinstance(data["users"], list) or not all(
        isinstance(user, str) for user in data["users"]
    ):
        raise bad(file, "users that are no list of names", "one", "write the file again")
    for user in data["users"]:
        _check_user(user, data["user_data"], file)
    return data


def _check_user(user: str, known: Any, file: Path) -> None:
    if not isinstance(known, dict) or user not in known:
        raise bad(
            file, f"user '{user}' in users only", "its samples in user_data", "write the file again"
        )
    memories = known[user]
    if not isinstance(memories, dict) or not all(
        isinstance(memories.get(field), list) for field in "xy"
    ):
        raise bad(file, f"user '{user}' without lists x and y", "both", "write the file again")
    if len(memories["x"]) != len(memories["y"]):
        raise bad(
            file,
            f"{len(memories['x'])} x and {len(memories['y'])} y of user '{user}'",
            "as many of both",
            "write the file again",
        )


def _text(x: list[Any], y: list[Any], file: Path) -> tuple[np.ndarray, np.ndarray]:
    if not all(isinstance(s, str) for s in x):
        raise bad(file, "texts and numbers mixed in x", "texts only", "write the file again")
    if wrong := [label for label in y if not (isinstance(label, str) and len(label) == 1)]:
        remedy = "fedloom reads texts whose label is the next character; turn other texts or file names into numbers first"
        raise bad(file, f"label {wrong[0]!r} to a text", "one character", remedy)
    return points(x, file), points(y, file)[:, 0]


def _pictures(x: list[Any], y: list[Any], file: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        array, labels = np.array(x, dtype=np.float32), np.array(y)
    except (ValueError, TypeError):
        raise bad(
            file,
            "samples of several lengths or types",
            "as many numbers in each",
            "write the file again",
        ) from None
    if array.ndim == 2:
        array = _square(array, file)
    return images(array, file), labels


def _square(flat: np.ndarray, file: Path) -> np.ndarray:
    side = math.isqrt(flat.shape[1])
    if not side or side * side != flat.shape[1]:
        remedy = "write colour pictures as nested lists H x W x 3, other numbers as a table"
        raise bad(
            file,
            f"{flat.shape[1]} numbers a sample",
            "a square grey picture (784 for 28 x 28)",
            remedy,
        )
    return flat.reshape(-1, side, side)
