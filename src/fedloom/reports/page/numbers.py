"""Numbers as the page writes them."""

from __future__ import annotations

from fedloom.metrics.paired import PairedDifference
from fedloom.metrics.score import ACCURACY, Score

MINUS = "\u2212"


def percent(share: float | None, digits: int = 1) -> str | None:
    """A share in percent.

    >>> percent(0.4266), percent(None)
    ('42.7', None)
    """
    return None if share is None else f"{100 * share:.{digits}f}"


def signed(difference: float, score: Score = ACCURACY) -> str:
    """A difference of scores with its sign: of shares in points.

    >>> signed(0.034), signed(-0.034), signed(-0.0001)
    ('+3.4', '−3.4', '0.0')
    """
    digits = score.digits(1)
    points = round(score.scale * difference, digits)
    return f"{points:+.{digits}f}".replace("-", MINUS) if points else f"{0:.{digits}f}"


def interval(difference: PairedDifference, score: Score = ACCURACY) -> str | None:
    """The ends of the confidence interval, of shares in points; None if there is none."""
    if difference.interval is None:
        return None
    low, high = difference.interval
    return f"{signed(low, score)} to {signed(high, score)}"


def size(count: float) -> str:
    """Bytes.

    >>> size(12341200), size(3e9), size(900), size(0)
    ('12.3 MB', '3 GB', '0.9 kB', '0')
    """
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= factor:
            return f"{_three_digits(count / factor)} {unit}"
    return f"{_three_digits(count / 1e3)} kB" if count else "0"


def engineering(value: float) -> str:
    """A large number with a letter.

    >>> engineering(2.5e9), engineering(1200.0), engineering(3.0)
    ('2.5 G', '1.2 k', '3')
    """
    for letter, factor in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= factor:
            return f"{_three_digits(value / factor)} {letter}"
    return _three_digits(value)


def _three_digits(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"


def several(count: int, noun: str, plural: str = "") -> str:
    """A number of things.

    >>> several(1, "seed"), several(3, "seed"), several(2, "class", "classes")
    ('1 seed', '3 seeds', '2 classes')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
