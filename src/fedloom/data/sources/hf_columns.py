"""Columns of a HuggingFace Dataset as samples: images, arrays, the columns of a table; and labels.

Only the columns that are used are read, and images are decoded by fedloom's own reader.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedloom.core.errors import unknown_name
from fedloom.data.sources.array_kinds import as_kind, kind_of
from fedloom.data.sources.arrays import STORED_AS
from fedloom.data.sources.assemble import Samples
from fedloom.data.sources.errors import data_error, shortened
from fedloom.data.sources.frames import Frame
from fedloom.data.sources.image_files import EncodedImage, ImageFile, all_grey, load_images
from fedloom.data.sources.targets import FOR_COLUMNS, FOR_NUMBERS, targets_of
from fedloom.data.sources.torch_dataset import target_array

TARGETS = ("label", "labels", "target", "y")
NUMBERS = ("int", "uint", "float", "double", "bool")
MEAN_LENGTH_OF_TEXT = 20  # characters; a column of longer, hardly repeating strings is free text
NO_TEXT_CLASSES = (
    "fedloom has no model that classifies texts: replace each text by numbers, such as its "
    "embedding in a list column, or leave the column out"
)


@dataclass(frozen=True)
class Columns:
    """Which columns are what. input: the one with the samples; None for the columns of a table."""

    target: str
    client: str | None
    input: str | None
    kind: str  # image, array, or table
    features: tuple[str, ...] = ()  # of a table


@dataclass(frozen=True)
class Wishes:
    """What the user said about the columns; None and () leave it to the data.

    remedy_drop: how a column is left out, with {} for its name. task: what is learned.
    """

    target: str | None = None
    client: str | None = None
    input: str | None = None
    drop: Collection[str] = ()
    kind: str | None = None
    channels: str | None = None
    size: int | None = None
    remedy_drop: str = "leave it out with drop='{}'"
    task: str = "classification"


def choose_columns(data: Any, wishes: Wishes, where: str) -> Columns:
    """The columns of a split that are its samples, labels and clients."""
    features = data.features
    for name in (wishes.target, wishes.client, wishes.input, *wishes.drop):
        if name is not None and name not in features:
            raise unknown_name("column", name, features, place=where)
    target = wishes.target or _default_target(features, where)
    others = [n for n in features if n not in {target, wishes.client, *wishes.drop}]
    inputs = [wishes.input] if wishes.input else _input_candidates(features, others)
    if len(inputs) > 1:
        found = f"{len(inputs)} columns that could be the samples: {shortened(inputs)}"
        raise data_error(where, found, "one", "name it with input=COLUMN")
    if inputs and wishes.kind != "table":
        kind = "image" if _is_image(features[inputs[0]]) else "array"
        return Columns(target, wishes.client, inputs[0], kind)
    if inputs and not _is_value(features[inputs[0]]):
        return Columns(target, wishes.client, inputs[0], "array")
    if not others:
        found = f"no column besides {shortened([target, *wishes.drop])}"
        raise data_error(where, found, "the samples", "name other columns")
    return Columns(target, wishes.client, None, "table", tuple(inputs or others))


def _default_target(features: Any, where: str) -> str:
    by_lower_case = {name.lower(): name for name in features}
    for candidate in TARGETS:
        if candidate in by_lower_case:
            return str(by_lower_case[candidate])
    labels = [name for name, feature in features.items() if _class_names(feature)]
    if len(labels) == 1:
        return str(labels[0])
    found = f"the columns {shortened(features)}"
    raise data_error(where, found, "one with the labels", "name it with target=COLUMN")


def _input_candidates(features: Any, names: list[str]) -> list[str]:
    """The columns of images, else those of arrays."""
    images = [name for name in names if _is_image(features[name])]
    return images or [name for name in names if _is_array(features[name])]


def _is_image(feature: Any) -> bool:
    return type(feature).__name__ == "Image"


def _is_array(feature: Any) -> bool:
    """Whether it is a list, nested or not, or an array of numbers."""
    name = type(feature).__name__
    if name in ("Array2D", "Array3D", "Array4D", "Array5D"):
        return True
    inner = getattr(feature, "feature", None)
    return name in ("List", "LargeList", "Sequence") and (_is_array(inner) or _is_number(inner))


def _is_number(feature: Any) -> bool:
    return type(feature).__name__ == "Value" and feature.dtype.startswith(NUMBERS)


def _is_value(feature: Any) -> bool:
    return type(feature).__name__ in ("Value", "ClassLabel")


def _class_names(feature: Any) -> tuple[str, ...]:
    names = feature.names if type(feature).__name__ == "ClassLabel" else ()
    return tuple(str(name) for name in names)


def samples_from(data: Any, chosen: Columns, wishes: Wishes, where: str) -> Samples:
    """The samples of one split."""
    if not len(data):
        raise data_error(where, "no rows", "at least one sample", "check how it was made")
    if wishes.task == "classification":
        labels, classes = _labels(data, chosen.target, where)
    else:
        place = f"{where}, column '{chosen.target}'"
        labels = targets_of(wishes.task, target_array(column(data, chosen.target), place), place)
        classes = (chosen.target,) if labels.ndim == 1 else ()
    users = None if chosen.client is None else _users(data, chosen.client, where)
    x: np.ndarray | Frame
    if chosen.kind == "table":
        x = {name: _table_column(data, name, wishes, where) for name in chosen.features}
    else:
        assert chosen.input is not None
        read = _images if chosen.kind == "image" else _arrays
        x = read(data, chosen.input, wishes, f"{where}, column '{chosen.input}'")
    kind = None if isinstance(x, dict) else STORED_AS[x.ndim]
    return Samples(x, labels, users, where, classes, kind)


def column(data: Any, name: str) -> list[Any]:
    """The values of one column, without reading the others."""
    values: list[Any] = data.select_columns([name]).with_format(None)[name][:]
    return values


def _labels(data: Any, target: str, where: str) -> tuple[np.ndarray, tuple[str, ...]]:
    feature, values = data.features[target], column(data, target)
    place = f"{where}, column '{target}'"
    classes = _class_names(feature)
    missing = [i for i, v in enumerate(values) if v is None or (classes and v == -1)]
    if missing:
        found = f"{len(missing)} samples without a label (the first is row {missing[0]})"
        remedy = "use a split with labels (test=SPLIT, or test=hold-out)"
        raise data_error(place, found, "one per sample", remedy)
    if not _is_value(feature) or feature.dtype.startswith(("float", "double")):
        remedy = FOR_NUMBERS if _is_value(feature) else FOR_COLUMNS
        raise data_error(place, f"values of type {feature}", "classes", remedy)
    return np.array(values), classes


def _users(data: Any, client: str, where: str) -> np.ndarray:
    values = column(data, client)
    if None in values:
        found = f"{values.count(None)} rows without a client in column '{client}'"
        raise data_error(where, found, "one in each row", "fill them in")
    if not _is_value(data.features[client]):
        found = f"column '{client}' of type {data.features[client]}"
        raise data_error(where, found, "numbers or names of clients", "name another column")
    names = _class_names(data.features[client])
    return np.array([names[value] if names else str(value) for value in values], dtype=str)


def _images(data: Any, name: str, wishes: Wishes, where: str) -> np.ndarray:
    """The images of a column as uint8 (N,C,H,W); their bytes are decoded here."""
    encoded = data.features[name]
    cells = column(data.cast_column(name, type(encoded)(decode=False)), name)
    files = [_image_file(cell, row, where) for row, cell in enumerate(cells)]
    return load_images(files, 1 if all_grey(files) else 3, wishes.size)


def _image_file(cell: Any, row: int, where: str) -> ImageFile:
    if cell and cell.get("bytes"):
        return EncodedImage(cell["bytes"], where, row)
    path = (cell or {}).get("path")
    if path and "://" not in path and Path(path).is_file():
        return Path(path)
    found = f"no image in row {row}" if not path else f"'{path}' instead of an image in row {row}"
    raise data_error(where, found, "the image itself, or a file here", "leave the row out")


def _arrays(data: Any, name: str, wishes: Wishes, where: str) -> np.ndarray:
    """Arrays of one shape; a list of numbers is a signal of one channel unless kind= says else."""
    if not _is_array(data.features[name]):
        found = f"values of type {data.features[name]}"
        raise data_error(where, found, "images, lists or arrays of numbers", "name another column")
    try:
        x = np.array(column(data, name))
    except ValueError:
        remedy = "cut or pad them to one length"
        raise data_error(where, "lists of several lengths", "one length", remedy) from None
    if x.dtype.kind == "O":
        raise data_error(where, "missing values", "numbers", "fill them in, or leave the rows out")
    dtype = _byte_type(data.features[name])
    x = x if dtype is None else x.astype(dtype)
    kind: Any = wishes.kind or ("signal" if x.ndim == 2 else kind_of(x, where))
    return as_kind(x, kind, wishes.channels, where)


def _byte_type(feature: Any) -> type[np.uint8] | None:
    """uint8 if that is what the column holds: a list of Python numbers does not tell."""
    while (inner := getattr(feature, "feature", None)) is not None:
        feature = inner
    return np.uint8 if getattr(feature, "dtype", "") == "uint8" else None


def _table_column(data: Any, name: str, wishes: Wishes, where: str) -> np.ndarray:
    feature, place = data.features[name], f"{where}, column '{name}'"
    values = column(data, name)
    if names := _class_names(feature):
        return np.array(["" if v is None else names[v] for v in values], dtype=str)
    if _is_number(feature):
        return np.array([np.nan if v is None else v for v in values], dtype=np.float64)
    remedy = wishes.remedy_drop.format(name)
    if type(feature).__name__ != "Value" or "string" not in feature.dtype:
        raise data_error(place, f"values of type {feature}", "numbers or text", remedy)
    texts = ["" if value is None else value for value in values]
    if _is_free_text(texts):
        raise data_error(place, "free text", "categories", f"{NO_TEXT_CLASSES}: {remedy}")
    return np.array(texts, dtype=str)


def _is_free_text(texts: list[str]) -> bool:
    is_long = sum(map(len, texts)) > MEAN_LENGTH_OF_TEXT * len(texts)
    return is_long and 2 * len(set(texts)) > len(texts)


def is_huggingface(value: object) -> bool:
    """Whether it is a Dataset or DatasetDict of the library `datasets`, which is not imported."""
    return any(base.__module__.split(".")[0] == "datasets" for base in type(value).__mro__)


def splits_of(data: Any, where: str) -> dict[str, Any]:
    """The splits of a DatasetDict, or a single Dataset as the split "train"."""
    if "Iterable" in type(data).__name__:
        found, remedy = "a streamed data set", "load it without streaming=True"
        raise data_error(where, found, "a Dataset or DatasetDict", remedy)
    return dict(data) if isinstance(data, dict) else {"train": data}
