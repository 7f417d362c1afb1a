"""What the tests prove of each method, read off the tests themselves, so that no table can promise more.

oracle       a row `Case(name, make, oracle, twin)` whose `make` makes this method alone
degenerate   such a row with a twin: the parameter at which the method must equal a plainer one bit for bit
golden       a test that uses both the method, or a piece of its module, and numbers of tests/golden

Only the syntax of the files in tests/methods is looked at; whether the tests pass is for the tests to say.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

KINDS = ("oracle", "degenerate", "golden")
NONE = "unproved"


def proofs(tests: Path, methods: Collection[str]) -> dict[str, list[str]]:
    """The kinds of proof of every method, by name; an empty list where there is none."""
    found: dict[str, set[str]] = {method: set() for method in methods}
    trees = [
        ast.parse(file.read_text(encoding="utf-8")) for file in sorted(tests.glob("test_*.py"))
    ]
    common = next((fields for tree in trees if (fields := _fields(tree))), [])
    for tree in trees:
        for method, kind in (
            *_rows(tree, _fields(tree) or common, methods),
            *_golden(tree, methods),
        ):
            found[method].add(kind)
    return {method: [kind for kind in KINDS if kind in kinds] for method, kinds in found.items()}


def _fields(tree: ast.Module) -> list[str]:
    """The fields of the file's own dataclass Case, in the order of its positional arguments; none if it imports the common one."""
    cases = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Case"]
    declared = [s for case in cases for s in case.body if isinstance(s, ast.AnnAssign)]
    return [s.target.id for s in declared if isinstance(s.target, ast.Name)]


def _rows(
    tree: ast.Module, fields: list[str], methods: Collection[str]
) -> Iterator[tuple[str, str]]:
    for call in ast.walk(tree):
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id == "Case"
        ):
            row = dict(zip(fields, call.args, strict=False)) | {
                k.arg: k.value for k in call.keywords if k.arg
            }
            made = _methods(tree, row["make"], methods)
            if len(made) == 1:  # a row that joins several proves the joining
                yield from (
                    (made[0], kind)
                    for kind, field in (("oracle", "oracle"), ("degenerate", "twin"))
                    if _given(row, field)
                )


def _given(row: dict[str, ast.expr], field: str) -> bool:
    value = row.get(field, ast.Constant(None))
    return not (isinstance(value, ast.Constant) and value.value is None)


def _golden(tree: ast.Module, methods: Collection[str]) -> Iterator[tuple[str, str]]:
    for test in tree.body:
        if (
            isinstance(test, ast.FunctionDef)
            and test.name.startswith("test_")
            and "golden" in _reach(tree, test)
        ):
            pieces = {_pieces(tree).get(name, "") for name in _reach(tree, test)}
            yield from (
                (method, "golden")
                for method in methods
                if method in {*pieces, *_methods(tree, test, methods)}
            )


def _pieces(tree: ast.Module) -> dict[str, str]:
    """The names that a test imports from the modules of methods, each with its method."""
    imports = [
        s
        for s in tree.body
        if isinstance(s, ast.ImportFrom) and (s.module or "").startswith("fedloom.methods.")
    ]
    return {
        a.asname or a.name: (s.module or "").rpartition(".")[2].replace("_", "-")
        for s in imports
        for a in s.names
    }


def _methods(tree: ast.Module, node: ast.AST, methods: Collection[str]) -> list[str]:
    reached = _reach(tree, node)
    return [method for method in methods if method.replace("-", "_") in reached]


def _reach(tree: ast.Module, node: ast.AST) -> set[str]:
    """The names a piece of code uses, and those which the module's own definitions behind them use."""
    behind = {name: statement for statement in tree.body for name in _defined(statement)}
    reached: set[str] = set()
    waiting = _names(node)
    while waiting:
        reached |= waiting
        waiting = {n for name in waiting & behind.keys() for n in _names(behind[name])} - reached
    return reached


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [
        name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)
    ]


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
