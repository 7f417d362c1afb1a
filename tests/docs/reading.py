"""What tests read from the pages: fenced blocks, shell commands, links and headings."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"""\]\(([^)\s]+)\)|(?:src|href)="([^"]+)\"""")
BLOCK = re.compile(
    r"(?:^<!-- not executed: (?P<reason>.+?) -->\n)?"
    r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
GENERATED = re.compile(r"^<!-- begin (\S+) -->\n.*?^<!-- end \1 -->$", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def pages() -> list[Path]:
    """Every Markdown page of the repository."""
    return sorted(
        [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.md")]
    )


def named(page: Path) -> str:
    """The path of a page, for the names of tests."""
    return str(page.relative_to(ROOT))


@dataclass(frozen=True)
class Block:
    """A fenced block. reason: why it is not executed, if a comment directly before it says so."""

    page: Path
    line: int
    language: str
    text: str
    reason: str | None

    def __str__(self) -> str:
        return f"{named(self.page)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """The fenced blocks that were written by hand, in order.

    Blocks in generated parts are docstrings and examples of the code, which its own tests check.
    """
    text = page.read_text(encoding="utf-8")
    generated = [range(*part.span()) for part in GENERATED.finditer(text)]
    return [
        Block(
            page,
            text.count("\n", 0, found.start("language")) + 1,
            found["language"],
            re.sub(f"^{found['indent']}", "", found["text"], flags=re.MULTILINE),
            found["reason"],
        )
        for found in BLOCK.finditer(text)
        if not any(found.start() in part for part in generated)
    ]


def fenced(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    return [
        text for kind, text in FENCE.findall(page.read_text(encoding="utf-8")) if kind == language
    ]


def shown(page: Path) -> list[list[str]]:
    """The shell commands that a page shows, split into words, without comments."""
    lines = (
        line
        for block in fenced(page, "sh")
        for line in block.replace("\\\n", " ").replace(" && ", "\n").splitlines()
    )
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def links(page: Path) -> Iterator[str]:
    """The links of a page within the repository, outside of fenced blocks."""
    for found in LINK.finditer(FENCE.sub("", page.read_text(encoding="utf-8"))):
        target = found[1] or found[2]
        if "://" not in target:
            yield target


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub names them."""
    headings = HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
