"""Numbers as the page writes them."""

from __future__ import annotations

from fedloom.reports.paired import PairedDifference

MINUS = "\u2212"


def percent(share: float | None, digits: int = 1) -> str | None:
    """A share in percent.

    >>> percent(0.4266), percent(None)
    ('42.7', None)
    """
    return None if share is None else f"{100 * share:.{digits}f}"


def signed(share: float, digits: int = 1) -> str:
    """A difference of shares in points, with its sign.

    >>> signed(0.034), signed(-0.034)
    ('+3.4', '−3.4')
    """
    return f"{100 * share:+.{digits}f}".replace("-", MINUS)


def interval(difference: PairedDifference) -> str | None:
    """The ends of the confidence interval in points; None if there is none."""
    if difference.interval is None:
        return None
    low, high = difference.interval
    return f"{signed(low)} to {signed(high)}"


def size(count: float) -> str:
    """Bytes.

    >>> size(12341200), size(3e9), size(900)
    ('12.3 MB', '3.00 GB', '0.9 kB')
    """
    for unit, factor, digits in (("GB", 1e9, 2), ("MB", 1e6, 1)):
        if count >= factor:
            return f"{count / factor:.{digits}f} {unit}"
    return f"{count / 1e3:.1f} kB"


def engineering(value: float) -> str:
    """A large number with a letter.

    >>> engineering(2.5e9), engineering(1200.0), engineering(3.0)
    ('2.5 G', '1.2 k', '3')
    """
    for letter, factor in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {letter}"
    return f"{value:.3g}"


def several(count: int, noun: str, plural: str = "") -> str:
    """A number of things.

    >>> several(1, "seed"), several(3, "seed"), several(2, "class", "classes")
    ('1 seed', '3 seeds', '2 classes')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
