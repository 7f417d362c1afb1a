"""Settings of the data: which, how much of them, and how they are split among clients."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fedloom.core.signature import MAX_COUNT
from fedloom.core.spec import Spec
from fedloom.settings.fields import Settings, SpecField


class DataSettings(Settings):
    """What the clients hold."""

    name: str = Field("fashion-mnist", description="a data set; see: fedloom data list")
    classes: int | None = Field(
        None, ge=2, le=MAX_COUNT, description="keep only this many classes, the first ones"
    )
    per_class: int | None = Field(
        None,
        ge=1,
        le=MAX_COUNT,
        description="keep only this many training samples per class, the first ones",
    )
    pixels: int | None = Field(
        None,
        ge=1,
        le=MAX_COUNT,
        description="shrink images to this many pixels per side, by averaging",
    )
    mean: tuple[Annotated[float, Field(strict=True)], ...] | None = Field(
        None,
        description="normalisation mean per channel, of pixels in [0, 1] and of signals in their "
        "own units; default: the data set's",
    )
    std: tuple[Annotated[float, Field(gt=0, strict=True)], ...] | None = Field(
        None, description="normalisation standard deviations; set mean and std together"
    )
    standardise: bool = Field(
        True,
        description="regression: train on targets of mean 0 and deviation 1; predictions and "
        "metrics are in the units of the data",
    )
    clients: int = Field(
        20, ge=0, le=MAX_COUNT, description="number of clients; 0: one per user of the data"
    )
    partition: SpecField = Field(
        Spec("dirichlet", {"alpha": 0.3}), description="how training data are split among clients"
    )
    longtail: float = Field(
        1.0,
        ge=1,
        le=MAX_COUNT,
        description="imbalance factor of a long-tailed training set; 1 keeps it as it is",
    )
    augment: tuple[SpecField, ...] = Field((), description="augmentations, in order")
    validation: float = Field(
        0.0,
        ge=0,
        le=0.9,
        description="hold out this share of every client's training samples and evaluate on them "
        "instead of the test data, which is then not used; 0: evaluate on the test data",
    )
