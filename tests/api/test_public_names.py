"""The names that `import fedloom` offers: all of them exist, are documented and are typed."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import fedloom

PACKAGES = ("data", "losses", "methods", "models", "stages", "trackers")


@pytest.mark.parametrize("name", fedloom._EXPORTS)
def test_a_public_name_exists_and_is_documented(name: str) -> None:
    assert name in dir(fedloom) and name in fedloom.__all__
    assert inspect.getdoc(getattr(fedloom, name))


@pytest.mark.parametrize("package", PACKAGES)
def test_the_names_of_a_public_module_exist(package: str) -> None:
    module = importlib.import_module(f"fedloom.{package}")
    assert getattr(fedloom, package) is module
    assert module.__all__ and set(module.__all__) == set(dir(module))
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'fedloom' has no attribute 'Experment'"):
        fedloom.Experment  # type: ignore[attr-defined]  # noqa: B018


def test_type_checkers_see_the_same_names() -> None:
    """The block under TYPE_CHECKING imports exactly the names that are exported."""
    tree = ast.parse(Path(str(fedloom.__file__)).read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname or alias.name for node in imports for alias in node.names}
    assert seen == set(fedloom._EXPORTS)


def test_there_are_few_of_them() -> None:
    assert 25 <= len(fedloom._EXPORTS) <= 33
