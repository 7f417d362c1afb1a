"""How each method is verified, read off the tests themselves, so that no table promises too much.

oracle       a row `Case(name, make, oracle, twin)` whose `make` builds this method alone
degenerate   such a row with a twin: the parameter at which the method must equal a simpler one bit
             for bit
golden       a test that uses both the method, or a function of its module, and numbers of
             tests/golden

Only the syntax of the files in tests/methods is read; whether the tests pass is shown by running
them.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TypeGuard

KINDS = ("oracle", "degenerate", "golden")
UNVERIFIED = "unverified"
FIELD_OF_KIND = {"oracle": "oracle", "degenerate": "twin"}


def verification(tests: Path, methods: Collection[str]) -> dict[str, list[str]]:
    """The kinds of verification of every method, by name; an empty list if there is none."""
    kinds_of: dict[str, set[str]] = {method: set() for method in methods}
    trees = [
        ast.parse(file.read_text(encoding="utf-8")) for file in sorted(tests.glob("test_*.py"))
    ]
    common_fields = next((fields for tree in trees if (fields := _case_fields(tree))), [])
    for tree in trees:
        fields = _case_fields(tree) or common_fields
        for method, kind in (*_from_cases(tree, fields, methods), *_from_golden(tree, methods)):
            kinds_of[method].add(kind)
    return {method: [kind for kind in KINDS if kind in kinds_of[method]] for method in methods}


def _case_fields(tree: ast.Module) -> list[str]:
    """The fields of the dataclass Case that the file defines, in order; none if it imports Case."""
    cases = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Case"]
    declared = [s for case in cases for s in case.body if isinstance(s, ast.AnnAssign)]
    return [s.target.id for s in declared if isinstance(s.target, ast.Name)]


def _from_cases(
    tree: ast.Module, fields: list[str], methods: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Methods and kinds from the file's rows `Case(...)`."""
    for call in ast.walk(tree):
        if not _is_case(call):
            continue
        row = dict(zip(fields, call.args, strict=False))
        row |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        built = _methods_used(tree, row["make"], methods)
        if len(built) != 1:  # a row that joins several methods verifies how they are joined
            continue
        for kind, field in FIELD_OF_KIND.items():
            if _is_given(row, field):
                yield built[0], kind


def _is_case(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Case"


def _is_given(row: dict[str, ast.expr], field: str) -> bool:
    value = row.get(field, ast.Constant(None))
    return not (isinstance(value, ast.Constant) and value.value is None)


def _from_golden(tree: ast.Module, methods: Collection[str]) -> Iterator[tuple[str, str]]:
    """Methods that the file's tests compare with golden numbers."""
    imported = _imported_from_methods(tree)
    for test in tree.body:
        if not (isinstance(test, ast.FunctionDef) and test.name.startswith("test_")):
            continue
        reached = _reached_names(tree, test)
        if "golden" not in reached:
            continue
        used = {imported.get(name, "") for name in reached}
        used.update(_methods_used(tree, test, methods))
        yield from ((method, "golden") for method in methods if method in used)


def _imported_from_methods(tree: ast.Module) -> dict[str, str]:
    """The names that a test imports from modules of methods, each with its method."""
    imported = {}
    for statement in tree.body:
        module = (statement.module or "") if isinstance(statement, ast.ImportFrom) else ""
        if isinstance(statement, ast.ImportFrom) and module.startswith("fedloom.methods."):
            method = module.rpartition(".")[2].replace("_", "-")
            imported |= {alias.asname or alias.name: method for alias in statement.names}
    return imported


def _methods_used(tree: ast.Module, node: ast.AST, methods: Collection[str]) -> list[str]:
    reached = _reached_names(tree, node)
    return [method for method in methods if method.replace("-", "_") in reached]


def _reached_names(tree: ast.Module, node: ast.AST) -> set[str]:
    """The names that code uses, directly or through definitions of its module."""
    definitions = {name: statement for statement in tree.body for name in _defined(statement)}
    reached: set[str] = set()
    waiting = _names(node)
    while waiting:
        reached |= waiting
        inside = (_names(definitions[name]) for name in waiting if name in definitions)
        waiting = set().union(*inside) - reached
    return reached


def _defined(statement: ast.stmt) -> list[str]:
    """The names that a statement at the top of a module defines."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [
        name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)
    ]


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
