"""The settings of local training: optimiser, learning rate, batches, and what does not fit.

This module does not import torch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from fedloom.core.signature import MAX_COUNT
from fedloom.settings.fields import Settings

# Settings that only some optimisers have.
OF_SGD = ("momentum", "nesterov")
OF_ADAM = ("betas", "eps", "amsgrad")
# Defaults that differ from those of sgd; all are those of torch.optim.
OPTIMISER_DEFAULTS: Mapping[str, Mapping[str, float]] = {
    "adam": {"lr": 1e-3},
    "adamw": {"lr": 1e-3, "weight_decay": 0.01},
}
Beta = Annotated[float, Field(ge=0, lt=1, strict=True)]


class ScheduleSettings(Settings):
    """The learning rate over the rounds."""

    kind: Literal["constant", "exponential", "step", "cosine"] = Field(
        "constant", description="shape of the schedule"
    )
    factor: float = Field(
        1.0, gt=0, description="exponential: factor per round; step: factor every `every` rounds"
    )
    every: int = Field(1, ge=1, le=MAX_COUNT, description="rounds between two steps")


class TrainSettings(Settings):
    """Local training at a client."""

    lr: float = Field(0.05, gt=0, description="learning rate; with adam and adamw: default 0.001")
    batch: int = Field(32, ge=1, le=MAX_COUNT, description="samples per batch")
    epochs: int = Field(1, ge=1, le=MAX_COUNT, description="local epochs per round")
    steps: int | None = Field(
        None, ge=1, le=MAX_COUNT, description="local steps per round, instead of epochs"
    )
    optimiser: Literal["sgd", "adam", "adamw"] = Field(
        "sgd", description="rule of a local step, as in torch.optim"
    )
    momentum: float = Field(0.0, ge=0, lt=1, description="sgd: momentum; 0 is plain SGD")
    nesterov: bool = Field(False, description="sgd: Nesterov's momentum")
    betas: tuple[Beta, Beta] = Field(
        (0.9, 0.999), description="adam, adamw: two decay rates, of the means of g and of g^2"
    )
    eps: float = Field(1e-8, gt=0, description="adam, adamw: added to the root of the mean of g^2")
    amsgrad: bool = Field(
        False, description="adam, adamw: divide by the largest mean of g^2 so far (AMSGrad)"
    )
    weight_decay: float = Field(
        0.0, ge=0, description="weight decay; with adamw decoupled, and 0.01 by default"
    )
    decay_norms: bool = Field(
        True, description="weight decay also on norms and biases; false: on neither"
    )
    sam: float = Field(
        0.0,
        ge=0,
        description="rho of sharpness-aware minimisation (SAM), which takes two gradients per "
        "step; 0 is off",
    )
    clip: float | None = Field(None, gt=0, description="bound on the norm of the whole gradient")
    drop_last: bool = Field(False, description="drop the last, partial batch of an epoch")
    reset: bool = Field(
        True,
        description="restart the optimiser (momentum, Adam's means) every round; "
        "false: each client keeps its state",
    )
    schedule: ScheduleSettings = Field(
        ScheduleSettings(), description="learning rate over the rounds"
    )

    @model_validator(mode="before")
    @classmethod
    def _with_defaults_of_the_optimiser(cls, given: Any) -> Any:
        """Adam and AdamW with torch's defaults where nothing is given; those above are of SGD."""
        if not isinstance(given, Mapping) or not isinstance(given.get("optimiser"), str):
            return given
        return {**OPTIMISER_DEFAULTS.get(given["optimiser"], {}), **given}

    @model_validator(mode="after")
    def _fits(self) -> TrainSettings:
        if problems := list(optimiser_problems(self)):
            raise ValueError("; and ".join(problems))
        return self


def optimiser_problems(train: TrainSettings) -> Iterator[str]:
    """Settings of the optimiser that would have no effect, each with a remedy."""
    if train.optimiser == "sgd":
        for name in given(train, OF_ADAM):
            yield (
                f"{assignment(train, name)} is for adam and adamw, not for optimiser=sgd; "
                f"leave out train.{name}, or set train.optimiser=adam"
            )
        if train.nesterov and not train.momentum:
            yield "nesterov=true needs momentum above 0; set train.momentum=0.9"
        if not train.reset and not train.momentum:
            yield (
                "reset=false keeps the momentum of each client, and sgd has none with momentum=0; "
                "leave out train.reset, or set train.momentum=0.9"
            )
    else:
        for name in given(train, OF_SGD):
            yield (
                f"{assignment(train, name)} is for sgd, not for optimiser={train.optimiser}, "
                f"whose momentum is the first of train.betas; leave out train.{name}"
            )
    if not train.decay_norms and not train.weight_decay:
        yield "decay_norms=false needs weight_decay above 0; set train.weight_decay=0.01"


def given(table: Settings, names: Sequence[str]) -> list[str]:
    """Those of the settings that do not have their default."""
    return [n for n in names if getattr(table, n) != type(table).model_fields[n].default]


def assignment(table: Settings, name: str) -> str:
    """A setting with its value, as on the command line."""
    value = getattr(table, name)
    return f"{name}={value if isinstance(value, str) else json.dumps(value)}"
