"""The reference of the Python API: on the site it is read from the code by mkdocstrings.

In the repository these pages hold what `make docs` writes: a section for each name, with its
signature and docstring. Here a section becomes a directive, which also shows types and members.
"""

from __future__ import annotations

import operator
import re
from typing import Any

import fedloom

PART = re.compile(
    r"^<!-- begin api-\w+ -->\n(?P<text>.*?)^<!-- end api-\w+ -->$", re.DOTALL | re.MULTILINE
)
SECTION = re.compile(r"^(#+) fl\.([\w.]+)\n.*?(?=^#+ fl\.|\Z)", re.DOTALL | re.MULTILINE)


def with_directives(markdown: str) -> str:
    """The text of a page with its sections about names of the API left to mkdocstrings."""
    return PART.sub(lambda part: SECTION.sub(_directive, part["text"]), markdown)


def _directive(section: re.Match[str]) -> str:
    """A directive for a section, which keeps the anchor that the section has in the repository."""
    level, name = section[1], section[2]
    # of a named tuple mkdocstrings shows no signature; its fields are listed instead
    fields = hasattr(_found(name), "_fields")
    return (
        f'<a id="fl{name.replace(".", "").lower()}"></a>\n\n'
        f"::: {_path(name)}\n"
        "    options:\n"
        f"      heading: fl.{name}\n"
        f"      toc_label: fl.{name}\n"
        f"      heading_level: {len(level)}\n"
        f"      show_if_no_docstring: {str(fields).lower()}\n\n"
    )


def _path(name: str) -> str:
    """Where mkdocstrings finds a name: in the package, or in the module that defines it."""
    found = _found(name)
    return f"{found.__module__}.{found.__qualname__}" if "." in name else f"fedloom.{name}"


def _found(name: str) -> Any:
    """What a name of the API stands for."""
    return operator.attrgetter(name)(fedloom)
