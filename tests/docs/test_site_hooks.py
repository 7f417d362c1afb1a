"""The parts of the site's build that can be tested without building it."""

import doctest
import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from reading import ROOT

TOOLS = 'needs the site\'s tools: pip install "fedloom[site]"'
for tool in ("mkdocs", "griffe", "jupytext"):
    pytest.importorskip(tool, reason=TOOLS)
sys.path.insert(0, str(ROOT / "scripts" / "site"))
docstrings, llms, notebooks, output, reference, repository = (
    importlib.import_module(name)
    for name in ("docstrings", "llms", "notebooks", "output", "reference", "repository")
)
NOTEBOOK = """# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown]
# # A title
#
# Some *text*.

# %%
import fedloom as fl

print(fl.__version__)
"""


def test_a_notebook_becomes_a_page_and_a_file(tmp_path: Path) -> None:
    (tmp_path / "first.py").write_text(NOTEBOOK)
    (place, notebook), (page, text) = notebooks.notebook_files(tmp_path)
    assert (place, page) == ("notebooks/first.ipynb", "notebooks/first.md")
    cells = json.loads(notebook)["cells"]
    assert [cell["cell_type"] for cell in cells] == ["markdown", "code"]
    assert text == (
        "# A title\n\nDownload as a [Jupyter notebook](first.ipynb) or as a [script](first.py).\n\n"
        "Some *text*.\n\n```python\nimport fedloom as fl\n\nprint(fl.__version__)\n```\n"
    )


@pytest.fixture
def small(tmp_path: Path) -> Any:
    """A repository with a page that links to files of all kinds."""
    files = {
        "README.md": "# Read me\n\n[docs/page.md](docs/page.md#here)",
        "CONTRIBUTING.md": "# Contributing",
        "CHANGELOG.md": "# Changes",
        "LICENSE": "Do what you like.\n",
        "src/tool.py": "pass\n",
        "docs/page.md": "# Page\n\n[../README.md](../README.md#why) [tool](../src/tool.py)\n"
        "[l](../LICENSE) [example](examples/e.py) [n](notebooks/n.py) ![p](img/p.png) "
        "[gone](../missing.md) [out](https://example.org/x.md)\n\n"
        "```sh\n[code](../README.md)\n```\n",
        "docs/examples/e.py": "print(1)\n",
        "docs/notebooks/n.py": "# %%\n1\n",
        "docs/img/p.png": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return repository.Repository(tmp_path)


def test_links_to_files_of_the_repository(small: Any) -> None:
    files = dict(small.files())
    assert set(files) == {
        *("project/readme.md", "project/contributing.md", "project/changelog.md"),
        *("repository/LICENSE.md", "repository/src/tool.py.md", "examples/e.py.md"),
    }
    assert "````python\npass\n````" in files["repository/src/tool.py.md"]
    page = (small.root / "docs" / "page.md").read_text()
    assert small.with_links(page, "page.md") == (
        "# Page\n\n[Read me](project/readme.md#why) [tool](repository/src/tool.py.md)\n"
        "[l](repository/LICENSE.md) [example](examples/e.py.md) [n](notebooks/n.md) "
        "![p](img/p.png) [gone](../missing.md) [out](https://example.org/x.md)\n\n"
        "```sh\n[code](../README.md)\n```\n"
    )
    assert small.with_links(files["project/readme.md"], "project/readme.md") == (
        "# Read me\n\n[Page](../page.md#here)"
    )


def test_sections_become_directives_that_keep_their_anchors() -> None:
    page = (
        "# Title\n\n<!-- begin api-modules -->\n\n## fl.open\n\ntext\n\n### fl.data.load\n\ntext\n"
        "\n<!-- end api-modules -->\n\n## fl.kept\n"
    )
    found = reference.with_directives(page)
    assert '<a id="flopen"></a>\n\n::: fedloom.open\n' in found
    assert '<a id="fldataload"></a>\n\n::: fedloom.data.store.load\n' in found
    assert "heading_level: 3" in found
    assert "text" not in found
    assert found.endswith("\n\n## fl.kept\n")


@pytest.mark.parametrize(
    ("docstring", "markdown"),
    [
        ("One line.", "One line."),
        (
            "a, b   both\nc      with `code` and <tags>",
            "<dd>with <code>code</code> and &lt;tags&gt;",
        ),
        (
            "Text:\n\n    x = 1\n\n    y = 2\n\nmore",
            "Text:\n\n```text\nx = 1\n\ny = 2\n```\n\nmore",
        ),
        ("a   1   2\nno columns", "```text\na   1   2\nno columns\n```"),
    ],
    ids=["prose", "columns", "formula", "other columns"],
)
def test_docstrings_keep_their_layout(docstring: str, markdown: str) -> None:
    assert markdown in docstrings.as_markdown(docstring)


def test_llms_txt(tmp_path: Path) -> None:
    def page(title: str, place: str, section: str) -> SimpleNamespace:
        tab = [SimpleNamespace(title=section)] if section else []
        return SimpleNamespace(title=title, ancestors=tab, file=SimpleNamespace(src_uri=place))

    texts = [
        (page("Home", "README.md", "Home"), "# Home\n\nAll.\n\n| [A](a.md) | what A is |\n"),
        (page("A", "a.md", "Guides"), "# A\n\nFirst. Second."),
        (page("B", "sub/b.md", "Guides"), "# B\n\n![x](y.png)\n\nThe `run...` of e.g. *this*:\n"),
    ]
    llms.write_llms(tmp_path, "name", "About it.", texts)
    assert (tmp_path / "llms.txt").read_text() == (
        "# name\n\n> About it.\n\n## Home\n\n- [Home](README.md): All.\n\n## Guides\n\n"
        "- [A](a.md): What A is.\n- [B](sub/b.md): The `run...` of e.g. *this*.\n"
    )
    assert "First. Second." in (tmp_path / "llms-full.txt").read_text()
    assert (tmp_path / "sub" / "b.md").read_text() == texts[2][1]


@pytest.mark.parametrize("module", [docstrings, llms], ids=lambda m: m.__name__)
def test_doctests(module: Any) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


def test_output_in_columns_is_marked_and_a_message_is_not() -> None:
    block = '<div class="language-text highlight"><pre><span></span><code>{}\n</code></pre></div>'
    message = block.format("error: no method &#39;x&#39;;\n    indented")
    table = block.format("method   accuracy\nfedavg      0.5")
    assert output.with_columns_marked(message) == message
    marked = output.with_columns_marked(message + table)
    assert marked == message + table.replace("language-text", "language-text columns")


def test_output_has_the_class_that_the_style_is_for() -> None:
    style = (ROOT / "scripts/site/theme/assets/site.css").read_text(encoding="utf-8")
    assert ".language-text:not(.columns)" in style
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "pygments_lang_class: true" in settings
