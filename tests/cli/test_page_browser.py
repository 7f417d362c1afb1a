"""The report page in a real browser: what is on screen, sorting, and that it talks to nobody."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.talk import TINY, fedloom, run
from cli.test_report_page import HOSTILE, hostile_run
from cli.test_watch import serving
from support.browser import MISSING, Browser, browser, is_installed

pytestmark = [
    pytest.mark.skipif(not is_installed(), reason=MISSING),
    pytest.mark.xdist_group("browser"),
]
CELLS = """return [...document.querySelectorAll('#results tbody tr')]
  .map(row => row.cells[{}].textContent.trim())"""
SCREENS = [(1280, 900, False), (390, 844, True), (320, 568, True)]


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def page(home: Path) -> Path:
    """The page of a comparison; what a test does to it happens in the browser only."""
    words = ("--methods", "fedavg,fedprox(mu=1),ditto,scaffold", *TINY, "--seeds", 2)
    fedloom("compare", *words, "--rounds", 3, "--out", home / "all")
    folders = sorted(p.parent for p in home.glob("all/*/*/config.toml"))
    fedloom("report", *folders, "--html", home / "page.html")
    return home / "page.html"


def is_quiet(window: Browser, *known: str) -> bool:
    """Nothing in the console, and no request but for the page itself."""
    assert window.messages() == []
    assert set(window.requests()) <= set(known)
    return True


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height", "phone"), SCREENS)
def test_everything_fits_on_the_screen(
    window: Browser, page: Path, width: int, height: int, phone: bool, scheme: str
) -> None:
    window.screen(width, height, phone, scheme)
    window.open(page.as_uri())
    assert window.run("return document.documentElement.scrollWidth") <= width
    wide = "return [...document.querySelectorAll('svg:not(.swatch)')].map(s => s.clientWidth)"
    charts = window.run(wide)
    assert len(charts) >= 7 and all(200 < chart <= width for chart in charts)
    paper = window.run("return getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") is (scheme == "light")
    assert "fedprox(mu=1)" in window.run("return document.body.innerText")
    assert is_quiet(window, page.as_uri())


def test_every_method_has_one_colour_in_all_charts(window: Browser, page: Path) -> None:
    window.screen(1280, 900)
    window.open(page.as_uri())
    found = window.run("""return [...document.querySelectorAll('.legend li, td')]
      .filter(item => item.querySelector('.swatch .line'))
      .map(item => [item.textContent.trim().replace(/ \\(same.*/, ''),
                    getComputedStyle(item.querySelector('.line')).stroke])""")
    colours = {name: {c for n, c in found if n == name} for name, _ in found}
    assert {"fedavg", "ditto", "scaffold"} <= set(colours)
    assert all(len(each) == 1 for each in colours.values())
    assert len(set.union(*colours.values())) == len(colours)


def test_a_click_sorts_and_a_second_one_turns_it_round(window: Browser, page: Path) -> None:
    window.screen(1280, 900)
    window.open(page.as_uri())
    before = [float(cell) for cell in window.run(CELLS.format(1))]
    assert len(before) == 4
    window.click("#results th:nth-child(2) button")
    assert [float(c) for c in window.run(CELLS.format(1))] == sorted(before, reverse=True)
    window.click("#results th:nth-child(2) button")
    assert [float(c) for c in window.run(CELLS.format(1))] == sorted(before)
    window.click("#results th:nth-child(1) button")
    window.click("#results th:nth-child(1) button")
    assert window.run(CELLS.format(0)) == ["ditto", "fedavg", "fedprox(mu=1)", "scaffold"]
    # units are compared by what they mean
    window.run("""[...document.querySelectorAll('#cost tbody tr')].forEach((row, n) =>
      { row.cells[2].textContent = ['900 kB', '1.1 GB', '20 MB', '3 TB'][n]; })""")
    window.click("#cost th:nth-child(3) button")
    sent = window.run("""return [...document.querySelectorAll('#cost tbody tr')]
      .map(row => row.cells[2].textContent)""")
    assert sent == ["3 TB", "1.1 GB", "20 MB", "900 kB"]
    assert is_quiet(window, page.as_uri())


def test_values_appear_under_the_pointer(window: Browser, page: Path) -> None:
    window.screen(1280, 900)
    window.open(page.as_uri())
    shown = window.run("""const hit = document.querySelectorAll('#curves .hit')[1];
      hit.dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: 9, clientY: 9}));
      const tip = document.getElementById('tip');
      return [tip.hidden, tip.textContent];""")
    assert shown[0] is False and shown[1].startswith("round 2\n") and "% fedavg" in shown[1]


def test_the_tables_are_there_without_javascript(window: Browser, page: Path) -> None:
    window.protocol("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        window.screen(1280, 900)
        window.open(page.as_uri())
        window.protocol("Emulation.setScriptExecutionDisabled", {"value": False})
        assert len(window.run(CELLS.format(1))) == 4
        assert window.run("return document.querySelectorAll('th button').length") == 0
    finally:
        window.protocol("Emulation.setScriptExecutionDisabled", {"value": False})


def test_a_run_of_a_stranger_cannot_run_a_script(window: Browser, desk: Path) -> None:
    folder = hostile_run(desk)
    fedloom("report", folder, "--html", "page.html")
    window.open((desk / "page.html").as_uri())  # an alert would make every later command fail
    assert HOSTILE in window.run("return document.body.textContent")
    assert is_quiet(window, (desk / "page.html").as_uri())
    # and if markup did slip through, the policy of the page would stop it
    window.run("""document.body.insertAdjacentHTML('beforeend',
      '<img src="https://example.invalid/x" onerror="document.title=1">');""")
    assert window.run("return document.title") != "1"
    refusals = [line for line in window.messages() if "Content Security Policy" in line]
    assert any("example.invalid" in line for line in refusals)  # it was not even asked for


def test_the_live_page_updates_itself(window: Browser, desk: Path) -> None:
    run(desk / "a")
    (desk / "a/result.json").unlink()
    last = json.loads((desk / "a/metrics.jsonl").read_text().splitlines()[-1])
    with serving(desk / "a") as port:
        home = f"http://127.0.0.1:{port}/"
        window.open(home)
        assert "too late" not in window.run("return document.body.textContent")
        with (desk / "a/metrics.jsonl").open("a") as file:
            file.write(json.dumps({**last, "round": 4, "rejected": {"2": "too late"}}) + "\n")
        end = time.monotonic() + 30
        while "too late" not in window.run("return document.body.textContent"):
            assert time.monotonic() < end, "the page did not update itself"
            time.sleep(0.2)
        assert set(window.requests()) <= {home, f"{home}state", f"{home}favicon.ico"}
        window.open("about:blank")
