"""Notebooks: sources in jupytext's percent format become pages, with the .ipynb to download."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jupytext


def notebook_files(folder: Path) -> Iterator[tuple[str, str]]:
    """Place and text of a Jupyter notebook and a page for every source in the folder."""
    for source in sorted(folder.glob("*.py")):
        notebook = jupytext.read(source, fmt="py:percent")
        name = f"notebooks/{source.stem}"
        yield f"{name}.ipynb", jupytext.writes(notebook, "ipynb")
        yield f"{name}.md", page(notebook, source.stem)


def page(notebook: Any, name: str) -> str:
    """A notebook as Markdown: its text, and its code as blocks."""
    first, *rest = map(_cell, notebook.cells)
    links = f"Download as a [Jupyter notebook]({name}.ipynb) or as a [script]({name}.py)."
    title, _, text = first.partition("\n")
    return "\n\n".join([title, links, text.strip(), *rest]) + "\n"


def _cell(cell: Any) -> str:
    return cell.source if cell.cell_type == "markdown" else f"```python\n{cell.source}\n```"
