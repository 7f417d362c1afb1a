"""Write the generated parts of README.md and docs/**/*.md; with --check only name stale pages.

    python scripts/docs.py [--check]

A generated part stands between `<!-- begin NAME -->` and `<!-- end NAME -->`, where NAME is one of
BLOCKS (docparts/). The rest of a page is written by hand. The output does not depend on the time,
the machine or the width of the terminal. The pictures of suites (docparts/pictures.py) are drawn
if what they show has changed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from docparts import BLOCKS
from docparts.pictures import stale_pictures

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"^(?P<begin><!-- begin (?P<name>\S+) -->\n).*?^(?P<end><!-- end (?P=name) -->)$",
    re.DOTALL | re.MULTILINE,
)
MARK = re.compile(r"^<!-- (?:begin|end) \S+ -->$", re.MULTILINE)

Blocks = Mapping[str, Callable[[Path], str]]


def pages(root: Path) -> list[Path]:
    """The pages that may hold generated parts."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def stale(root: Path, blocks: Blocks = BLOCKS) -> dict[Path, str]:
    """The pages whose generated parts are out of date, with their new text."""
    fresh = {page: filled(page, root, blocks) for page in pages(root)}
    return {page: text for page, text in fresh.items() if text != page.read_text(encoding="utf-8")}


def filled(page: Path, root: Path, blocks: Blocks = BLOCKS) -> str:
    """The text of a page with its generated parts up to date."""
    text = page.read_text(encoding="utf-8")
    for name in (match["name"] for match in BLOCK.finditer(text)):
        if name not in blocks:
            choices = ", ".join(blocks)
            sys.exit(
                f"{page.relative_to(root)}: no part '{name}' in scripts/docparts "
                f"(choices: {choices})"
            )
    if stray := MARK.search(BLOCK.sub("", text)):
        sys.exit(
            f"{page.relative_to(root)}: '{stray[0]}' has no partner; "
            "write <!-- begin NAME --> and <!-- end NAME -->"
        )
    return BLOCK.sub(lambda m: f"{m['begin']}\n{blocks[m['name']](root)}\n\n{m['end']}", text)


def main(arguments: list[str] | None = None, root: Path = ROOT) -> None:
    """The entry point; exit code 1 if --check finds a stale page."""
    parser = argparse.ArgumentParser(
        description="Write the generated parts of README.md and docs/*.md."
    )
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit with 1 and name the stale pages"
    )
    check = parser.parse_args(arguments).check
    outdated, pictures = stale(root), stale_pictures(root)
    if check and (outdated or pictures):
        paths = [*(page.relative_to(root) for page in outdated), *(p.path for p in pictures)]
        sys.exit(f"stale: {', '.join(map(str, paths))}; write them with: make docs")
    for picture in pictures:
        picture.write(root)
        sys.stdout.write(f"wrote {picture.path}\n")
    for page, text in outdated.items():
        page.write_text(text, encoding="utf-8")
        sys.stdout.write(f"wrote {page.relative_to(root)}\n")


if __name__ == "__main__":
    main()
