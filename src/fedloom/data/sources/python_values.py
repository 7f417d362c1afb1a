"""Reading Python values: pairs (X, y), torch Datasets, DataFrames and HuggingFace Datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset as TorchDataset

from fedloom.core.errors import UserError
from fedloom.data.sources.array_kinds import (
    ARRAY_KINDS,
    AXES,
    as_kind,
    check_options,
    finite_float32,
)
from fedloom.data.sources.assemble import Samples
from fedloom.data.sources.client_column import check_ids_repeat
from fedloom.data.sources.dataframe import (
    frame_from_pandas,
    is_dataframe,
    pop_series,
    without_missing,
)
from fedloom.data.sources.errors import data_error, shortened
from fedloom.data.sources.hf_columns import (
    Wishes,
    choose_columns,
    is_huggingface,
    samples_from,
    splits_of,
)
from fedloom.data.sources.hf_open import HOLD_OUT, chosen_splits
from fedloom.data.sources.pixel_arrays import channels_first
from fedloom.data.sources.python_targets import python_targets, token_numbers
from fedloom.data.sources.targets import check_no_measurements
from fedloom.data.sources.torch_dataset import stacked, tensor_to_numpy

FORMS = (
    "(X, y), a torch Dataset, a pandas DataFrame with target=, a HuggingFace Dataset, "
    "or a fedloom Dataset"
)
BYTE_KINDS = {3: "image", 4: "image", 5: "volume"}  # what uint8 arrays are, by their axes
PAIR, TORCH, DATAFRAME = "a pair (X, y)", "a torch Dataset", "a DataFrame"
HUGGINGFACE = "a HuggingFace Dataset"


def reject_options(given: dict[str, bool], reason: str) -> None:
    """Raise if any of the options was given; `reason` says why it cannot be."""
    names = [f"{name}=" for name, is_given in given.items() if is_given]
    if names:
        raise UserError(f"data: {', '.join(names)} cannot be used here, because {reason}")


@dataclass(frozen=True)
class Options:
    """What was said about the data besides passing them; see `as_dataset`."""

    client_ids: Any = None
    target: str | Sequence[str] | None = None
    client: str | None = None
    kind: str | None = None
    channels: str | None = None
    task: str = "classification"

    def given(self, *names: str) -> dict[str, bool]:
        """Which of these options have a value."""
        return {name: getattr(self, name) is not None for name in names}


def read_values(data: Any, test: Any, options: Options) -> tuple[Samples, Samples | None]:
    """The training split, and the test split unless there is none."""
    form = _form(data, "data")
    kinds = (*ARRAY_KINDS, "text") if form in (PAIR, TORCH) else ARRAY_KINDS
    check_options(options.kind, options.channels, kinds)
    if options.channels is not None and options.kind not in AXES:
        raise UserError(
            f"channels={options.channels!r} is for signals and volumes; "
            "set kind='signal' or kind='volume', or leave it out"
        )
    if test is not None and _form(test, "test") != form:
        found, remedy = f"a {type(test).__name__}", "pass both splits in the same form"
        raise data_error("test", found, f"{form} as in data", remedy)
    if options.client is not None:
        reject_options(options.given("client_ids"), "the column client= already names the clients")
    train, held_out = READERS[form](data, test, options)
    if options.task == "classification" and not train.classes:
        check_no_measurements(train.labels, f"{train.where}, y")
    if options.client_ids is not None:
        users = _client_names(options.client_ids, len(train.labels), "client_ids")
        train = replace(train, users=users)
    if train.users is not None:
        where = "client_ids" if options.client is None else f"data, column '{options.client}'"
        check_ids_repeat(train.users, where, train.x if isinstance(train.x, dict) else {})
    return train, held_out


def _read_dataframes(data: Any, test: Any, options: Options) -> tuple[Samples, Samples | None]:
    reason = "a DataFrame is a table; pass (X, y) for signals, images and volumes"
    reject_options(options.given("kind", "channels"), reason)
    train = _from_dataframe(data, options, "data")
    return train, None if test is None else _from_test_dataframe(test, options)


def _read_pairs(data: Any, test: Any, options: Options) -> tuple[Samples, Samples | None]:
    reason = "only a DataFrame or a HuggingFace Dataset has columns; pass (X, y) and client_ids="
    reject_options(options.given("target", "client"), reason)
    train = _from_pairs(data, "data", options)
    return train, None if test is None else _from_pairs(test, "test", options)


def _read_huggingface(data: Any, test: Any, options: Options) -> tuple[Samples, Samples | None]:
    """A Dataset with its test= Dataset, or the splits of a DatasetDict."""
    splits = splits_of(data, "data")
    if test is not None:
        splits = {
            "train": splits[chosen_splits(splits, "train", HOLD_OUT, "data")[0]],
            "test": test,
        }
    names = chosen_splits(splits, "train", "", "data")
    if options.target is not None and not isinstance(options.target, str):
        raise UserError(f"target={options.target!r}: name one column, of numbers or of lists")
    wishes = Wishes(
        options.target,
        options.client,
        kind=options.kind,
        channels=options.channels,
        remedy_drop="leave it out with data.remove_columns('{}')",
        task=options.task,
    )
    wheres = ["data", "test" if test is not None else f"data, split '{names[-1]}'"]
    chosen = choose_columns(splits[names[0]], wishes, "data")
    read = [
        samples_from(splits[name], chosen, wishes, where)
        for name, where in zip(names, wheres, strict=False)
    ]
    return read[0], read[1] if len(read) > 1 else None


def _form(data: Any, where: str) -> str:
    """Which of the accepted forms it is."""
    if is_huggingface(data):
        return HUGGINGFACE
    if is_dataframe(data):
        return DATAFRAME
    if isinstance(data, tuple):
        if len(data) == 2:
            return PAIR
        remedy = "pass data=(X, y) and the test split as test=(X, y)"
        raise data_error(where, f"a tuple of {len(data)}", PAIR, remedy)
    if isinstance(data, (np.ndarray, torch.Tensor, list)):
        found = f"a {type(data).__name__} without labels"
        raise data_error(where, found, FORMS, "pass the pair (X, y)")
    is_indexable = hasattr(data, "__getitem__") and not isinstance(data, (str, bytes, dict))
    if isinstance(data, TorchDataset) or is_indexable:
        return TORCH
    raise data_error(where, repr(data)[:60], FORMS, "pass one of these")


def _from_pairs(data: Any, where: str, options: Options) -> Samples:
    """The samples of (X, y) or of a torch Dataset."""
    x, y = data if isinstance(data, tuple) else stacked(data, f"{where} ({type(data).__name__})")
    features = _features(as_array(x, f"{where}, X"), where, options)
    labels = python_targets(as_array(y, f"{where}, y"), where, options.task)
    if len(labels) != len(features):
        found = f"{len(features)} samples and {len(labels)} labels"
        raise data_error(where, found, "one label per sample", "make X and y match")
    return Samples(features, labels, None, where, kind=options.kind)


def _from_dataframe(data: Any, options: Options, where: str) -> Samples:
    if options.target is None:
        found = f"a DataFrame with the columns {shortened(map(str, data.columns))}"
        raise data_error(where, found, "the name of the label column", "set target=COLUMN")
    columns = _target_columns(options.target)
    series = []
    for column in columns:
        data, values = pop_series(data, column, where)
        series.append(values)
    users, client = None, options.client
    if client is not None:
        data, ids = pop_series(data, client, where)
        users = _client_names(without_missing(ids), len(ids), f"{where}, column '{client}'")
    if not len(series[0]):
        raise data_error(where, "no rows", "at least one sample", "check how it was selected")
    values = np.array([without_missing(column) for column in series], dtype=object)
    place = f"{where}, column {', '.join(repr(str(column)) for column in columns)}"
    labels = python_targets(values[0] if len(columns) == 1 else values.T, place, options.task)
    names = () if options.task == "classification" else tuple(map(str, columns))
    return Samples(frame_from_pandas(data, where), labels, users, where, names)


def _target_columns(target: Any) -> list[Any]:
    """The columns to predict; one may be named by a number, as pandas does without a header."""
    is_list = isinstance(target, Iterable) and not isinstance(target, str)
    columns = list(target) if is_list else [target]
    if not columns:
        raise UserError("target=[] names no column; name the column to predict, or several")
    names = [str(column) for column in columns]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"target= names the column '{twice[0]}' twice; name it once")
    return columns


def _from_test_dataframe(test: Any, options: Options) -> Samples:
    """The test split, which need not have the column of the clients."""
    client = options.client
    has_clients = client is not None and str(client) in map(str, test.columns)
    return _from_dataframe(test, replace(options, client=client if has_clients else None), "test")


def as_array(values: Any, where: str) -> np.ndarray:
    """An array of what a user passed; raises where NumPy would leave something out."""
    if isinstance(values, torch.Tensor):
        return tensor_to_numpy(values, where)
    if np.ma.is_masked(values):  # NumPy would forget the mask and keep what is under it
        masked = np.argwhere(np.ma.getmaskarray(values))
        found = f"{len(masked)} masked values (the first is in sample {masked[0][0]})"
        raise data_error(where, found, "a value everywhere", "fill in or leave out the samples")
    if isinstance(values, (list, tuple)):
        values = [tensor_to_numpy(v, where) if isinstance(v, torch.Tensor) else v for v in values]
    try:
        array = np.asarray(values)
    except (ValueError, TypeError):
        found, remedy = "entries of several shapes or types", "bring them to one shape and type"
        raise data_error(where, found, "a rectangular array", remedy) from None
    if array.dtype.kind == "U" and isinstance(values, list):
        return _with_text(array, values)
    return array


def _with_text(array: np.ndarray, values: list[Any]) -> np.ndarray:
    """The array of a list with text: NumPy would turn a missing value among it into 'nan'."""
    is_text = array.ndim != 1 or all(isinstance(value, str) for value in values)
    return array if is_text else np.array(values, dtype=object)


def _features(x: np.ndarray, where: str, options: Options) -> np.ndarray:
    """uint8 images (N,C,H,W), or a float32 copy of the features in the shape they have.

    With a kind, in the shape of that kind.
    """
    if x.dtype.kind not in "biuf":
        remedy = "encode them as numbers, or pass a pandas DataFrame with target="
        if x.dtype.kind == "O":
            remedy = f"{remedy}; if all are numbers already, pass X.astype('float32')"
        raise data_error(where, f"features of type {x.dtype}", "numbers", remedy)
    if x.size == 0:
        found = f"X of shape {x.shape}"
        raise data_error(where, found, "at least one sample and one feature", "check the selection")
    if x.ndim < 2:
        remedy = "for a single feature use X.reshape(-1, 1)"
        raise data_error(where, f"X of shape {x.shape}", "(samples, features, ...)", remedy)
    return _arranged(x, where, options)


def _arranged(x: np.ndarray, where: str, options: Options) -> np.ndarray:
    """A copy in the form of its kind: later changes of the user's array do not count."""
    kind = options.kind
    if options.task == "next-token" or kind == "text":
        return token_numbers(x, where)
    if kind is None and x.dtype == np.uint8:
        kind = BYTE_KINDS.get(x.ndim)
    if kind == "image" and x.dtype != np.uint8:  # floats reach the model as they are
        x, kind = channels_first(x, where), None
    if kind is None:
        return finite_float32(x, where, "fill in the missing values or leave the samples out")
    return as_kind(x, kind, options.channels, where).copy()


def _client_names(ids: Any, samples: int, where: str) -> np.ndarray:
    """The client ids as text, one per sample."""
    values = as_array(ids, where)
    if values.shape != (samples,):
        found = f"ids of shape {values.shape} for {samples} samples"
        raise data_error(where, found, "one id per sample", "make them match")
    return np.array([_client_name(value, where) for value in values.tolist()], dtype=str)


def _client_name(value: Any, where: str) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, (int, str)):
        found, remedy = f"the id {value!r}", "name a client for each sample"
        raise data_error(where, found, "whole numbers or strings", remedy)
    return str(value)


READERS: dict[str, Callable[[Any, Any, Options], tuple[Samples, Samples | None]]] = {
    DATAFRAME: _read_dataframes,
    HUGGINGFACE: _read_huggingface,
    PAIR: _read_pairs,
    TORCH: _read_pairs,
}
