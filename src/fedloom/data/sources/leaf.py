"""LEAF's JSON files.

{"users": [...], "num_samples": [...], "user_data": {user: {"x": [...], "y": [...]}}}

Images are flat lists of H*H numbers with class numbers as y. Texts are strings of one length with
the next character as y.
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
from fedloom.data.sources import holdout, text, user_subset
from fedloom.data.sources.build import (
    Name,
    RawSplit,
    build_dataset,
    default_name,
    named_by_labels,
    raw_split,
)
from fedloom.data.sources.errors import data_error, folder_listing, shortened
from fedloom.data.sources.pixel_arrays import as_uint8_images

LOOKS_FOR = (
    "all_data.json, or train/*.json and test/*.json, in a folder, or one such .json file (LEAF)"
)
REWRITE = "write the file again"


@dataclass(frozen=True)
class Shard:
    """One file: x as uint8 images or uint32 code points, y likewise, and each sample's user."""

    x: np.ndarray
    y: np.ndarray
    users: np.ndarray
    file: Path


def detect(path: Path) -> bool:
    """Whether it is a .json file or a folder with LEAF's files."""
    if path.is_file():
        return path.suffix == ".json"
    return any(_split_files(path, split) for split in ("all_data", "train"))


def read(
    path: Path,
    name: Name = None,
    test_share: holdout.TestShare = 0.2,
    users: user_subset.UserCount = 0,
    min_samples: user_subset.MinSamples = 1,
) -> Dataset:
    """The data set of one file or of LEAF's folders.

    Users keep their names. The classes, and the alphabet of texts, are those of all users, also if
    only some are kept.
    """
    train, test, classes = _joined_splits(*_read_shards(path))
    is_text = train.x.dtype == np.int64
    train, test = user_subset.keep_users(train, test, users, min_samples)
    about = {
        "format": "leaf",
        "source": str(path),
        **user_subset.description(users, min_samples),
    }
    if test is None:
        about["test split"] = holdout.description(test_share, has_users=True, tail=is_text)
        train, test = holdout.split_off_test(train, test_share, tail=is_text)
    kind: Kind = "text" if is_text else "image"
    return build_dataset(name or default_name(path), kind, train, test, about, classes)


def _joined_splits(
    train_shards: list[Shard], test_shards: list[Shard]
) -> tuple[RawSplit, RawSplit | None, tuple[str, ...]]:
    """Both splits, and the classes or letters of all users."""
    shards = train_shards + test_shards
    _check_alike(shards)
    is_text = shards[0].x.dtype == np.uint32
    letters = text.alphabet([a for s in shards for a in (s.x, s.y)]) if is_text else None
    train = _joined(train_shards, letters)
    test = _joined(test_shards, letters) if test_shards else None
    if letters is not None:
        return train, test, tuple(chr(letter) for letter in letters.tolist())
    classes, train, relabelled = named_by_labels(train, test or train)
    return train, relabelled if test else None, classes


def _split_files(path: Path, split: str) -> list[Path]:
    """The files of a split: in a folder of its name, or for all_data also all_data*.json."""
    files = sorted((path / split).glob("*.json"))
    if not files and split == "all_data":
        files = sorted(path.glob("all_data*.json"))
    return files


def _read_shards(path: Path) -> tuple[list[Shard], list[Shard]]:
    """The files of the training and of the test split; all in the former if there is no split."""
    if path.is_file():
        return [_read_shard(path)], []
    train, test, everything = (_split_files(path, s) for s in ("train", "test", "all_data"))
    if not train and not everything:
        remedy = "give the folder that holds the .json files"
        raise data_error(path, folder_listing(path), LOOKS_FOR, remedy)
    if not train:
        return [_read_shard(file) for file in everything], []
    if not test:
        expected = "test/*.json next to train/*.json"
        remedy = "run LEAF's split_data, or give one all_data.json"
        raise data_error(path, folder_listing(path), expected, remedy)
    return [_read_shard(file) for file in train], [_read_shard(file) for file in test]


def _check_alike(shards: Sequence[Shard]) -> None:
    first = shards[0]
    for shard in shards:
        if shard.x.shape[1:] != first.x.shape[1:] or shard.x.dtype != first.x.dtype:
            found = f"samples of shape {shard.x.shape[1:]}"
            expected = f"{first.x.shape[1:]} as in {first.file.name}"
            raise data_error(shard.file, found, expected, "use the same shape in all files")


def _joined(shards: Sequence[Shard], letters: np.ndarray | None) -> RawSplit:
    x = np.concatenate([shard.x for shard in shards])
    y = np.concatenate([shard.y for shard in shards])
    users = np.concatenate([shard.users for shard in shards])
    where = shards[0].file if len(shards) == 1 else shards[0].file.parent
    if letters is not None:
        x, y = text.encode(x, letters), text.encode(y, letters)
    return raw_split(x, y, where, users)


def _read_shard(file: Path) -> Shard:
    data = _parsed(file)
    names, sizes = [], []
    x: list[Any] = []
    y: list[Any] = []
    for user in data["users"]:
        samples = data["user_data"][user]
        if samples["y"]:
            names.append(user)
            sizes.append(len(samples["y"]))
            x += samples["x"]
            y += samples["y"]
    if not x:
        raise data_error(file, "no samples", "at least one", "run LEAF's preprocessing again")
    arrays = _text_arrays(x, y, file) if isinstance(x[0], str) else _image_arrays(x, y, file)
    return Shard(*arrays, np.repeat(names, sizes), file)


def _parsed(file: Path) -> dict[str, Any]:
    """The JSON of a file, after checking its users and the lengths of their lists."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise data_error(file, f"no readable JSON ({error})", "LEAF's JSON", REWRITE) from None
    if not isinstance(data, dict) or not {"users", "user_data"} <= data.keys():
        found = shortened(data) if isinstance(data, dict) else f"a {type(data).__name__}"
        expected, remedy = "the fields users and user_data", "check that it is a file of LEAF"
        raise data_error(file, found, expected, remedy)
    users = data["users"]
    if not isinstance(users, list) or not all(isinstance(user, str) for user in users):
        raise data_error(file, "users that are not a list of names", "a list of names", REWRITE)
    for user in users:
        _check_user(user, data["user_data"], file)
    return data


def _check_user(user: str, user_data: Any, file: Path) -> None:
    if not isinstance(user_data, dict) or user not in user_data:
        found = f"user '{user}' in users only"
        raise data_error(file, found, "samples of this user in user_data", REWRITE)
    samples = user_data[user]
    if not isinstance(samples, dict) or not all(isinstance(samples.get(f), list) for f in "xy"):
        raise data_error(file, f"user '{user}' without lists x and y", "both", REWRITE)
    if len(samples["x"]) != len(samples["y"]):
        found = f"{len(samples['x'])} x and {len(samples['y'])} y of user '{user}'"
        raise data_error(file, found, "the same number of both", REWRITE)


def _text_arrays(x: list[Any], y: list[Any], file: Path) -> tuple[np.ndarray, np.ndarray]:
    if not all(isinstance(sample, str) for sample in x):
        raise data_error(file, "texts and numbers mixed in x", "texts only", REWRITE)
    for label in y:
        if not (isinstance(label, str) and len(label) == 1):
            remedy = (
                "fedloom reads texts whose label is the next character; "
                "convert other texts or file names to numbers first"
            )
            raise data_error(file, f"label {label!r} of a text", "one character", remedy)
    return text.code_points(x, file), text.code_points(y, file)[:, 0]


def _image_arrays(x: list[Any], y: list[Any], file: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        array, labels = np.array(x, dtype=np.float32), np.array(y)
    except (ValueError, TypeError):
        found = "samples of several lengths or types"
        raise data_error(file, found, "the same number of values in each", REWRITE) from None
    if array.ndim == 2:
        array = _square(array, file)
    return as_uint8_images(array, file), labels


def _square(flat: np.ndarray, file: Path) -> np.ndarray:
    side = math.isqrt(flat.shape[1])
    if not side or side * side != flat.shape[1]:
        raise data_error(
            file,
            f"{flat.shape[1]} numbers per sample",
            "a square grey image (784 for 28 x 28)",
            "write colour images as nested lists H x W x 3, other numbers as a table",
        )
    return flat.reshape(-1, side, side)
