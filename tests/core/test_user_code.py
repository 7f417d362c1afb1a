"""Which code of the user is loaded: only what was allowed, and never a function of a library."""

import importlib.metadata
import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import nn

from fedloom.core import user_code
from fedloom.core.errors import UserError
from fedloom.core.user_modules import LIBRARIES

LEAVES_A_MARK = """
from pathlib import Path

Path(__file__).with_name("mark").write_text("was executed")

def build(**options):
    return options
"""


@pytest.fixture(autouse=True)
def _nothing_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_code, "_allowed", set())
    monkeypatch.setattr(user_code, "_origins", {})


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for modules, importable until the end of the test."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_file_is_executed_only_after_it_was_allowed(place: Path) -> None:
    (place / "own.py").write_text(LEAVES_A_MARK)
    reference = f"{place}/own.py:build"
    user_code.note_origin([reference], "x.toml")
    with pytest.raises(UserError, match=r"comes from 'x.toml'.*--trust.*trust=True"):
        user_code.load("method", reference)
    with pytest.raises(UserError, match="--trust"):
        user_code.checksums([reference])
    assert not (place / "mark").exists()
    user_code.allow([reference])
    assert user_code.load("method", reference)(a=1) == {"a": 1}
    assert (place / "mark").exists()


def test_a_module_is_looked_up_only_after_it_was_allowed(place: Path) -> None:
    """To look for a module in a package imports the package."""
    (place / "pack").mkdir()
    (place / "pack/__init__.py").write_text(LEAVES_A_MARK)
    (place / "pack/inner.py").write_text("def build(): ...\n")
    for use in (user_code.checksums, lambda names: user_code.load("model", names[0])):
        with pytest.raises(UserError, match="comes from a settings file or a run folder"):
            use(["pack.inner:build"])
    assert not (place / "pack/mark").exists()
    user_code.allow(["pack.inner:build"])
    user_code.load("model", "pack.inner:build")
    assert (place / "pack/mark").exists()


def test_one_function_of_a_file_does_not_allow_another(place: Path) -> None:
    (place / "own.py").write_text(LEAVES_A_MARK + "\ndef other(): ...\n")
    user_code.allow([f"{place}/own.py:build"])
    with pytest.raises(UserError, match="--trust"):
        user_code.load("method", f"{place}/own.py:other")


def test_a_relative_path_is_the_file_it_leads_to(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "own.py").write_text(LEAVES_A_MARK)
    (place / "folder").mkdir()
    monkeypatch.chdir(place / "folder")
    user_code.allow(["../own.py:build"])
    assert user_code.is_allowed(f"{place}/own.py:build")
    monkeypatch.chdir(place)
    assert not user_code.is_allowed("../own.py:build")


@pytest.mark.parametrize(
    "reference",
    [
        "os:system",
        "posix:system",
        "subprocess:run",
        "builtins:eval",
        "test.support.script_helper:run_python_until_end",
        "numpy:load",
        "torch:load",
        "torch.hub:load",
        "safetensors.torch:load_file",
        "pip:main",
        "setuptools:setup",
        "fedloom.data.store:remove",
        "fedloom.core.user_code:allow",
        "fedloom:open",
    ],
)
@pytest.mark.parametrize("kind", ["method", "model"])
def test_functions_of_libraries_are_never_called(reference: str, kind: str) -> None:
    user_code.allow([reference])
    with pytest.raises(UserError, match=r"settings may not call; write a function of your own"):
        user_code.load(kind, reference)


def test_the_standard_library_is_not_even_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "this", raising=False)
    user_code.allow(["this:s"])
    with pytest.raises(UserError, match="settings may not call"):
        user_code.load("method", "this:s")
    assert "this" not in sys.modules


@pytest.mark.parametrize(
    "text",
    [
        "from os import system as f",
        "f = eval",
        "from torch import load as f",
        "import functools, os\nf = functools.partial(os.system)",
    ],
)
@pytest.mark.parametrize("by", ["reexports.py", "reexports"])
def test_nor_through_a_module_that_imports_them(place: Path, text: str, by: str) -> None:
    (place / "reexports.py").write_text(text)
    reference = f"{place}/{by}:f" if by.endswith(".py") else f"{by}:f"
    user_code.allow([reference])
    with pytest.raises(UserError, match="settings may not call"):
        user_code.load("method", reference)


def test_what_a_user_may_name(place: Path) -> None:
    (place / "helpers.py").write_text("def make(): ...\n")
    (place / "user_own_names.py").write_text(
        "import functools\nfrom helpers import make\nfrom torch import nn\n"
        "class Net(nn.Module): ...\ntwice = functools.partial(Net)\nlayer = nn.Linear(1, 1)\n"
    )
    names = [f"{place}/user_own_names.py:{n}" for n in ("make", "Net", "twice", "layer")]
    names += [
        "user_own_names:Net",
        "user_own_names:twice",
        "user_own_names:layer",
        "torch.nn:Linear",
    ]
    names += ["fedloom.models.simple:mlp", "fedloom.methods.fedprox:fedprox"]
    user_code.allow(names)
    assert all(callable(user_code.load("model", name)) for name in names)
    assert user_code.load("model", "torch.nn:Linear") is nn.Linear


def test_a_module_offers_only_what_its_own_package_defines(place: Path) -> None:
    (place / "helpers.py").write_text("def make(): ...\n")
    (place / "borrows.py").write_text("from helpers import make\n")
    user_code.allow(["borrows:make"])
    with pytest.raises(UserError, match="'borrows:make' is a function of 'helpers'"):
        user_code.load("method", "borrows:make")


@pytest.mark.parametrize(
    "reference",
    ["..:f", "a..b:f", "a/b:f", "../a:f", ".a:f", "a b:f", "a.b.:f", ":f", "a:"],
)
def test_odd_names_are_rejected(reference: str) -> None:
    user_code.allow([reference])
    with pytest.raises(UserError, match=r"write (package|file)"):
        user_code.load("method", reference)


def test_a_nul_character_is_rejected() -> None:
    with pytest.raises(UserError, match=r"NUL character; write file"):
        user_code.allow(["a\0b.py:f"])


@pytest.mark.posix
def test_a_file_must_be_a_regular_file(place: Path) -> None:
    os.mkfifo(place / "pipe.py")
    (place / "folder.py").mkdir()
    (place / "null.py").symlink_to("/dev/null")
    (place / "nowhere.py").symlink_to("missing")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place / "ear.py"))
        for name, told in {
            "pipe": "a named pipe, not a file",
            "folder": "a folder, not a file",
            "null": "a device, not a file",
            "ear": "a socket, not a file",
            "nowhere": "is not a file",
            "x" * 300: "File name too long",
        }.items():
            user_code.allow([f"{place}/{name}.py:f"])
            with pytest.raises(UserError, match=told):
                user_code.load("method", f"{place}/{name}.py:f")


def test_a_link_to_a_regular_file_is_followed(place: Path) -> None:
    (place / "own.py").write_text(LEAVES_A_MARK)
    (place / "link.py").symlink_to("own.py")
    user_code.allow([f"{place}/link.py:build"])
    assert callable(user_code.load("method", f"{place}/link.py:build"))


def test_the_list_of_libraries_is_complete() -> None:
    """Everything that installing fedloom installs; `extra` requirements are the user's choice."""
    found, todo = set(), ["fedloom"]
    while todo:
        for line in importlib.metadata.requires(todo.pop()) or ():
            match = re.match(r"[\w.-]+", line)
            assert match
            name = match[0].lower().replace("_", "-")
            if "extra ==" in line or name in found:
                continue
            try:
                importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue  # for another platform
            found.add(name)
            todo.append(name)
    assert {"torch", "sympy"} <= found
    modules = {
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if {owner.lower().replace("_", "-") for owner in owners} & found
    }
    assert modules <= LIBRARIES


def test_a_module_that_imports_on_first_use_lists_what_it_offers(place: Path) -> None:
    """As transformers does; its names are not in vars()."""
    (place / "lazy_models.py").write_text("__dir__ = lambda: ['Bert', 'Llama']\n")
    (place / "empty_models.py").write_text("")
    user_code.allow(["lazy_models:Lama", "empty_models:Lama"])
    with pytest.raises(UserError, match=r"did you mean 'Llama'\? \(choices: Bert, Llama\)"):
        user_code.load("model", "lazy_models:Lama")
    with pytest.raises(UserError, match=r"\(choices: none\)"):
        user_code.load("model", "empty_models:Lama")
