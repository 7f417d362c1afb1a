"""Settings of the guard: what a reply of a client must be, and how many of them a round needs."""

from __future__ import annotations

from pydantic import Field

from fedloom.core.signature import MAX_COUNT
from fedloom.settings.fields import Settings


class GuardSettings(Settings):
    """Which replies of clients are accepted, and what happens without enough of them."""

    min_replies: int = Field(
        1,
        ge=1,
        le=MAX_COUNT,
        description="valid replies that a round needs; with fewer, it is skipped",
    )
    max_skipped: int = Field(
        5,
        ge=0,
        le=MAX_COUNT,
        description="rounds in a row that may be skipped before the run stops",
    )
    max_norm: float = Field(
        1e4,
        gt=0,
        description="largest norm of an update and of the model, in units of the initial weights'",
    )
    timeout: float = Field(3600, gt=0, description="seconds that a client may take")
    strict: bool = Field(False, description="stop the run at the first reply that is not valid")
