"""Imports the module or file of a reference, and refuses functions that no reference may name.

A function that a reference names is called with arguments out of settings. `os:system` would thus
make a shell of every settings file. So the standard library and the libraries that fedloom is built
on are always out of reach, and so is a function that a module has only imported from them.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import stat
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from fedloom.core.errors import UserError, shown_text
from fedloom.core.regular_files import kind_of

# What `pip install fedloom` brings, with everything that needs in turn; a test compares.
LIBRARIES = frozenset(
    {
        "_distutils_hack",
        "annotated_types",
        "click",
        "colorama",  # of click, on Windows
        "filelock",
        "fsspec",
        "functorch",
        "isympy",
        "jinja2",
        "markdown_it",
        "markupsafe",
        "mdurl",
        "mpmath",
        "networkx",
        "numpy",
        "nvidia",
        "pip",
        "pkg_resources",
        "pydantic",
        "pydantic_core",
        "pygments",
        "rich",
        "safetensors",
        "setuptools",
        "shellingham",
        "sympy",
        "torch",
        "torchgen",
        "triton",
        "typer",
        "typing_extensions",
        "typing_inspection",
    }
)
_FILE_PREFIX = "fedloom_user_"  # begins the names under which users' files are loaded
_OWN_PACKAGES = ("fedloom.methods", "fedloom.models")  # the functions of fedloom made to be named


def module_from_file(kind: str, path: Path) -> ModuleType:
    """Execute a user's file, once per process. kind: what is wanted of it, for error messages."""
    _check_file(kind, path)
    # the hash separates files of the same name in different folders
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    name = f"{_FILE_PREFIX}{path.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(
            f"{kind} file '{path}' cannot be loaded: {type(error).__name__}: {error}; fix the file"
        ) from error
    sys.modules[name] = module
    return module


def _check_file(kind: str, path: Path) -> None:
    """Raise unless the path leads to a regular file; a link to one is fine."""
    remedy = "give the path to a Python file as file.py:function"
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise UserError(f"{kind} '{path}' is not a file; {remedy}") from None
    except OSError as error:
        raise UserError(
            f"{kind} '{shown_text(str(path))}' cannot be read: {error.strerror}; "
            "give the path of another file"
        ) from None
    if not stat.S_ISREG(mode):
        raise UserError(f"{kind} '{path}' is {kind_of(mode)}, not a file; {remedy}")


def check_module_name(kind: str, name: str) -> None:
    """Raise, before anything is imported, for a module whose functions may not be named."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise UserError(
            f"{kind} module {name!r} is not the name of a module; "
            "write package.module:function or file.py:function"
        )
    if not may_be_named(kind, name):
        raise _out_of_reach(kind, f"{name}:...", name)


def may_be_named(kind: str, reference: str) -> bool:
    """Whether settings may name functions of the module of a reference."""
    name = reference.partition(":")[0]
    top = name.partition(".")[0]
    if top == "torch" and kind == "model":
        return True  # its modules are models; check_definition rejects everything else in it
    return not (_is_library(top) or (top == "fedloom" and not _is_below(name, _OWN_PACKAGES)))


def module_by_name(kind: str, name: str) -> ModuleType:
    """Import a module by its dotted name."""
    try:
        return importlib.import_module(name)
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        raise UserError(
            f"{kind} module '{name}' cannot be imported: {cause}; "
            "install or fix it, or give file.py:function"
        ) from error


def check_definition(kind: str, reference: str, module: ModuleType, function: Any) -> None:
    """Raise for a function that the module has only imported, and from where it should not.

    A file may import its functions from anywhere but the libraries; a module, from its own package.
    """
    while isinstance(function, functools.partial):
        function = function.func
    defined_in = str(getattr(function, "__module__", None) or "builtins")
    if kind == "model" and _is_torch_module(function):
        return
    top = defined_in.partition(".")[0]
    from_file = module.__name__.startswith(_FILE_PREFIX)
    if _is_library(top) or not (from_file or top == module.__name__.partition(".")[0]):
        raise _out_of_reach(kind, reference, defined_in)


def _is_library(top: str) -> bool:
    """Whether a top-level module is part of Python or of what fedloom is built on."""
    return top in sys.stdlib_module_names or top in LIBRARIES or _ships_with_python(top)


def _ships_with_python(top: str) -> bool:
    """For modules that sys.stdlib_module_names leaves out, such as `test`. Imports nothing."""
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # a module without one, such as the script that is being run
        return False
    if spec is None or not spec.has_location or spec.origin is None:
        return False
    folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    origin = Path(spec.origin)
    inside = any(origin.is_relative_to(folder) for folder in folders)
    return inside and "site-packages" not in origin.parts and "dist-packages" not in origin.parts


def _is_below(name: str, packages: tuple[str, ...]) -> bool:
    return any(f"{name}.".startswith(f"{package}.") for package in packages)


def _is_torch_module(function: Callable[..., Any]) -> bool:
    from torch import nn

    return isinstance(function, nn.Module) or (
        isinstance(function, type) and issubclass(function, nn.Module)
    )


def _out_of_reach(kind: str, reference: str, module: str) -> UserError:
    return UserError(
        f"{kind} '{reference}' is a function of '{module}', which settings may not call; "
        "write a function of your own in a file, and name it as file.py:function"
    )
