"""The site: it builds without a warning, needs no network, and works in a browser."""

import functools
import http.server
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from docparts.api import PAGES
from reading import ROOT

import fedloom
from support.browser import MISSING, Browser, browser, is_installed

pytest.importorskip("mkdocs", reason='needs the site\'s tools: pip install "fedloom[site]"')
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("site")]  # so that it is built once
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make site` does."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@dataclass
class Parsed(HTMLParser):
    """A page: its anchors, what it links to and what a browser loads with it."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attributes if value is not None}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if (source := found.get(LOADED.get(tag, ""))) is not None:
            self.loads.append(source)


@pytest.fixture(scope="module")
def parsed(site: Path) -> dict[Path, Parsed]:
    """Every page of the site."""
    pages = {}
    for path in site.rglob("*.html"):
        pages[path] = Parsed()
        pages[path].feed(path.read_text(encoding="utf-8"))
    return pages


def is_local(address: str) -> bool:
    return not urlsplit(address).scheme and not address.startswith("//")


def nav_pages() -> list[str]:
    """The sources of the pages in the navigation, in order."""
    from mkdocs.config import load_config

    def flat(entry: object) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        for inner in entry.values() if isinstance(entry, dict) else ():
            yield from flat(inner)
        for inner in entry if isinstance(entry, list) else ():
            yield from flat(inner)

    return list(flat(load_config(str(ROOT / "mkdocs.yml")).nav))


def test_nothing_is_loaded_from_elsewhere(site: Path, parsed: dict[Path, Parsed]) -> None:
    loaded = {(path.name, place) for path, page in parsed.items() for place in page.loads}
    assert {(name, place) for name, place in loaded if not is_local(place)} == set()
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert "url(http" not in text
        assert "url(//" not in text
        assert "@import" not in text


def test_every_link_and_picture_of_the_built_pages_is_there(
    site: Path, parsed: dict[Path, Parsed]
) -> None:
    dead = []
    for path, page in parsed.items():
        if path.name == "404.html":  # its links start at the root, wherever that will be
            continue
        for link in filter(is_local, page.links + page.loads):
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchors = parsed[target].anchors if target in parsed else set()
            if not target.is_file() or (parts.fragment and unquote(parts.fragment) not in anchors):
                dead.append(f"{path.relative_to(site)}: {link}")
    assert dead == []


def test_llms_txt_lists_every_page_with_its_summary(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    full = (site / "llms-full.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    pages = nav_pages()
    assert len(lines) == len(pages) > 20
    for page, line in zip(pages, lines, strict=True):
        before, found, summary = line.partition(f"]({page}): ")
        assert found, f"{line}: expected {page}"
        assert before.startswith("- [")
        assert summary.endswith((".", "?", "!")), line
        assert (site / page).read_text(encoding="utf-8").strip() in full


def test_the_reference_describes_every_name_once(parsed: dict[Path, Parsed], site: Path) -> None:
    names = [name for page in PAGES.values() for name in page]
    assert sorted(names) == sorted(name for name in fedloom.__all__ if name != "__version__")
    anchors = [p.anchors for path, p in parsed.items() if path.parent == site / "reference"]
    for name in names:
        assert any(f"fl{name.lower()}" in page for page in anchors), name


def test_docstrings_are_laid_out(site: Path) -> None:
    text = (site / "reference" / "experiments.html").read_text(encoding="utf-8")
    assert "<dt>per_round</dt><dd>clients per round</dd>" in text
    assert "<dt>folder</dt>" in text
    assert "per_round   clients" not in text


def test_the_search_index_knows_the_methods_and_not_the_source_files(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    places = [entry["location"] for entry in index["docs"]]
    assert "methods.html#fedprox" in places
    assert not any(place.startswith("repository/src/fedloom/methods/") for place in places)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The address of a small server of the site."""
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    if not is_installed():
        pytest.skip(MISSING)
    with browser() as opened:
        yield opened


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)], ids=["desktop", "phone"])
@pytest.mark.parametrize("page", ["index", "methods", "settings", "cli", "reference/experiments"])
def test_a_page_fits_the_screen_and_asks_nobody_else(
    page: str, width: int, height: int, address: str, window: Browser
) -> None:
    window.screen(width, height, phone=width < 600)
    window.open(f"{address}/{page}.html")
    root = "document.documentElement"
    assert window.run(f"return {root}.scrollWidth - {root}.clientWidth") == 0
    assert window.run("return document.querySelector('h1').getBoundingClientRect().width") > 50
    assert window.messages() == []
    assert {r for r in window.requests() if not r.startswith((address, "data:"))} == set()


def test_search_finds_a_method(address: str, window: Browser) -> None:
    window.screen(1280, 900)
    window.open(f"{address}/index.html?q=fedprox")
    ask = "return [...document.querySelectorAll('.md-search-result__link')].map(e => e.href)"
    until = time.monotonic() + 30
    while not (found := window.run(ask)) and time.monotonic() < until:
        time.sleep(0.1)
    assert any("methods.html" in link for link in found)
    assert window.messages() == []
