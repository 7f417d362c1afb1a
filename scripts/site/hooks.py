"""What `mkdocs` does besides turning docs/ into pages; called by the names of its events.

repository.py   links to files outside docs/ lead to pages of the site
notebooks.py    docs/notebooks/*.py become pages and .ipynb files
reference.py    the parts of docs/reference that are generated for the repository are replaced by
                what mkdocstrings reads from the code
output.py       output in columns is not wrapped
llms.py         llms.txt, llms-full.txt, and the Markdown of every page
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from llms import write_llms
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page
from notebooks import notebook_files
from output import with_columns_marked
from reference import with_directives
from repository import Repository

ROOT = Path(__file__).resolve().parents[2]
repository = Repository(ROOT)
pages: list[Page] = []


def on_files(files: Files, config: Any) -> Files:
    """Add what does not lie in docs/, and the notebooks."""
    made = (notebook_files(ROOT / "docs" / "notebooks"), repository.files())
    for place, text in itertools.chain(*made):
        files.append(File.generated(config, place, content=text))
    return files


def on_nav(nav: Navigation, config: Any, files: Files) -> Navigation:
    """Remember the order of the pages, for llms.txt."""
    pages[:] = nav.pages
    return nav


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """The text of a page as the site shows it."""
    return with_directives(repository.with_links(markdown, page.file.src_uri))


def on_page_content(html: str, page: Page, config: Any, files: Files) -> str:
    """The HTML of a page's text."""
    return with_columns_marked(html)


def on_post_build(config: Any) -> None:
    """Write what is not a page."""
    texts = [
        (page, repository.with_links(page.file.content_string, page.file.src_uri)) for page in pages
    ]
    write_llms(Path(config.site_dir), config.site_name, config.site_description, texts)
