"""A site's own data: read by the package's readers, described without rows, encoded as agreed.

Every user of the data (every file, if a folder has one per client) is a client; data without users
are one client named like the site. The test split is the one that `fedloom data add` would make of
the site's files alone: a site knows nothing of the others' samples.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from fedloom.core.errors import UserError
from fedloom.data.dataset import Dataset, Kind
from fedloom.data.sources import read_unscaled
from fedloom.data.sources.array_kinds import to_float32
from fedloom.data.sources.build import build_dataset, natural_order, raw_split
from fedloom.data.sources.columns import is_categorical
from fedloom.data.sources.errors import data_error, shortened
from fedloom.data.sources.frames import Frame, as_text, is_missing
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
from fedloom.deploy.terms import Agreement

FEW = 2  # categories that never identify anybody


@dataclass(frozen=True)
class Shared:
    """What a site tells the server about its data besides names, sizes and checksums.

    statistics: counts, sums and sums of squares, and the names of categories. class_counts: how
    many training samples of each class every client has.
    """

    statistics: bool = True
    class_counts: bool = False


@dataclass(frozen=True)
class Source:
    """Where a site's data are, and the options of their reader."""

    path: Path
    format: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SiteData:
    """The samples of a site as its files hold them.

    users: the client of each sample. clients: their names, in natural order; those of users who
    have test samples only are not among them.
    """

    site: str
    samples: Unscaled
    users: np.ndarray
    clients: tuple[str, ...]

    def rows(self, client: str, test: bool) -> np.ndarray:
        """The positions of a client's training or test samples."""
        return np.flatnonzero((self.users == client) & (self.samples.test == test))

    @property
    def frame(self) -> Frame:
        """The columns of a table."""
        assert isinstance(self.samples.x, dict)
        return self.samples.x

    @property
    def train(self) -> np.ndarray:
        """The mask of the training rows."""
        return ~self.samples.test


def read_site(site: str, source: Source) -> SiteData:
    """Read the data of a site."""
    samples = read_unscaled(source.path, source.format, **source.options)
    users = np.full(len(samples.y), site) if samples.users is None else samples.users
    names = sorted(np.unique(users[~samples.test]).tolist(), key=natural_order)
    return SiteData(site, samples, users, tuple(names))


# ------------------------------------------------------------------ what the server is told


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
    _check_finite(data.site, name, column)
    return ColumnReport(name, holds, missing, moments=of_numbers(train))


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


def _check_finite(site: str, name: str, column: np.ndarray) -> None:
    if np.isinf(to_float32(column)).any():
        remedy = f"repair it, or leave it out with the reader's option drop='{name}'"
        where = f"site '{site}', column '{name}'"
        raise data_error(where, "infinity", "finite float32 numbers", remedy)


def _channels(data: SiteData) -> tuple[Moments, ...]:
    x = cast(np.ndarray, data.samples.x)
    of = of_bytes if x.dtype == np.uint8 else of_numbers
    # channel by channel: a copy of the training rows of all would double the memory
    return tuple(of(x[data.train, channel].ravel()) for channel in range(x.shape[1]))


# ------------------------------------------------------------------ what was agreed


def check_agreement(data: SiteData, agreement: Agreement) -> None:
    """Raise if the agreement is not about the data that the site has now."""
    ours = {client.name: client for client in report(data, Shared(statistics=False)).clients}
    agreed = {client.name: client for client in agreement.clients_of(data.site).values()}
    if list(ours) != list(agreed):
        raise UserError(
            f"site '{data.site}': its clients are {shortened(ours)}, and {shortened(agreed)} were "
            "agreed on; put the earlier data back, or start a new run"
        )
    for name, client in ours.items():
        for what, unit in (("train", "training samples"), ("test", "test samples")):
            now, then = getattr(client, what), getattr(agreed[name], what)
            if now != then:
                raise _changed(data.site, name, f"it has {now} {unit} now, and had {then}")
        if client.checksum != agreed[name].checksum:
            now, then = client.checksum[:12], agreed[name].checksum[:12]
            raise _changed(data.site, name, f"their checksum is {now} now, and was {then}")


def _changed(site: str, client: str, what: str) -> UserError:
    return UserError(
        f"site '{site}': the data of client '{client}' have changed since the agreement: {what}; "
        "put the earlier data back, or start a new run"
    )


def encoded(data: SiteData, agreement: Agreement) -> Dataset:
    """The site's samples as the model gets them; their users are the clients of the site.

    The tensors are those of a reader that has the files of all sites and uses these constants.
    """
    check_agreement(data, agreement)
    x = _inputs(data, agreement) if agreement.columns else cast(np.ndarray, data.samples.x)
    if tuple(x.shape[1:]) != agreement.shape or str(x.dtype) != agreement.dtype:
        raise UserError(
            f"site '{data.site}': its samples are {x.dtype} of shape {tuple(x.shape[1:])}, and "
            f"{agreement.dtype} of shape {agreement.shape} were agreed on; start a new run"
        )
    y = _labels(data, agreement.classes)
    is_client = np.isin(data.users, data.clients)
    train, test = (
        raw_split(x[rows], y[rows], data.site, data.users[rows])
        for rows in (is_client & data.train, is_client & data.samples.test)
    )
    kind, constants = cast(Kind, agreement.kind), (agreement.mean, agreement.std)
    about = dict(data.samples.about)
    return build_dataset(data.site, kind, train, test, about, agreement.classes, constants)


def _labels(data: SiteData, classes: tuple[str, ...]) -> np.ndarray:
    names = data.samples.classes
    if unknown := [name for name in names if name not in classes]:
        raise UserError(
            f"site '{data.site}': it has the class '{unknown[0]}', and the classes agreed on are "
            f"{shortened(classes)}; correct the labels, or start a new run"
        )
    return np.array([classes.index(name) for name in names], dtype=np.int64)[data.samples.y]


def _inputs(data: SiteData, agreement: Agreement) -> np.ndarray:
    """The columns of a table as inputs of the model, float32."""
    inputs: list[np.ndarray] = []
    for plan in agreement.columns:
        if plan.name not in data.frame:
            raise UserError(
                f"site '{data.site}': it has no column '{plan.name}', which was agreed on; "
                f"its columns are {shortened(data.frame)}"
            )
        column = data.frame[plan.name]
        if plan.levels is not None:
            _check_categories(data, plan.name, plan.levels)
        elif column.dtype.kind != "f":
            raise UserError(
                f"site '{data.site}': column '{plan.name}' holds categories, and numbers were "
                "agreed on; put the earlier data back, or start a new run"
            )
        inputs += plan.encode(column)
    return to_float32(np.stack(inputs, axis=1))


def _check_categories(data: SiteData, name: str, levels: tuple[str, ...]) -> None:
    """Refuse a category of the training rows that was not agreed on.

    One that only test rows have is encoded as none of them, as by a reader.
    """
    train = np.unique(as_text(data.frame[name][data.train])).tolist()
    if unknown := [level for level in train if level and level not in levels]:
        raise UserError(
            f"site '{data.site}': column '{name}' has the category '{unknown[0]}', and those "
            f"agreed on are {shortened(levels)}; correct the column, or start a new run"
        )
