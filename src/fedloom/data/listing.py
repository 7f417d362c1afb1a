"""Which data sets there are, and what their info.json says, without importing torch.

A data set is the one packaged with fedloom, a synthetic one (crowd-N, see synthetic.py), or one
that the user added: a folder NAME with info.json, which records classes, users and tensor shapes.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from fedloom.core.errors import UserError, unknown_name
from fedloom.data.info_file import INFO, damaged, disk_errors, read_info

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
ADD_HINT = "add it with: fedloom data add NAME --from PATH"
SYNTHETIC_HINT = "crowd-N, such as crowd-1000: a synthetic federation of N users"

PACKAGED = "fashion-mnist"
PACKAGED_SIZES: dict[str, Any] = {
    "name": PACKAGED,
    "kind": "image",
    "train": 10_000,
    "test": 2_000,
    "task": "classification",
    "classes": 10,
    "shape": "1 x 28 x 28",
    "users": 0,
}
PACKAGED_ABOUT = {
    "format": "packaged",
    "source": "Fashion-MNIST, https://github.com/zalandoresearch/fashion-mnist "
    "(Debian package dataset-fashion-mnist)",
    "licence": "MIT, (c) 2017 Zalando SE",
    "subset": "the first 1,000 training and 200 test images of each class, in their original order",
}
# In `about`, but for the summary (dataset_summary.py) and the checks (sources/checks.py).
READER_FACTS = ("features", "remarks")

Root = str | Path | None


def home(root: Root = None) -> Path:
    """The folder of all added data sets.

    root, else $FEDLOOM_HOME/data, else $XDG_DATA_HOME/fedloom/data, else
    ~/.local/share/fedloom/data.
    """
    if root is not None:
        return Path(root).expanduser()
    if fedloom_home := os.environ.get("FEDLOOM_HOME"):
        return Path(fedloom_home).expanduser() / "data"
    data_home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data_home).expanduser() / "fedloom" / "data"


def names(root: Root = None) -> list[str]:
    """The packaged data set and the added ones, sorted. Synthetic ones have no end."""
    folder = home(root)
    with disk_errors(f"cannot list the data sets in {folder}"):
        candidates = list(folder.iterdir()) if folder.is_dir() else []
    stored = {p.name for p in candidates if NAME.fullmatch(p.name) and (p / INFO).is_file()}
    return sorted({PACKAGED, *stored})


def describe(name: str, root: Root = None) -> dict[str, Any]:
    """Kind, sizes and shape of the packaged or an added data set; its tensors are not read.

    Raises UserError if there is no such data set or if its info.json is damaged.
    """
    if name == PACKAGED:
        return {**PACKAGED_SIZES, **PACKAGED_ABOUT}
    if name not in names(root):
        raise UserError(f"{unknown_name('data set', name, names(root))}; {ADD_HINT}")
    folder = home(root) / name
    with disk_errors(f"cannot read data set '{name}' in {folder}"):
        info = read_info(folder)
    try:
        return _description(info)
    except (KeyError, TypeError, ValueError):
        raise damaged(folder / INFO, "it lacks sizes of the data") from None


def describe_all(root: Root = None) -> list[dict[str, Any]]:
    """The packaged data set and all added ones, sorted by name.

    Of one that cannot be read there is only its name and the `problem`.
    """
    return [_described_or_problem(name, root) for name in names(root)]


def _described_or_problem(name: str, root: Root) -> dict[str, Any]:
    try:
        return describe(name, root)
    except UserError as error:
        return {"name": name, "problem": str(error)}


def _description(info: dict[str, Any]) -> dict[str, Any]:
    _, train_samples, *shape = info["files"]["train"]["tensors"]["x"]  # "uint8", 10000, 1, 28, 28
    _, test_samples, *_ = info["files"]["test"]["tensors"]["x"]
    return {
        "name": info["name"],
        "kind": info["kind"],
        "train": train_samples,
        "test": test_samples,
        "task": info.get("task", "classification"),
        "classes": len(info["classes"]),
        "shape": " x ".join(map(str, shape)),
        "users": len(info["users"]),
        **{field: text for field, text in info["about"].items() if field not in READER_FACTS},
    }
