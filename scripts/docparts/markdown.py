"""Building blocks of Markdown, and values as a user would type them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fedloom.core.spec import parameters

BAR = r"\|"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a bar inside a cell is escaped.

    >>> print(table(["a", "b"], [["1", "x|y"]]))
    | a | b |
    |---|---|
    | 1 | x\\|y |
    """
    head, *body = (
        f"| {' | '.join(cell.replace('|', BAR) for cell in line)} |" for line in (columns, *rows)
    )
    return "\n".join([head, "|---" * len(columns) + "|", *body])


def unbroken(text: str) -> str:
    """A text that stays on one line.

    >>> unbroken("[+1, +2]")
    '[+1,&nbsp;+2]'
    """
    return text.replace(" ", "&nbsp;")


def anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site name it.

    >>> anchor("Results published elsewhere"), anchor("Table 1, 20 classes")
    ('results-published-elsewhere', 'table-1-20-classes')
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def code(text: str, language: str = "text") -> str:
    """A fenced block."""
    return f"```{language}\n{text.strip()}\n```"


def prose(documented: Any) -> str:
    """The docstring of an object as paragraphs of one line each; stars outside code are escaped."""
    text = re.sub(r"(`[^`]*`)|\*", lambda m: m[1] or r"\*", inspect.getdoc(documented) or "")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def typed(value: Any) -> str:
    """A default value as a user would type it.

    >>> [typed(v) for v in (1.0, 0.05, None, True, "batch", "", ("a", 2))]
    ['1', '0.05', 'none', 'true', 'batch', "''", '[a, 2]']
    """
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(typed, value))}]"
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value) or "''"


def between(
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    below: float | None = None,
) -> str:
    """The range of a number in words.

    >>> between(low=0, below=1), between(above=0), between()
    ('from 0, below 1', 'above 0', '')
    """
    bounds = (("from", low), ("above", above), ("to", high), ("below", below))
    return ", ".join(f"{label} {typed(bound)}" for label, bound in bounds if bound is not None)


def options(function: Callable[..., Any], skip: Iterable[str] = ()) -> str:
    """The parameters of a registered function that a config may set."""
    skipped = frozenset(skip)
    return parameter_table(
        [p.describe() for name, p in parameters(function).items() if name not in skipped]
    )


def _type(accepted: str) -> str:
    """Types and choices in words; choices that are signs or blanks stay in quotes.

    >>> _type("int | null"), _type("'global' | 'local'"), _type("'' | ','")
    ('int or none', 'global or local', "`''` or `','`")
    """
    words = []
    for word in accepted.split(" | "):
        plain = re.fullmatch(r"'([\w-]+)'", word)
        quoted = f"`{word}`" if word[0] in "'\"" else word.replace("null", "none")
        words.append(plain[1] if plain else quoted)
    return " or ".join(words)


def parameter_table(described: Sequence[Mapping[str, Any]]) -> str:
    """Parameters as `Parameter.describe` returns them; required ones have no default there."""
    if not described:
        return "No parameters."
    rows = [
        [
            f"`{p['name']}`",
            _type(p["type"]),
            between(p.get("low"), p.get("above"), p.get("high"), p.get("below")),
            f"`{typed(p['default'])}`" if "default" in p else "required",
            p["meaning"],
        ]
        for p in described
    ]
    return table(["parameter", "type", "range", "default", "meaning"], rows)
