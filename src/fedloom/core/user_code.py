"""User-defined functions, referred to as `file.py:function` or `package.module:function`.

A reference can stand wherever a built-in method or model is named. It is text, so it can be saved
in a run folder and loaded in a worker process.

It can also stand in a settings file or a run folder that someone else has written, and to load it
is to run code. So `load` refuses every reference until `allow` has been called with it: by the
command line for what was typed, by the Python interface for what was passed, and with `--trust` or
`trust=True` for what a file names. What is allowed holds for the process, like sys.modules: code
that was loaded once has run for the whole process, and a check at the one place where code is
loaded cannot be forgotten on the way there.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fedloom.core.errors import UserError, unknown_name
from fedloom.core.source_files import file_sha256, local_imports
from fedloom.core.user_modules import (
    check_definition,
    check_module_name,
    module_by_name,
    module_from_file,
)

T = TypeVar("T")
_DIGEST = re.compile(r"-[0-9a-f]{12}$")
VALUE_PREFIX = "python:"  # marks the name of an object passed as a value, which has no reference
_allowed: set[str] = set()
_origins: dict[str, str] = {}  # where a reference that nobody typed was read, for the error message


def is_reference(name: str) -> bool:
    """Whether the name refers to a user-defined function."""
    return ":" in name


def absolute_reference(name: str) -> str:
    """The name with the path of a user's file made absolute, so that it is valid in any folder."""
    place, colon, function = name.rpartition(":")
    if "\0" in name:
        raise UserError(f"{name!r} contains a NUL character; write file.py:function")
    # not Path.resolve, which raises for a link to itself
    return f"{os.path.realpath(place)}{colon}{function}" if place.endswith(".py") else name


def allow(names: Iterable[str]) -> None:
    """Let this process load these references; names that are not references are skipped."""
    _allowed.update(absolute_reference(name) for name in names if is_reference(name))


def allowed() -> list[str]:
    """The references that this process may load."""
    return sorted(_allowed)


def is_allowed(name: str) -> bool:
    """Whether this process may load the reference."""
    return absolute_reference(name) in _allowed


def note_origin(names: Iterable[str], origin: str) -> None:
    """Remember in which file or folder names were read, to say so if they are refused."""
    _origins.update((absolute_reference(name), origin) for name in names if is_reference(name))


def check_allowed(kind: str, name: str) -> None:
    """Raise for a reference that was not allowed. kind: what it is, for the message."""
    if is_allowed(name):
        return
    origin = _origins.get(absolute_reference(name))
    source = "a settings file or a run folder" if origin is None else f"'{origin}'"
    raise UserError(
        f"{kind} '{name}' comes from {source}, not from the command line, and would be executed; "
        "read that code, and if you trust it repeat the command with --trust "
        "(from Python: trust=True)"
    )


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

    With them go the user's own files that they import, by file. Names that are not references are
    skipped.
    """
    references = [n for n in names if is_reference(n) and not n.startswith(VALUE_PREFIX)]
    for reference in references:
        check_allowed("code", reference)  # to look for a module imports the packages around it
    places = sorted({name.rpartition(":")[0] for name in references})
    sums = {}
    for place in places:
        source = _source_file(place)
        if source is None or not source.is_file():
            continue
        sums[place] = file_sha256(source)
        module = "" if place.endswith(".py") else place
        sums |= {str(file): file_sha256(file) for file in local_imports(source, module)}
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
    """The function that a reference names, if it is allowed; kind: what it is, for messages.

    Raises a UserError for code that was not allowed, and for functions that no reference may name.
    """
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
    from_file = place.endswith(".py")
    if not from_file:
        check_module_name(kind, place)
    check_allowed(kind, reference)
    module = module_from_file(kind, Path(place)) if from_file else module_by_name(kind, place)
    function = getattr(module, name, None)
    if not callable(function):
        functions = [
            n
            for n, v in vars(module).items()
            if callable(v) and n[0] != "_" and getattr(v, "__module__", None) == module.__name__
        ]
        # a module that imports what it offers on first use lists it in dir() only
        names = functions or [n for n in dir(module) if n[0] != "_"]
        raise unknown_name("function", name, names, place=place)
    check_definition(kind, reference, module, function)
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
