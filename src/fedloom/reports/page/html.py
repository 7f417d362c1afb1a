"""HTML from small pieces. Text is escaped unless it is `Html`, so nothing in a run can be markup.

>>> element("td", "<script>", title='a"b')
'<td title="a&quot;b">&lt;script&gt;</td>'
>>> element("p", "x", element("b", "y"), class_="note")
'<p class="note">x<b>y</b></p>'
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

# Characters that HTML does not allow, and those that change the direction of the text around them.
_UNSAFE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufffe\uffff]")
_EMPTY = frozenset({"br", "meta"})  # elements without an end


class Html(str):
    """Text that is HTML already; made by the functions of this module only."""

    __slots__ = ()


def escaped(text: object) -> Html:
    """The text as it will be read, whatever characters it holds."""
    if isinstance(text, Html):
        return text
    plain = str(text).encode(errors="backslashreplace").decode()
    return Html(html.escape(_UNSAFE.sub("\ufffd", plain), quote=True))


def element(name: str, *children: object, **attributes: object) -> Html:
    """An element. Attributes that are None are left out; `class_` is class, `a_b` is a-b."""
    given = {n.rstrip("_").replace("_", "-"): v for n, v in attributes.items() if v is not None}
    start = " ".join([name, *(f'{n}="{escaped(v)}"' for n, v in given.items())])
    inside = "".join(escaped(child) for child in children if child is not None)
    return Html(f"<{start}>" if name in _EMPTY else f"<{start}>{inside}</{name}>")


def joined(pieces: Iterable[object]) -> Html:
    """Pieces one after the other."""
    return Html("".join(escaped(piece) for piece in pieces if piece is not None))


def section(title: str, name: str, *children: object) -> Html:
    """A part of the page with a heading; name: the end of links to it."""
    return element("section", element("h2", title), *children, id=name)


def note(*children: object) -> Html:
    """A line of small print."""
    return element("p", *children, class_="note")


def folded(title: str, *children: object) -> Html:
    """What is shown only when its title is clicked; it is always shown in print."""
    return element("details", element("summary", title), *children)


def table(columns: Sequence[object], rows: Sequence[Sequence[object]], words: int = 1) -> Html:
    """A table that a click on a column sorts. words: columns at the left that are no numbers.

    It scrolls by itself where the screen is too narrow.
    """
    heads = [
        element("th", name, scope="col", class_="n" if number >= words else None)
        for number, name in enumerate(columns)
    ]
    body = [
        element("tr", *(_cell(cell, number >= words) for number, cell in enumerate(row)))
        for row in rows
    ]
    inside = element(
        "table", element("thead", element("tr", *heads)), element("tbody", *body), class_="sortable"
    )
    return element("div", inside, class_="wide", tabindex="0", role="group", aria_label="table")


def _cell(content: object, is_number: bool) -> Html:
    return element("td", "-" if content is None else content, class_="n" if is_number else None)
