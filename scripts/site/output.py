"""Blocks of output on a page: columns stay aligned, and the lines of all others may be wrapped."""

from __future__ import annotations

import re

BLOCK = re.compile(r'<div class="language-text highlight">(.*?)</div>', re.DOTALL)
COLUMNS = re.compile(r"[^\s>] {3,}\S")


def with_columns_marked(html: str) -> str:
    """The page, with the class `columns` on each block of output that has columns."""
    return BLOCK.sub(_marked, html)


def _marked(block: re.Match[str]) -> str:
    if not COLUMNS.search(block[1]):
        return block[0]
    return block[0].replace("language-text", "language-text columns", 1)
