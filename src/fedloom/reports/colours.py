"""The colour of a method: the same in every picture and on every page.

The colours are those of Okabe and Ito, which people with any colour vision can tell apart, without
the yellow, which is too faint for lines, and with a brown and a grey. FedAvg has blue to itself.
Every other method has a favourite colour that depends on its name alone. If a method shown with it
wants the same one, it takes the next that is free; names are served in alphabetical order, so the
order of the rows does not matter.

FedAvg is drawn last and dashed: no curve hides it, and a curve that coincides with it shows in the
gaps. Several rows of one method have its colour and different dashes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

BASELINE = "fedavg"
# of the baseline, then of the others; for light and for dark backgrounds
PALETTE = (
    ("#0072B2", "#4CA6E8"),
    ("#D55E00", "#F0803C"),
    ("#009E73", "#2FC79B"),
    ("#CC79A7", "#DE93BC"),
    ("#E69F00", "#F0B429"),
    ("#56B4E9", "#8ACDF4"),
    ("#000000", "#F2F2F2"),
    ("#8C564B", "#BE8A7E"),
    ("#7F7F7F", "#A6A6A6"),
)
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 2.5), (2, 2), (8, 2, 2, 2))
# Chosen so that methods that are often compared with each other have different favourites.
_SALT = "135717"


@dataclass(frozen=True)
class Style:
    """How a row is drawn: the number of a colour of PALETTE and of a pattern of DASHES."""

    colour: int
    dash: int
    on_top: bool = False

    @property
    def light(self) -> str:
        """The colour on a light background."""
        return PALETTE[self.colour][0]

    @property
    def dashes(self) -> tuple[float, ...]:
        """Lengths of dashes and gaps, in widths of the line; empty for a solid line."""
        return DASHES[self.dash % len(DASHES)]


def styles(methods: Sequence[str]) -> list[Style]:
    """The style of each row, given the methods of all rows, which may repeat.

    >>> [style.light for style in styles(["fedprox(mu=1)", "fedavg"])]
    ['#D55E00', '#0072B2']
    """
    colours = _colours(methods)
    used: Counter[int] = Counter()
    found = []
    for method in methods:
        is_baseline, colour = method == BASELINE, colours[method]
        found.append(Style(colour, used[colour] + is_baseline, is_baseline))
        used[colour] += 1
    return found


def drawing_order(row_styles: Iterable[Style]) -> list[int]:
    """The numbers of the rows from the first drawn to the topmost."""
    every = list(row_styles)
    return sorted(range(len(every)), key=lambda number: every[number].on_top)


def _colours(methods: Iterable[str]) -> dict[str, int]:
    """The number of each method's colour; colours repeat only when all are taken."""
    taken: Counter[int] = Counter()
    found = {BASELINE: 0}
    for method in sorted(set(methods) - {BASELINE}):
        favourite = _favourite(method)
        others = [1 + (favourite + step) % (len(PALETTE) - 1) for step in range(len(PALETTE) - 1)]
        found[method] = min(others, key=lambda colour: taken[colour])  # the first of the least used
        taken[found[method]] += 1
    return found


def _favourite(method: str) -> int:
    """From 0; by the name without its arguments, so that mu=0.1 and mu=1 begin alike."""
    name = method.partition("(")[0]
    digest = hashlib.sha256(f"{_SALT} {name}".encode(errors="backslashreplace")).digest()
    return digest[0] % (len(PALETTE) - 1)
