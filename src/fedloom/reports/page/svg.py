"""Charts as SVG: axes with round numbers, lines, bands, dots and bars.

A chart is as wide as the page lets it be; all lengths are in its own units. Colours are classes of
the style sheet (c0, c1 ...), so that they follow dark and light mode. An element with `data-tip`
shows this text where the pointer is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fedloom.reports.colours import Style
from fedloom.reports.page.html import Html, element, joined

WIDTH, HEIGHT = 560.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 24.0, 10.0, 44.0
MAX_POINTS = 240  # of a line; more cannot be seen at this width
T = TypeVar("T")
Point = tuple[float, float]
Format = Callable[[float], str]


def plain(value: float) -> str:
    """A number as short as possible.

    >>> plain(0.5), plain(20.0), plain(1234567.0)
    ('0.5', '20', '1,234,567')
    """
    return f"{value:,.0f}" if value == round(value) else f"{value:.4g}"


@dataclass(frozen=True)
class Axes:
    """The area of a chart and the values at its edges."""

    x: tuple[float, float]
    y: tuple[float, float]
    height: float = HEIGHT
    left: float = LEFT

    def at(self, x: float, y: float) -> Point:
        """Where a value lies in the drawing."""
        across = (x - self.x[0]) / ((self.x[1] - self.x[0]) or 1.0)
        up = (y - self.y[0]) / ((self.y[1] - self.y[0]) or 1.0)
        low = self.height - BOTTOM
        return self.left + across * (WIDTH - RIGHT - self.left), low - up * (low - TOP)


def ticks(low: float, high: float, wanted: int = 6) -> list[float]:
    """Round numbers between two values, about as many as wanted.

    >>> ticks(0, 97), ticks(1, 10)
    ([0.0, 20.0, 40.0, 60.0, 80.0], [2.0, 4.0, 6.0, 8.0, 10.0])
    """
    span = (high - low) or abs(high) or 1.0
    rough = span / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def bounds(values: Sequence[float], margin: float = 0.04) -> tuple[float, float]:
    """The lowest and highest value with a little space around them."""
    low, high = min(values), max(values)
    space = margin * ((high - low) or abs(high) or 1.0)
    return low - space, high + space


def chart(axes: Axes, title: str, *pieces: object) -> Html:
    """A drawing that is read out as its title."""
    box = f"0 0 {WIDTH:g} {axes.height:g}"
    return element("svg", *pieces, viewBox=box, role="img", aria_label=title)


def frame(
    axes: Axes, x_label: str, y_label: str = "", x_text: Format = plain, y_text: Format = plain
) -> Html:
    """Grid lines, numbers and names of the axes. Without a y_label only x is drawn."""
    low = axes.height - BOTTOM
    lines, words = [], []
    for value in ticks(*axes.x):
        across, _ = axes.at(value, 0)
        lines.append(f"M{across:.1f} {TOP:g}V{low:g}")
        words.append(text(across, low + 17, x_text(value), "middle"))
    for value in ticks(*axes.y) if y_label else ():
        _, up = axes.at(0, value)
        lines.append(f"M{axes.left:g} {up:.1f}H{WIDTH - RIGHT:g}")
        words.append(text(axes.left - 6, up + 4, y_text(value), "end"))
    middle = (axes.left + WIDTH - RIGHT) / 2
    words.append(text(middle, axes.height - 6, x_label, "middle", "label"))
    turned = f"translate(13 {(TOP + low) / 2:g}) rotate(-90)"
    upright = element("text", y_label, transform=turned, text_anchor="middle", class_="label")
    grid = element("path", d="".join(lines), class_="grid")
    return joined([grid, *words, upright if y_label else None])


def text(x: float, y: float, words: object, anchor: str = "start", kind: str | None = None) -> Html:
    """Words at a place."""
    return element("text", words, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, class_=kind)


def line(axes: Axes, points: Sequence[Point], style: Style, under: int = 0) -> Html:
    """A line through the points, in the colour and dashes of its row; one point is a dot.

    under: how many lines lie exactly on it; it is wider, so that it can be seen under them.
    """
    placed = [axes.at(*point) for point in thinned(points)]
    if len(placed) == 1:
        return dot(*placed[0], style)
    dashes = " ".join(f"{2 * length:g}" for length in style.dashes) or None
    return element("path", d=_path(placed), class_=f"line c{style.colour}", stroke_dasharray=dashes)


def band(axes: Axes, edges: Sequence[tuple[float, float, float]], style: Style) -> Html | None:
    """The area between a lower and an upper edge; None without points."""
    kept = thinned(edges)
    lower = [axes.at(x, low) for x, low, _ in kept]
    upper = [axes.at(x, high) for x, _, high in reversed(kept)]
    if not kept:
        return None
    return element("path", d=f"{_path(lower + upper)}Z", class_=f"band c{style.colour}")


def dot(x: float, y: float, style: Style, tip: str | None = None) -> Html:
    """A dot at a place of the drawing; hollow for the second row of a colour."""
    kind = f"dot c{style.colour}" + (" hollow" if style.dash > style.on_top else "")
    return element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="4.5", class_=kind, data_tip=tip)


def level(axes: Axes, y: float, tip: str) -> Html:
    """A dotted line across the chart."""
    _, up = axes.at(0, y)
    return element(
        "path", d=f"M{axes.left:g} {up:.1f}H{WIDTH - RIGHT:g}", class_="target", data_tip=tip
    )


def hover(axes: Axes, tips: Sequence[tuple[float, str]]) -> Html:
    """Upright strips without colour, each with the text that is shown over it."""
    places = [axes.at(x, 0)[0] for x, _ in tips]
    edges = [
        axes.left,
        *((a + b) / 2 for a, b in itertools.pairwise(places)),
        WIDTH - RIGHT,
    ]
    strips = [
        element(
            "rect",
            x=f"{left:.1f}",
            y=TOP,
            width=f"{max(right - left, 0):.1f}",
            height=axes.height - BOTTOM - TOP,
            class_="hit",
            data_tip=tip,
        )
        for left, right, (_, tip) in zip(edges, edges[1:], tips, strict=False)
    ]
    return joined(strips)


def swatch(style: Style) -> Html:
    """A short piece of a row's line, for a legend or a table."""
    dashes = " ".join(f"{2 * length:g}" for length in style.dashes) or None
    stroke = element("path", d="M1 6H31", class_=f"line c{style.colour}", stroke_dasharray=dashes)
    return element("svg", stroke, viewBox="0 0 32 12", class_="swatch", aria_hidden="true")


def thinned(values: Sequence[T]) -> list[T]:
    """Every k-th value and the last one, so that at most MAX_POINTS remain."""
    step = max(1, -(-len(values) // MAX_POINTS))
    kept = list(values[::step])
    if values and (len(values) - 1) % step:
        kept.append(values[-1])
    return kept


def _path(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
