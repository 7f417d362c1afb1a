"""A site's samples as the model gets them, encoded with what all sites have agreed on."""

from __future__ import annotations

from typing import cast

import numpy as np

from fedloom.core.errors import UserError
from fedloom.data.dataset import Dataset, Kind
from fedloom.data.sources.array_kinds import to_float32
from fedloom.data.sources.build import build_dataset, raw_split
from fedloom.data.sources.errors import shortened
from fedloom.data.sources.frames import as_text
from fedloom.deploy.site.data import SiteData
from fedloom.deploy.site.describe import Shared, report
from fedloom.deploy.terms import Agreement


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
    positions = np.array([classes.index(name) for name in names], dtype=np.int64)
    labels: np.ndarray = positions[data.samples.y]
    return labels


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
