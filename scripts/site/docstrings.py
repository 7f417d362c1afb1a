"""Docstrings as Markdown, for mkdocstrings.

Our docstrings are plain text for readers of the code: formulas are indented, names and meanings
stand in columns, examples are doctests. As Markdown the columns would run together, so every
paragraph is turned into what it is.
"""

from __future__ import annotations

import html
import re
from typing import Any

import griffe

ROW = re.compile(r"^(?P<name>\S.*?)(?: {2,}|$)(?P<meaning>.*)$")
COLUMNS = re.compile(r"^\S(?:.*?\S)? {2,}\S", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")


class HouseDocstrings(griffe.Extension):
    """Rewrites the docstrings of everything that is loaded."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(docstring: str) -> str:
    """A docstring as Markdown.

    >>> print(as_markdown("Adds a term.\\n\\n    mu/2 ||w||^2"))
    Adds a term.
    <BLANKLINE>
    ```text
    mu/2 ||w||^2
    ```
    """
    return "\n\n".join(_paragraph(text) for text in _paragraphs(docstring))


def _paragraphs(docstring: str) -> list[str]:
    """The text between blank lines; neighbours that are both indented are one formula."""
    found: list[str] = []
    for text in re.split(r"\n\s*\n", docstring.strip("\n")):
        if found and found[-1].startswith(" ") and text.startswith(" "):
            found[-1] += f"\n\n{text}"
        else:
            found.append(text)
    return found


def _paragraph(text: str) -> str:
    if text.startswith(">>> "):
        return f"```pycon\n{text}\n```"
    if text.startswith("    "):
        lines = text.splitlines()
        return "\n".join(["```text", *(line.removeprefix("    ") for line in lines), "```"])
    return _names(text) if COLUMNS.search(text) else text


def _names(text: str) -> str:
    """Names and meanings in columns as a list of definitions; other columns stay as they are.

    >>> print(_names("mu   the weight,\\n     0 is FedAvg\\ntau  the limit"))
    <dl class="names">
    <dt>mu</dt><dd>the weight, 0 is FedAvg</dd>
    <dt>tau</dt><dd>the limit</dd>
    </dl>
    """
    rows: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith(" ") and rows:
            rows[-1][1] += f" {line.strip()}"
        elif row := COLUMNS.match(line) and ROW.match(line):
            rows.append([row["name"], row["meaning"]])
        else:
            return f"```text\n{text}\n```"
    cells = [f"<dt>{_inline(name)}</dt><dd>{_inline(meaning)}</dd>" for name, meaning in rows]
    return "\n".join(['<dl class="names">', *cells, "</dl>"])


def _inline(text: str) -> str:
    return CODE.sub(r"<code>\1</code>", html.escape(text, quote=False))
