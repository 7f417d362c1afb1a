"""What a site tells the server about its data: no row of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np

from fedloom.data.sources.array_kinds import to_float32
from fedloom.data.sources.columns import is_categorical
from fedloom.data.sources.errors import data_error
from fedloom.data.sources.frames import as_text, is_missing
from fedloom.data.sources.unscaled import Unscaled
from fedloom.deploy.moments import Moments, of_bytes, of_numbers
from fedloom.deploy.report import (
    CATEGORIES,
    EMPTY,
    NUMBERS,
    ClientReport,
    ColumnReport,
    SiteReport,
    this_software,
)
from fedloom.deploy.site.data import SiteData

FEW = 2  # categories that never identify anybody
MIN_VALUES = 5  # of which a sum may be sent: from one or two, the sums give the values themselves


@dataclass(frozen=True)
class Shared:
    """What a site tells the server about its data besides names, sizes and checksums.

    statistics: counts, sums and sums of squares, and the names of categories. class_counts: how
    many training samples of each class every client has.
    """

    statistics: bool = True
    class_counts: bool = False


def report(data: SiteData, shared: Shared = Shared()) -> SiteReport:  # noqa: B008 (frozen)
    """What the site says of its data."""
    samples, is_table = data.samples, isinstance(data.samples.x, dict)
    columns: tuple[ColumnReport, ...] = ()
    channels = None
    if is_table:
        columns = tuple(_column(data, name, shared.statistics) for name in data.frame)
    elif shared.statistics and samples.kind != "text":
        channels = _channels(data)
    return SiteReport(
        data.site,
        this_software(),
        samples.kind,
        (len(data.frame),) if is_table else tuple(cast(np.ndarray, samples.x).shape[1:]),
        "float32" if is_table else str(cast(np.ndarray, samples.x).dtype),
        samples.classes,
        samples.numbered,
        tuple(_client(data, name, shared.class_counts) for name in data.clients),
        columns,
        channels,
    )


def _client(data: SiteData, name: str, with_counts: bool) -> ClientReport:
    train, test = data.rows(name, test=False), data.rows(name, test=True)
    counts = None
    if with_counts:
        labels = data.samples.y[train]
        counts = tuple(np.bincount(labels, minlength=len(data.samples.classes)).tolist())
    return ClientReport(name, len(train), len(test), client_checksum(data, name), counts)


def client_checksum(data: SiteData, name: str) -> str:
    """The sha256 of a client's samples and class names, as its files hold them."""
    digest = hashlib.sha256()
    classes = np.array(data.samples.classes)[data.samples.y]
    for test in (False, True):
        rows = data.rows(name, test)
        digest.update(_text(["test" if test else "train", str(len(rows)), *classes[rows]]))
        for label, values in _arrays(data.samples):
            digest.update(_text([label, values.dtype.kind, *map(str, values.shape[1:])]))
            taken = values[rows]
            is_text = taken.dtype.kind == "U"
            digest.update(_text(taken.tolist()) if is_text else np.ascontiguousarray(taken).data)
    return digest.hexdigest()


def _arrays(samples: Unscaled) -> Iterator[tuple[str, np.ndarray]]:
    yield from samples.x.items() if isinstance(samples.x, dict) else [("samples", samples.x)]


def _text(words: list[str]) -> bytes:
    """Words as bytes; the length of each keeps two lists from giving the same bytes."""
    return "".join(f"{len(word)}:{word}" for word in words).encode()


def _column(data: SiteData, name: str, with_statistics: bool) -> ColumnReport:
    column, train = data.frame[name], data.frame[name][data.train]
    missing = int(is_missing(column).sum())
    holds = CATEGORIES if is_categorical(name, data.frame, data.samples.categorical) else NUMBERS
    if missing == len(column):
        holds = EMPTY
    if not with_statistics or holds == EMPTY:
        return ColumnReport(name, holds, missing)
    if holds == CATEGORIES:
        return ColumnReport(name, holds, missing, _categories(data, name))
    where = f"site '{data.site}', column '{name}'"
    _check_finite(where, name, column)
    moments = of_numbers(train)
    _check_enough(where, moments.count)
    return ColumnReport(name, holds, missing, moments=moments)


def _categories(data: SiteData, name: str) -> tuple[str, ...]:
    """The categories of the training rows.

    Raises for a column in which most rows have a value of their own, such as a name: to list its
    values would be to send the column.
    """
    train = as_text(data.frame[name][data.train])
    levels = np.unique(train[train != ""])
    if len(levels) > FEW and 2 * len(levels) > len(train):
        found = f"{len(levels)} different values in {len(train)} training rows"
        expected = "a category, whose values may be sent to the server"
        remedy = f"leave the column out with the reader's option drop='{name}'"
        raise data_error(f"site '{data.site}', column '{name}'", found, expected, remedy)
    return tuple(levels.tolist())


def _check_finite(where: str, name: str, column: np.ndarray) -> None:
    if np.isinf(to_float32(column)).any():
        remedy = f"repair it, or leave it out with the reader's option drop='{name}'"
        raise data_error(where, "infinity", "finite float32 numbers", remedy)


def _check_enough(where: str, count: int) -> None:
    """Raise if sums would give away the values."""
    if count < MIN_VALUES:
        found = f"{count} values in the training rows"
        expected = f"at least {MIN_VALUES}, so that their sums do not give them away"
        remedy = "set share.statistics=false in site.toml, and give the constants at the server"
        raise data_error(where, found, expected, remedy)


def _channels(data: SiteData) -> tuple[Moments, ...]:
    x = cast(np.ndarray, data.samples.x)
    _check_enough(f"site '{data.site}'", int(data.train.sum()))
    of = of_bytes if x.dtype == np.uint8 else of_numbers
    # channel by channel: a copy of the training rows of all would double the memory
    return tuple(of(x[data.train, channel].ravel()) for channel in range(x.shape[1]))
