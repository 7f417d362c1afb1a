"""User-defined functions, referred to as `file.py:function` or `package.module:function`.

A reference can stand wherever a built-in method or model is named. It is text, so it can be saved
in a run folder and loaded in a worker process.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from fedloom.core.errors import UserError, unknown_name

T = TypeVar("T")
_DIGEST = re.compile(r"-[0-9a-f]{12}$")
VALUE_PREFIX = "python:"  # marks the name of an object passed as a value, which has no reference


def is_reference(name: str) -> bool:
    """Whether the name refers to a user-defined function."""
    return ":" in name


def absolute_reference(name: str) -> str:
    """The name with the path of a user's file made absolute, so that it is valid in any folder."""
    place, colon, function = name.rpartition(":")
    # not Path.resolve, which raises for a link to itself
    return f"{os.path.realpath(place)}{colon}{function}" if place.endswith(".py") else name


def short_reference(name: str) -> str:
    """The name for tables: without the folders of a user's file, or the digest of a value."""
    place, colon, function = name.rpartition(":")
    if place.endswith(".py"):
        return f"{Path(place).name}{colon}{function}"
    if name.startswith(VALUE_PREFIX):
        return _DIGEST.sub("", name.removeprefix(VALUE_PREFIX))
    return name


def reference_to(function: Callable[..., Any]) -> str | None:
    """The name `package.module:function` by which any process can import the function.

    None if there is none: a lambda, a function inside another one, or one that was defined in a
    notebook or in the script that is being run.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module in (None, "__main__") or not name.isidentifier():
        return None
    found = getattr(sys.modules.get(str(module)), name, None)
    spec = importlib.util.find_spec(str(module)) if found is function else None
    return f"{module}:{name}" if spec is not None and spec.has_location else None


def checksums(names: Iterable[str]) -> dict[str, str]:
    """SHA-256 of the source files that these names refer to, by file or module.

    Names that are not references are skipped. Files that a source file imports are not included.
    """
    places = sorted({name.rpartition(":")[0] for name in names if is_reference(name)})
    sums = {}
    for place in places:
        source = _source_file(place)
        if source is not None:
            sums[place] = hashlib.sha256(source.read_bytes()).hexdigest()
    return sums


def _source_file(place: str) -> Path | None:
    """The source file of a file or module; None for a module without one."""
    if place.endswith(".py"):
        return Path(place)
    spec = importlib.util.find_spec(place)
    if spec is None or spec.origin is None or not spec.has_location:
        return None
    return Path(spec.origin)


def load(kind: str, reference: str) -> Callable[..., Any]:
    """Import the function that a reference names; kind: what it is, for error messages."""
    if reference.startswith(VALUE_PREFIX):
        raise UserError(
            f"{kind} '{short_reference(reference)}' was passed as a Python object, which "
            f"settings cannot bring back; pass it again: fedloom.open(FOLDER, {kind}=...)"
        )
    place, _, name = reference.rpartition(":")
    if not place or not name:
        raise UserError(
            f"{kind} '{reference}' is incomplete; write file.py:function or package.module:function"
        )
    module = _from_file(kind, Path(place)) if place.endswith(".py") else _from_name(kind, place)
    function = getattr(module, name, None)
    if not callable(function):
        functions = [n for n, v in vars(module).items() if callable(v) and n[0] != "_"]
        raise unknown_name(f"function in {place}", name, functions)
    return function  # type: ignore[no-any-return]


def call_user_function(
    kind: str, reference: str, wanted: type[T], make: Callable[..., Any], args: Mapping[str, Any]
) -> T:
    """make(**args), which must return a `wanted`; any error becomes a UserError that names it."""
    try:
        result = make(**args)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"{kind} '{reference}' raised {type(error).__name__}: {error}; fix the function"
        ) from error
    if not isinstance(result, wanted):
        raise UserError(
            f"{kind} '{reference}' returned a {type(result).__name__}, not a {wanted.__name__}; "
            "fix the function"
        )
    return result


def _from_file(kind: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise UserError(
            f"{kind} '{path}' is not a file; give the path to a Python file as file.py:function"
        )
    # the hash separates files of the same name in different folders
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    name = f"fedloom_user_{path.stem}_{digest}"
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


def _from_name(kind: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        raise UserError(
            f"{kind} module '{name}' cannot be imported: {cause}; "
            "install or fix it, or give file.py:function"
        ) from error
