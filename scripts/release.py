"""What a release needs to know, from the tag: that it fits the version, and what has changed.

    python scripts/release.py check v0.1.0    fails unless version and changelog fit the tag
    python scripts/release.py notes v0.1.0    prints the changelog's section of that version

The standard library is enough: nothing has to be installed.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSION_FILE = Path("src/fedloom/__init__.py")
CHANGELOG = Path("CHANGELOG.md")


class ReleaseError(Exception):
    """Why this tag cannot be released."""


def package_version(root: Path) -> str:
    """The version that the package says it has."""
    text = (root / VERSION_FILE).read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise ReleaseError(f'{VERSION_FILE} has no line __version__ = "..."')
    return found[1]


def section(root: Path, version: str) -> tuple[str, str]:
    """The date of a version in the changelog, and the text of its section."""
    text = (root / CHANGELOG).read_text(encoding="utf-8")
    heads = list(re.finditer(r"^## \[([^\]]+)\](?: - (\S+))?[ \t]*$", text, re.MULTILINE))
    for number, head in enumerate(heads):
        if head[1] == version:
            end = heads[number + 1].start() if number + 1 < len(heads) else len(text)
            return head[2] or "", text[head.end() : end].strip()
    known = ", ".join(head[1] for head in heads) or "none"
    raise ReleaseError(f"{CHANGELOG} has no section '## [{version}] - DATE'; it has: {known}")


def check(root: Path, tag: str) -> str:
    """The version of a tag; raises unless package and changelog are ready for it."""
    version = package_version(root)
    if tag != f"v{version}":
        raise ReleaseError(
            f"the tag is {tag}, and {VERSION_FILE} has version {version}; "
            f"tag the commit v{version}, or change the version"
        )
    date, text = section(root, version)
    try:
        datetime.date.fromisoformat(date)
    except ValueError:
        raise ReleaseError(
            f"{CHANGELOG} has '{date}' as the date of {version}; write the day, as 2026-01-31"
        ) from None
    if not text:
        raise ReleaseError(f"the section of {version} in {CHANGELOG} is empty")
    return version


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description="Check a release, or print its notes.")
    parser.add_argument("command", choices=("check", "notes"))
    parser.add_argument("tag", help="for example v0.1.0")
    given = parser.parse_args(arguments)
    try:
        if given.command == "check":
            sys.stdout.write(f"{check(root, given.tag)} can be released\n")
        else:
            sys.stdout.write(section(root, given.tag.removeprefix("v"))[1] + "\n")
    except ReleaseError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
