"""Every block of code on every page is run or checked.

Python and shell blocks run page by page, in order, in an empty folder that has docs/examples in it
(page_runner.py). TOML blocks are loaded as settings, JSON blocks are parsed, and `text` and
`console` blocks are output. A block that cannot run has a comment directly before it,

    <!-- not executed: it needs a Ray cluster -->

and is still compiled, or its commands parsed. Generated parts of pages come from docstrings and
help texts, which are tested where they are written; their commands are parsed in test_commands.py.
"""

import json
import re
import tomllib
from pathlib import Path

import pytest
from page_runner import PageRunner
from reading import BLOCK, GENERATED, ROOT, Block, blocks, named, pages

from fedloom.experiment.prepare import check_names
from fedloom.settings.config import load

PAGES = [page for page in pages() if blocks(page)]
README = ROOT / "README.md"
OUTPUT = ("text", "console")
MOST_EXCEPTIONS = 18  # raise it only for what truly cannot run in a test


def of_kind(*languages: str) -> list[Block]:
    return [block for page in PAGES for block in blocks(page) if block.language in languages]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=() if page == README else pytest.mark.slow)
        for page in PAGES
        if {block.language for block in blocks(page)} & {"python", "sh"}
    ],
    ids=named,
)
def test_the_blocks_of_a_page_run_in_their_order(page: Path, place: Path) -> None:
    with PageRunner(place) as runner:
        for block in blocks(page):
            if block.reason is None:
                runner.run(block)


@pytest.mark.parametrize("block", of_kind("python"), ids=str)
def test_python_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec")


@pytest.mark.parametrize("block", of_kind("toml"), ids=str)
def test_toml_holds_valid_settings(block: Block) -> None:
    settings = tomllib.loads(block.text)
    if block.reason is None:
        check_names(load(settings, block.text))


def test_json_parses() -> None:
    for block in of_kind("json"):  # there may be none
        assert json.loads(block.text) is not None, str(block)


def test_every_block_is_of_a_kind_that_is_checked() -> None:
    known = {"python", "sh", "toml", "json", *OUTPUT}
    unknown = {str(b): b.language for p in PAGES for b in blocks(p) if b.language not in known}
    assert unknown == {}


def test_no_command_hides_in_an_indented_block() -> None:
    for page in pages():
        text = BLOCK.sub("", GENERATED.sub("", page.read_text(encoding="utf-8")))
        assert re.findall(r"^    (?:fedloom|python|pip|import|from) .*$", text, re.MULTILINE) == []


def test_few_blocks_are_not_executed_and_each_says_why() -> None:
    exceptions = [b for p in PAGES for b in blocks(p) if b.reason is not None]
    assert [str(b) for b in exceptions if len(str(b.reason).split()) < 3] == []
    assert [str(b) for b in exceptions if b.language in (*OUTPUT, "json")] == []
    by_other_tests = [b for b in exceptions if "; tests/" in str(b.reason)]
    assert len(exceptions) - len(by_other_tests) <= MOST_EXCEPTIONS


def test_every_exception_stands_directly_before_a_block() -> None:
    for page in pages():
        assert "<!-- not executed" not in BLOCK.sub("", page.read_text(encoding="utf-8")), page


PAGE = """Text.

```python
# tools.py
def seven():
    return 7
```

<!-- not executed: it would never end -->
```sh
fedloom watch runs
```

<!-- begin part -->

```sh
generated
```

<!-- end part -->

1. In a list:

   ```python
   import tools
   assert tools.seven() == seven()
   ```
"""


def write(folder: Path, text: str) -> list[Block]:
    page = folder / "page.md"
    page.write_text(text)
    return blocks(page)


def test_what_is_read_from_a_page(tmp_path: Path) -> None:
    first, second, third = write(tmp_path, PAGE)
    assert (first.line, first.language, first.reason) == (3, "python", None)
    assert (second.text, second.reason) == ("fedloom watch runs\n", "it would never end")
    assert third.text.startswith("import tools\nassert")


def test_a_page_runs_as_one_session_with_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reading.ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)
    first, _, third = write(tmp_path, PAGE)
    with PageRunner(tmp_path) as runner:
        runner.run(first)
        runner.run(third)


@pytest.mark.parametrize(
    ("language", "text", "message"),
    [
        ("python", "print(missing)", "NameError: name 'missing' is not defined"),
        ("python", "raise SystemExit(3)", "SystemExit: 3"),
        ("sh", "fedloom run --method nonsense", "nonsense"),
        ("sh", "test -e missing", "page.md:1"),
        ("sh", "echo hello > made\nfalse", "page.md:1"),
    ],
)
def test_a_block_that_fails_is_named(
    language: str, text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reading.ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)
    (block,) = write(tmp_path, f"```{language}\n{text}\n```\n")
    with pytest.raises(AssertionError, match=message), PageRunner(tmp_path) as runner:
        runner.run(block)


TRUST = """```python
# mine.py
import fedloom as fl


def mine():
    \"\"\"A method.\"\"\"
    return fl.Method("mine")
```

```toml
# mine.toml
method = "mine.py:mine"
```

```sh
fedloom methods mine.py:mine
fedloom check mine.toml
```
"""


def test_a_command_does_not_trust_what_an_earlier_one_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a shell, where every command is a process of its own."""
    monkeypatch.setattr("reading.ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)
    *files, commands = write(tmp_path, TRUST)
    with PageRunner(tmp_path) as runner:
        for block in files:
            runner.run(block)
        with pytest.raises(AssertionError, match=r"(?s)check.*--trust"):
            runner.run(commands)
