"""The pages: no generated part is stale, no link is dead, and mistakes are reported."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import docparts.markdown
import pytest
from docparts import BLOCKS
from reading import ROOT, anchors, links, named, pages

import docs

README = "# Title\n\n<!-- begin presets -->\n<!-- end presets -->\n\nby hand\n"
every_page = pytest.mark.parametrize("page", pages(), ids=named)


def test_no_page_is_stale_in_any_folder_or_terminal(tmp_path: Path) -> None:
    environment = os.environ | {
        "COLUMNS": "30",
        "TERM": "dumb",
        "PYTHONHASHSEED": "7",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(ROOT / "scripts" / "docs.py"), "--check"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with two pages, one of them without generated parts."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(README)
    (tmp_path / "docs" / "other.md").write_text(
        "`<!-- begin presets -->` in a sentence is no mark\n"
    )
    return tmp_path


def test_a_stale_page_is_named_and_then_written(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"^stale: README\.md; write them with: make docs$"):
        docs.main(["--check"], tree)
    assert (tree / "README.md").read_text() == README
    docs.main([], tree)
    assert capsys.readouterr().out == "wrote README.md\n"
    docs.main(["--check"], tree)
    text = (tree / "README.md").read_text()
    assert text.startswith("# Title\n\n<!-- begin presets -->\n\n| preset |")
    assert text.endswith(" |\n\n<!-- end presets -->\n\nby hand\n")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("<!-- begin presets -->\n", r"README\.md: '<!-- begin presets -->' has no partner"),
        (
            "<!-- begin presets -->\n<!-- end methods -->\n",
            r"README\.md: '<!-- begin presets -->' has no partner",
        ),
        (
            "<!-- begin nonsense -->\n<!-- end nonsense -->\n",
            r"README\.md: no part 'nonsense' in scripts/docparts \(choices: ",
        ),
    ],
    ids=["no end", "another end", "no such part"],
)
def test_wrong_marks_are_rejected(tree: Path, text: str, sentence: str) -> None:
    (tree / "README.md").write_text(text)
    with pytest.raises(SystemExit, match=sentence):
        docs.main([], tree)


def test_every_part_is_on_a_page() -> None:
    used = [
        m["name"]
        for page in docs.pages(ROOT)
        for m in docs.BLOCK.finditer(page.read_text(encoding="utf-8"))
    ]
    assert sorted(used) == sorted(BLOCKS)


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), f"{target} is not there"
        assert not anchor or anchor in anchors(place), f"{target}: no such heading"


@every_page
def test_no_path_of_this_machine(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert str(ROOT) not in text
    assert not re.search(r"/(?:home|root|Users)/\w", text)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 180


def test_doctests_of_the_generator() -> None:
    found = doctest.testmod(docparts.markdown)
    assert found.attempted >= 3
    assert found.failed == 0
