"""The score of a task: the number that tables, curves and targets are about; higher is better.

Records call it `accuracy` for every task. This module does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Score:
    """How the score of a task is named and written.

    name      in tables and on axes
    metric    the same as the name of a metric
    clients   which score of clients goes with it, by its name in `ClientScores`
    is_share  whether it is a share, written in percent
    """

    name: str
    metric: str
    clients: str
    is_share: bool = True

    @property
    def title(self) -> str:
        """The name at the beginning of a title."""
        return self.name[:1].upper() + self.name[1:]

    @property
    def unit(self) -> str:
        """What follows a number, or the name in a heading."""
        return " %" if self.is_share else ""

    @property
    def axis(self) -> str:
        """What an axis counts whose title has the name already."""
        return "%" if self.is_share else self.name

    @property
    def scale(self) -> float:
        """From the stored number to the one that is written."""
        return 100.0 if self.is_share else 1.0

    @property
    def points(self) -> str:
        """What a difference is counted in."""
        return "points" if self.is_share else self.name

    def text(self, value: float | None, digits: int = 2) -> str:
        """A value without its unit, with as many digits as a percentage has; "-" for none.

        >>> [SCORES[task].text(0.5, 1) for task in ("classification", "regression")]
        ['50.0', '0.500']
        """
        if value is None:
            return "-"
        return f"{self.scale * value:.{self.digits(digits)}f}"

    def digits(self, of_percentage: int) -> int:
        """Digits after the point, given those of a percentage."""
        return of_percentage if self.is_share else of_percentage + 2


SCORES: Mapping[str, Score] = MappingProxyType(
    {
        "classification": Score("accuracy", "accuracy", "mean_class_recall"),
        "multilabel": Score("label accuracy", "label_accuracy", "label_accuracy"),
        "regression": Score("R2", "r2", "r2", is_share=False),
        "next-token": Score("token accuracy", "token_accuracy", "token_accuracy"),
    }
)
ACCURACY = SCORES["classification"]
