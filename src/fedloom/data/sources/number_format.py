"""How a file writes its numbers: the decimal mark and the separator of thousands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from fedloom.core.errors import UserError
from fedloom.core.spec import Param

Decimal = Annotated[
    Literal[".", ","], Param("decimal mark of the numbers; , for 1,5 as in many European files")
]
Thousands = Annotated[
    Literal["", ",", ".", " ", "'", "space", "apostrophe"],
    Param("separator of thousands in the numbers: , for 1,234; . for 1.234; space; apostrophe"),
]

# Spaces that do not break a line are usual in numbers, and so is the typographic apostrophe.
_SEPARATORS = {
    "": "",
    ",": ",",
    ".": r"\.",
    "space": "[ \u00a0\u2009\u202f]",
    "apostrophe": "['\u2019]",
}
_WORDS = {" ": "space", "'": "apostrophe"}


@dataclass(frozen=True)
class NumberFormat:
    """A way to write numbers; thousands is empty if they are not separated."""

    decimal: str = "."
    thousands: str = ""

    def plain(self, text: str) -> str | None:
        """The number as Python writes it, or None if the text is no number in this format.

        >>> NumberFormat(",", ".").plain("1.234,5"), NumberFormat(",", ".").plain("1.5")
        ('1234.5', None)
        """
        if self == PLAIN:
            return text if is_number(text) else None
        match = self._pattern.fullmatch(text)
        if match is None:
            return None
        whole = "".join(filter(str.isdecimal, match["whole"]))
        fraction = (match["fraction"] or "").replace(self.decimal, ".")
        return f"{match['sign']}{whole}{fraction}{match['exponent'] or ''}"

    def options(self) -> dict[str, str]:
        """The options of the reader that differ from the defaults."""
        given = {"decimal": self.decimal, "thousands": self.thousands}
        return {name: value for name, value in given.items() if value != getattr(PLAIN, name)}

    def changes_from(self, other: NumberFormat) -> int:
        """How many options differ."""
        return (self.decimal != other.decimal) + (self.thousands != other.thousands)

    def __str__(self) -> str:
        """The options as a user writes them: decimal=',' and thousands='.'"""
        return " and ".join(f"{name}='{value}'" for name, value in self.options().items())

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        separator = _SEPARATORS[self.thousands]
        grouped = rf"|\d{{1,3}}(?:{separator}\d{{3}})+" if separator else ""
        return re.compile(
            rf"(?P<sign>[+-]?)(?P<whole>\d+{grouped})(?P<fraction>{re.escape(self.decimal)}\d+)?"
            r"(?P<exponent>[eE][+-]?\d+)?"
        )


PLAIN = NumberFormat()
FORMATS = tuple(NumberFormat(d, t) for t in _SEPARATORS for d in ".," if d != t)


def number_format(decimal: str = ".", thousands: str = "") -> NumberFormat:
    """The format of the reader's options."""
    if decimal == thousands:
        other = "," if decimal == "." else "."
        raise UserError(
            f"decimal='{decimal}' and thousands='{thousands}' are the same character; "
            f"for numbers such as 1{thousands}234{other}5 set decimal='{other}'"
        )
    return NumberFormat(decimal, _WORDS.get(thousands, thousands))


def is_number(text: str) -> bool:
    """Whether Python reads the text as a number.

    >>> is_number("1e-3"), is_number("-")
    (True, False)
    """
    try:
        float(text)
    except ValueError:
        return False
    return True


def looks_like_number(text: str) -> bool:
    """Whether the text is a number in any format, such as 1.5, 1,5 or 1'000."""
    return any(form.plain(text) is not None for form in FORMATS)


def count_numbers(cells: Mapping[str, int], form: NumberFormat) -> int:
    """How many of the cells are numbers; cells: the distinct ones, and how often each occurs."""
    return sum(count for cell, count in cells.items() if form.plain(cell) is not None)


def better_formats(cells: Mapping[str, int], current: NumberFormat) -> list[NumberFormat]:
    """The formats in which most of the cells are numbers, if more than in the current one.

    Only those that change the fewest options are given.

    There are two if the cells do not tell: 1,234 is 1234 with thousands="," and 1.234 with
    decimal=",".
    """
    counts = {form: count_numbers(cells, form) for form in FORMATS}
    most = max(counts.values())
    if most <= count_numbers(cells, current) or 2 * most < sum(cells.values()):
        return []
    changes = {f: f.changes_from(current) for f, count in counts.items() if count == most}
    return [form for form, count in changes.items() if count == min(changes.values())]


def ambiguous_thousands(cells: Iterable[str], form: NumberFormat) -> str | None:
    """A number such as 1.234 whose point may separate thousands, or None if there is no doubt.

    There is doubt if all numbers of a column are below 1000 or have three digits after the point,
    and some without a point reach 100: this is how counts such as 950 and 1.234 are written.

    >>> ambiguous_thousands(["950", "1.234"], PLAIN), ambiguous_thousands(["950", "1.25"], PLAIN)
    ('1.234', None)
    """
    if form.thousands:
        return None
    pattern = re.compile(
        rf"(?P<small>0|[1-9]\d?)|(?P<hundreds>[1-9]\d\d)|"
        rf"(?P<grouped>[1-9]\d{{0,2}}(?:{re.escape(form.decimal)}\d{{3}})+)"
    )
    examples: dict[str | None, str] = {}
    for cell in cells:
        match = pattern.fullmatch(cell)
        if match is None:
            return None
        examples.setdefault(match.lastgroup, cell)
    return examples.get("grouped") if "hundreds" in examples else None


def format_hint(cell: str, formats: Sequence[NumberFormat], current: NumberFormat) -> str:
    """Which options to set so that such a cell is a number, as the remedy of a message.

    >>> format_hint("1,234", [NumberFormat(","), NumberFormat(".", ",")], PLAIN)
    "set decimal=',' if 1,234 means 1.234, or set thousands=',' if 1,234 means 1234"
    """
    changes = [f"leave out {current}" if form == PLAIN else f"set {form}" for form in formats]
    if len(changes) == 1:
        return changes[0]
    meanings = [f"if {cell} means {form.plain(cell)}" for form in formats]
    return ", or ".join(" ".join(pair) for pair in zip(changes, meanings, strict=True))
