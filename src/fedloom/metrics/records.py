"""What is recorded of a run, as typed records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Own = Mapping[str, Any]
SPREAD = {"mean": 0.0, "std": 0.0, "worst_tenth": 0.0}
BLANK: Own = {
    "recall": SPREAD,
    "weighted": SPREAD,
    "groups": dict.fromkeys(("head", "middle", "tail"), 0.0),
}
