"""Links between the files of the repository, on the site.

A page in docs/ may link to any file of the repository, and the link works where the repository is
read. On the site such a link leads to a page: files in the root of the repository are pages with a
place in the navigation (`project/`), every other file is shown as it is (`repository/`). So are
the scripts in docs/, and a notebook's source leads to the notebook. Where a link's text is the name
of a page's file, the site shows the title of the page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from posixpath import dirname, normpath, relpath

FENCE = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<path>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
IN_ROOT = {
    "README.md": "project/readme.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
}
NOTEBOOKS = "docs/notebooks/"  # notebooks.py makes their pages
LANGUAGES = {".py": "python", ".toml": "toml", ".cff": "yaml", ".json": "json"}


class Repository:
    """The files that pages link to, under the names that they have on the site."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sources: dict[str, str] = {}  # path on the site: path in the repository

    def files(self) -> Iterator[tuple[str, str]]:
        """Place and text of the pages that docs/ lacks and that other pages link to."""
        waiting = [p.relative_to(self.root).as_posix() for p in (self.root / "docs").rglob("*.md")]
        waiting += IN_ROOT
        seen = set(waiting)
        while waiting:
            path = waiting.pop()
            place = self.place(path)
            if self.source(place) != path:
                self.sources[place] = path
                yield place, self.shown(path)
            if path.endswith(".md"):
                found = set(self.targets(path)) - seen
                waiting += sorted(found)
                seen |= found

    def targets(self, path: str) -> Iterator[str]:
        """The files that a page links to and that become pages."""
        text = (self.root / path).read_text(encoding="utf-8")
        for part in FENCE.split(text)[::2]:
            for link in LINK.finditer(part):
                target = _joined(path, link["path"])
                is_page = self.place(target).endswith(".md") and (self.root / target).is_file()
                if is_page and not target.startswith(NOTEBOOKS):
                    yield target

    def place(self, path: str) -> str:
        """Where a file of the repository is on the site, as the source of a page or a file."""
        inside = path.removeprefix("docs/")
        if path.startswith(NOTEBOOKS):
            return str(PurePosixPath(inside).with_suffix(".md"))
        if inside != path:
            return f"{inside}.md" if path.endswith(".py") else inside
        if path in IN_ROOT:
            return IN_ROOT[path]
        return f"repository/{path}" if path.endswith(".md") else f"repository/{path}.md"

    def source(self, place: str) -> str:
        """The file of the repository that a page of the site is made of."""
        return self.sources.get(place, f"docs/{place}")

    def shown(self, path: str) -> str:
        """The text of a page: Markdown as it is, every other file as a block of code."""
        text = (self.root / path).read_text(encoding="utf-8")
        if path.endswith(".md"):
            return text
        language = LANGUAGES.get(PurePosixPath(path).suffix, "text")
        head = "---\nsearch:\n  exclude: true\n---\n"
        return f"{head}# {PurePosixPath(path).name}\n\n`{path}`\n\n````{language}\n{text}````\n"

    def with_links(self, markdown: str, place: str) -> str:
        """The text of a page with its links to files of the repository changed to their pages."""
        parts = FENCE.split(markdown)
        parts[::2] = [LINK.sub(self._relinked(place), part) for part in parts[::2]]
        return "".join(parts)

    def _relinked(self, place: str) -> Callable[[re.Match[str]], str]:
        path = self.source(place)

        def relinked(link: re.Match[str]) -> str:
            target = _joined(path, link["path"])
            if not (self.root / target).is_file():
                return link[0]
            new = relpath(self.place(target), dirname(place) or ".")
            return f"[{self._named(link['text'], target)}]({new}{link['anchor'] or ''})"

        return relinked

    def _named(self, text: str, target: str) -> str:
        """The text of a link; where it is the name of a page's file, the title of the page."""
        if not (text.endswith(".md") and target.endswith(text.lstrip("./"))):
            return text
        title = TITLE.search((self.root / target).read_text(encoding="utf-8"))
        return title[1] if title else text


def _joined(page: str, link: str) -> str:
    """The path in the repository that a link on a page leads to."""
    return normpath(f"{dirname(page)}/{link}".lstrip("/"))
