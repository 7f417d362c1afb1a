"""Settings of evaluation: how often, on which samples, and with which metrics."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from fedloom.core.signature import MAX_COUNT
from fedloom.settings.fields import Settings


class EvaluateSettings(Settings):
    """When and how models are evaluated."""

    every: int = Field(
        1,
        ge=1,
        le=MAX_COUNT,
        description="rounds between two evaluations; the last round is always evaluated",
    )
    batch: int = Field(
        100,
        ge=1,
        le=MAX_COUNT,
        description="samples per evaluation batch; one that fits the CPU cache is fastest",
    )
    target: float | None = Field(
        None, gt=0, lt=1, description="report the first round that reaches this accuracy, or R2"
    )
    on: Literal["test", "own"] = Field(
        "test",
        description="models are scored on the test split; own: each client's on its own part of "
        "it, which needs data whose users are the clients",
    )
    metrics: tuple[str, ...] | None = Field(
        None,
        description="metrics besides the score, as names or file.py:function; default: none for "
        "classification, all of the task otherwise",
    )
    personal: bool = Field(
        True, description="at the end, score every client's own model if the method has them"
    )
    personal_every: int = Field(
        0,
        ge=0,
        le=MAX_COUNT,
        description="rounds between two scorings of the clients' own models; 0: only at the end",
    )

    @model_validator(mode="after")
    def _fits(self) -> EvaluateSettings:
        if self.personal_every and not self.personal:
            raise ValueError(
                f"personal_every={self.personal_every} needs personal=true; "
                "set evaluate.personal=true"
            )
        return self
