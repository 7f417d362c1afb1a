"""The page as one HTML file that needs nothing else: no network, no other file.

A content security policy lets browsers run only the script of this package, which is recognised by
its checksum. Even if a name in a run were taken for markup, it could neither run nor load anything.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from importlib import resources

import fedloom
from fedloom.reports.colours import PALETTE
from fedloom.reports.comparison import Comparison
from fedloom.reports.page.analysis import analysis
from fedloom.reports.page.classes import classes
from fedloom.reports.page.clients import clients
from fedloom.reports.page.cost import cost
from fedloom.reports.page.curves import curves
from fedloom.reports.page.differences import differences
from fedloom.reports.page.facts import Facts, Kept
from fedloom.reports.page.html import Html, element, joined
from fedloom.reports.page.machine import machine
from fedloom.reports.page.metrics import metrics
from fedloom.reports.page.partition import partition
from fedloom.reports.page.repeat import repeat
from fedloom.reports.page.results import results
from fedloom.reports.page.shades import shades
from fedloom.reports.page.summary import summary
from fedloom.reports.page.trouble import trouble

SECTIONS: dict[str, Callable[[Facts], Html | None]] = {
    "curves": curves,
    "results": results,
    "metrics": metrics,
    "differences": differences,
    "partition": partition,
    "classes": classes,
    "clients": clients,
    "cost": cost,
    "curvature": analysis,
    "rejected": trouble,
    "rerun": repeat,
    "machine": machine,
}


def render(comparison: Comparison, state: str | None = None, kept: Kept | None = None) -> str:
    """The page of a comparison. state: of a live page, which asks whether it has changed."""
    facts = Facts(comparison, kept)
    made = {name: part(facts) for name, part in SECTIONS.items()}
    title = " and ".join(dict.fromkeys([facts.rows[0].name, facts.rows[-1].name]))
    if len(facts.rows) > 2:
        title = f"{len(facts.rows)} methods compared"
    links = [
        element("li", element("a", name, href=f"#{name}")) for name, part in made.items() if part
    ]
    body = joined(
        [
            element("header", element("h1", title)),
            element("main", summary(facts), element("nav", element("ul", *links)), *made.values()),
        ]
    )
    return document(title, body, state)


def document(title: str, body: Html, state: str | None = None) -> str:
    """A complete page around its body."""
    style, script = Html(_file("page.css") + _colours() + shades()), Html(_file("page.js"))
    asks = "'none'" if state is None else "'self'"
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        f"connect-src {asks}; base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{title} - fedloom"),
        element("style", style),
    )
    footer = element("footer", f"Made with fedloom {fedloom.__version__}.")
    whole = element("body", body, footer, element("script", script), data_state=state)
    return f"<!doctype html>\n{element('html', head, whole, lang='en')}\n"


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _colours() -> str:
    """A class for every colour of the palette, for dark and light mode."""
    light = "".join(f".c{n}{{color:{one}}}" for n, (one, _) in enumerate(PALETTE))
    dark = "".join(f".c{n}{{color:{other}}}" for n, (_, other) in enumerate(PALETTE))
    return f"{light}@media screen and (prefers-color-scheme:dark){{{dark}}}\n"
