"""A user's own function, named on the command line as `file.py:function` or `package.module:function`."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from fedloom.core.errors import UserError, unknown_name

T = TypeVar("T")
GIVEN = (
    "python:"  # before the name of an object that was passed as a value and has no importable name
)


def is_reference(name: str) -> bool:
    """Whether the name points to a user's own function."""
    return ":" in name


def absolute_reference(name: str) -> str:
    """The name with the path of a user's file made absolute, so that it means the same from anywhere."""
    place, colon, function = name.rpartition(":")
    return f"{Path(place).resolve()}{colon}{function}" if place.endswith(".py") else name


def short_reference(name: str) -> str:
    """The name without the folders of a user's file, for tables."""
    place, colon, function = name.rpartition(":")
    if place.endswith(".py"):
        return f"{Path(place).name}{colon}{function}"
    return name.removeprefix(GIVEN)


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
    """Of the files that the references among these names point to, by file or module. What these import is not looked at."""
    places = sorted({name.rpartition(":")[0] for name in names if is_reference(name)})
    return {
        place: hashlib.sha256(source.read_bytes()).hexdigest()
        for place in places
        if (source := _source(place)) is not None
    }


def _source(place: str) -> Path | None:
    """The file of a place; None for a module without one."""
    if place.endswith(".py"):
        return Path(place)
    spec = importlib.util.find_spec(place)
    return (
        Path(spec.origin)
        if spec is not None and spec.origin is not None and spec.has_location
        else None
    )


def load(kind: str, reference: str) -> Callable[..., Any]:
    """The function a reference points to."""
    if reference.startswith(GIVEN):
        raise UserError(
            f"{kind} '{reference.removeprefix(GIVEN)}' was passed as a Python object, which settings "
            f"cannot bring back; pass it again: fedloom.open(FOLDER, {kind}=...)"
        )
    place, _, function = reference.rpartition(":")
    if not place or not function:
        raise UserError(
            f"{kind} '{reference}' is not of the form file.py:function or package.module:function; write both parts"
        )
    module = _from_file(kind, Path(place)) if place.endswith(".py") else _from_name(kind, place)
    found = getattr(module, function, None)
    if not callable(found):
        raise unknown_name(
            f"function in {place}",
            function,
            [n for n, v in vars(module).items() if callable(v) and n[0] != "_"],
        )
    return found  # type: ignore[no-any-return]


def call_user_function(
    kind: str, reference: str, wanted: type[T], make: Callable[..., Any], args: Mapping[str, Any]
) -> T:
    """What a user's function makes of the arguments; what goes wrong in it is said as the user's own."""
    try:
        result = make(**args)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"{kind} '{reference}' raised {type(error).__name__}: {error}; mend the function"
        ) from error
    if not isinstance(result, wanted):
        raise UserError(
            f"{kind} '{reference}' returned a {type(result).__name__}, not a {wanted.__name__}; mend the function"
        )
    return result


def _from_file(kind: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise UserError(
            f"{kind} '{path}' is not a file; give the path to a Python file as file.py:function"
        )
    name = (
        f"fedloom_user_{path.stem}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}"
    )
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(
            f"{kind} file '{path}' does not load: {type(error).__name__}: {error}; mend the file"
        ) from error
    sys.modules[name] = module
    return module


def _from_name(kind: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise UserError(
            f"{kind} module '{name}' does not import: {said}; install or mend it, or give file.py:function"
        ) from error
