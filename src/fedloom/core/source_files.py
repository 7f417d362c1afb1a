"""Checksums of source code: of fedloom itself, and of the user's files that a file imports.

Imports are read from the syntax of a file, so nothing is executed. What is imported under a name
that only exists at run time, as with importlib.import_module(name), is not found.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
INSTALLED = {"site-packages", "dist-packages"}


def file_sha256(file: Path) -> str:
    """The checksum of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


@functools.cache
def own_source_sha256() -> str:
    """The checksum of all source files of fedloom, as they were when it was first asked for."""
    digest = hashlib.sha256()
    for file in sorted(PACKAGE.rglob("*.py")):
        digest.update(f"{file.relative_to(PACKAGE).as_posix()} {file_sha256(file)}\n".encode())
    return digest.hexdigest()


def local_imports(file: Path, module: str = "") -> list[Path]:
    """The user's own files that a source file imports, directly or through others.

    A file counts if it belongs neither to Python's library nor to an installed package nor to
    fedloom. module: the name under which the file is imported; "" if it is loaded by its path.
    """
    importlib.invalidate_caches()
    file = file.resolve()
    search = [*sys.path, str(file.parent)]
    found: set[Path] = set()
    todo = [(module, file), *_local_parts(module, search)]
    while todo:
        name, source = todo.pop()
        if source in found:
            continue
        found.add(source)
        for imported in _imported_names(source, name):
            todo += _local_parts(imported, search)
    return sorted(found - {file})


def _imported_names(file: Path, module: str) -> Iterator[str]:
    """The names that the import statements of a file may refer to as modules."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):  # loading the file will tell
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, module, file)
            # what is imported from a package may be one of its modules
            yield from (f"{base}.{alias.name}".strip(".") for alias in node.names)


def _base(node: ast.ImportFrom, module: str, file: Path) -> str:
    """The absolute name of the module that `from ... import` names."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    up = node.level - (file.name == "__init__.py")  # a package is its own first dot
    kept = parts[: max(0, len(parts) - up)]
    return ".".join([*kept, *filter(None, [node.module])])


def _local_parts(name: str, search: list[str]) -> list[tuple[str, Path]]:
    """The user's files that a dotted name imports: those of its packages, and its own."""
    parts = name.split(".")
    found: list[tuple[str, Path]] = []
    if parts[0] in sys.stdlib_module_names:
        return found
    path: list[str] | None = search
    for count in range(1, len(parts) + 1):
        prefix = ".".join(parts[:count])
        file, path = _located(prefix, path)
        if file is not None and not _is_local(file):
            break
        if file is not None:
            found.append((prefix, file))
        if path is None:
            break
    return found


def _located(name: str, search: list[str] | None) -> tuple[Path | None, list[str] | None]:
    """The source file of a module, if it has one, and where the modules inside it are found."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    if spec is None:
        try:
            spec = PathFinder.find_spec(name, search)
        except (ImportError, ValueError):
            return None, None
    if spec is None:
        return None, None
    inside = spec.submodule_search_locations
    file = Path(spec.origin) if spec.has_location and spec.origin else None
    return (
        file.resolve() if file is not None and file.suffix == ".py" and file.is_file() else None,
        None if inside is None else list(inside),
    )


def _is_local(file: Path) -> bool:
    """Whether a file is the user's: neither Python's, nor installed, nor fedloom's."""
    if INSTALLED & set(file.parts) or file.is_relative_to(PACKAGE):
        return False
    return not any(file.is_relative_to(folder) for folder in _library_folders())


@functools.cache
def _library_folders() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    return tuple(
        Path(paths[kind]).resolve() for kind in ("stdlib", "platstdlib", "purelib", "platlib")
    )
