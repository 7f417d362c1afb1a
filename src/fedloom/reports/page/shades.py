"""The shades of the partition's cells, as classes s1, s2 ... of the style sheet."""

from __future__ import annotations

from fedloom.data.partition_plot import RAMP


def shades() -> str:
    """Darker is more on light paper, lighter is more on dark paper."""
    light = "".join(f".s{n}{{fill:{colour}}}" for n, colour in enumerate(RAMP))
    dark = "".join(f".s{n}{{fill:{colour}}}" for n, colour in enumerate(reversed(RAMP)))
    return f"{light}@media screen and (prefers-color-scheme:dark){{{dark}}}\n"
