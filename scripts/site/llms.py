"""llms.txt and llms-full.txt: the documentation as plain text, for language models.

llms.txt lists every page of the navigation with what it answers: the question that the home page
has for it, or the first sentence of its text. The links lead to the Markdown of the pages, which
is written beside their HTML. llms-full.txt holds all of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from mkdocs.structure.pages import Page

NOT_PROSE = re.compile(r"^(#|\||```|!\[|<|-|:::|Download as )")
QUESTION = re.compile(r"^\| \[[^\]]+\]\(([^)]+)\) \| (.+) \|$", re.MULTILINE)
SENTENCE = re.compile(r"(.+?[^.][.?!])(?= [A-Z`\"\[]|$)")


def write_llms(site: Path, name: str, about: str, texts: Sequence[tuple[Page, str]]) -> None:
    """Write both files and the Markdown of each page into the built site."""
    lines = [f"# {name}\n\n> {about}\n"]
    questions = dict(QUESTION.findall(texts[0][1]))
    section = None
    for page, text in texts:
        if section != (section := _section(page)):
            lines.append(f"\n## {section}\n\n")
        about = _sentence(questions.get(page.file.src_uri) or summary(text))
        lines.append(f"- [{page.title}]({page.file.src_uri}): {about}\n")
        place = site / page.file.src_uri
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    (site / "llms.txt").write_text("".join(lines), encoding="utf-8")
    full = [f"<!-- {page.file.src_uri} -->\n\n{text.strip()}\n" for page, text in texts]
    (site / "llms-full.txt").write_text("\n\n".join(full), encoding="utf-8")


def _sentence(text: str) -> str:
    """The text with an end, and a capital letter at the beginning.

    >>> _sentence("train a model"), _sentence("Why?"), _sentence("`run`:")
    ('Train a model.', 'Why?', '`run`.')
    """
    text = text.rstrip(":")
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")


def _section(page: Page) -> str:
    """The tab that a page belongs to."""
    return page.ancestors[-1].title if page.ancestors else str(page.title)


def summary(text: str) -> str:
    """The first sentence of a page's first paragraph, without links.

    >>> summary("# Title\\n\\n```sh\\nls\\n```\\n\\nRun [it](x.md) first. Then go.")
    'Run it first.'
    """
    without_code = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    for paragraph in without_code.split("\n\n"):
        line = " ".join(paragraph.split())
        if line and not NOT_PROSE.match(line):
            plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", line)
            found = SENTENCE.match(plain)
            return found[1] if found else plain
    return ""
