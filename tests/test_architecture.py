"""The structure of the package, from its syntax: imports, random draws, gradients, lengths."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "fedloom"
FILES = sorted(ROOT.rglob("*.py"))
LAYERS = [
    ("core",),
    ("losses", "stages", "models", "data", "exchange", "metrics", "runs"),
    ("methods",),
    ("engines", "diagnostics"),
    ("settings",),
    ("experiment",),
    ("reports", "inspect", "trackers"),
    ("claims",),
    ("api", "deploy"),
    ("cli",),
]
RANK = {package: rank for rank, layer in enumerate(LAYERS) for package in layer}
METHODS = [
    f
    for f in sorted((ROOT / "methods").glob("*.py"))
    if f.stem not in ("__init__", "listing", "registry")
]

every_file = pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
every_method = pytest.mark.parametrize("file", METHODS, ids=lambda f: f.stem)


def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def imports(file: Path) -> Iterator[str]:
    """The full names of the modules that a file imports, at any level."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file.name}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def calls(file: Path) -> Iterator[tuple[str, ast.Call]]:
    """Every call with its dotted name, without what precedes a call or an index in it."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Call):
            parts, at = [], node.func
            while isinstance(at, ast.Attribute):
                parts.append(at.attr)
                at = at.value
            parts.append(at.id if isinstance(at, ast.Name) else "")
            yield ".".join(reversed(parts)), node


def package_of(file: Path) -> str:
    return file.relative_to(ROOT).parts[0] if file.parent != ROOT else ""


@every_file
def test_imports_go_one_way(file: Path) -> None:
    ours = package_of(file)
    for name in imports(file):
        theirs = name.split(".")[1] if name.startswith("fedloom.") else ""
        if ours and theirs in RANK:
            assert theirs == ours or RANK[theirs] < RANK[ours], f"{ours} imports {name}"


@pytest.mark.parametrize(
    "file", [f for f in FILES if package_of(f) == "core"], ids=lambda f: f.name
)
def test_core_imports_only_torch(file: Path) -> None:
    allowed = {*sys.stdlib_module_names, "torch"}
    foreign = [
        n
        for n in imports(file)
        if n.split(".")[0] not in allowed and not n.startswith("fedloom.core")
    ]
    assert not foreign


@every_file
def test_nothing_is_pickled(file: Path) -> None:
    assert not {"pickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"} & {
        n.split(".")[0] for n in imports(file)
    }
    assert not {"torch.load", "torch.save"} & {name for name, _ in calls(file)}
    assert not any(
        keyword.arg == "allow_pickle" and getattr(keyword.value, "value", True)
        for _, c in calls(file)
        for keyword in c.keywords
    )


DRAWS = re.compile(
    r"(^|\.)(rand|randn|randint|randperm|multinomial|bernoulli|normal|poisson)$|\.(bernoulli|normal|uniform|random|exponential)_$"
)
GLOBAL = re.compile(
    r"^(np|numpy)\.random\.(?!Generator|default_rng|PCG64|SeedSequence|RandomState)|^random\.(?!Random$)|\.(rand|randn|randint)_like$"
)
SEEDED = ("default_rng", "RandomState", "random.Random", "PCG64")


def unkeyed(name: str, call: ast.Call) -> bool:
    """Whether a call draws from a generator that was not passed to it."""
    given = {keyword.arg for keyword in call.keywords}
    if name.endswith(SEEDED):
        return not call.args and not given
    torch_draw = name.startswith("torch.") or name.endswith("_")
    return bool(GLOBAL.search(name)) or (
        torch_draw and bool(DRAWS.search(name)) and "generator" not in given
    )


@every_file
def test_every_draw_has_a_key(file: Path) -> None:
    drawn = [f"line {call.lineno}: {name}" for name, call in calls(file) if unkeyed(name, call)]
    assert not drawn


SEEDS = re.compile(r"^torch\.(\w+\.)*manual_seed$|^manual_seed$|\.seed_layers$")


@every_file
def test_the_global_generator_is_seeded_in_a_forked_scope_only(file: Path) -> None:
    """Layers draw from it: a key seeds it, and the solver does so in the scope its engine forks."""
    forks = [
        n
        for n in ast.walk(tree(file))
        if isinstance(n, ast.With) and any("fork_rng" in ast.unparse(i) for i in n.items)
    ]
    seeding = {call.lineno for name, call in calls(file) if SEEDS.search(name)}
    forked = {
        line
        for scope in forks
        for line in seeding
        if scope.lineno <= line <= (scope.end_lineno or 0)
    }
    assert seeding <= forked or file in (ROOT / "core" / "key.py", ROOT / "core" / "solver.py")


@pytest.mark.parametrize(
    ("source", "caught"),
    [
        ("torch.rand(3)", True),
        ("torch.rand(3, generator=g)", False),
        ("np.random.shuffle(x)", True),
        ("np.random.default_rng()", True),
        ("np.random.default_rng(key.seed)", False),
        ("random.random()", True),
        ("random.Random(3)", False),
        ("x.normal_()", True),
        ("x.normal_(generator=g)", False),
        ("torch.rand_like(x)", True),
        ("rng.normal(size=3)", False),
        ("torch.randn(2).uniform_(0, 1)", True),
    ],
)
def test_the_check_of_draws_can_fail(source: str, caught: bool, tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text(source)
    assert any(unkeyed(name, call) for name, call in calls(file)) is caught


def test_gradients_are_computed_only_in_solver_losses_and_diagnostics() -> None:
    """Only the solver trains; losses may differentiate a forward pass, and diagnostics analyse."""
    takers = {
        f
        for f in FILES
        for name, _ in calls(f)
        if re.search(r"autograd\.(grad|backward)$|\.backward$", name)
    }
    assert ROOT / "core" / "solver.py" in takers
    assert {package_of(f) for f in takers - {ROOT / "core" / "solver.py"}} <= {
        "losses",
        "diagnostics",
    }


def words(file: Path) -> set[str]:
    """Names and strings in the code, without docstrings."""
    found: set[str] = set()
    for node in ast.walk(tree(file)):
        for field in ("id", "attr", "arg", "name"):
            if isinstance(getattr(node, field, None), str):
                found.add(getattr(node, field))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found - {d for n in ast.walk(tree(file)) if (d := docstring(n))}


def docstring(node: ast.AST) -> str | None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return ast.get_docstring(node, clean=False) if isinstance(node, documented) else None


@pytest.mark.parametrize(
    "file",
    [f for f in FILES if package_of(f) in ("core", "engines")],
    ids=lambda f: str(f.relative_to(ROOT)),
)
def test_core_and_engines_name_no_method(file: Path) -> None:
    text = " ".join(words(file)).lower()
    known = [m.stem for m in METHODS if re.search(rf"\b{m.stem.replace('_', '[-_]')}\b", text)]
    assert not known


def test_the_round_fits_on_a_screen() -> None:
    assert len((ROOT / "core" / "round.py").read_text(encoding="utf-8").splitlines()) < 140


@every_method
def test_a_method_is_one_short_file(file: Path) -> None:
    source = file.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 140
    assert (ast.get_docstring(tree(file)) or "").count("\n") >= 3
    constants = {
        t.id: n.value
        for n in tree(file).body
        if isinstance(n, ast.Assign)
        for t in n.targets
        if isinstance(t, ast.Name)
    }
    assert isinstance(constants["PAPER"], ast.Constant) and re.search(
        r"\b(19|20)\d\d\b", constants["PAPER"].value
    )
    assert isinstance(constants["LINK"], ast.Constant) and constants["LINK"].value.startswith(
        "https://"
    )
    assert any(isinstance(n, ast.FunctionDef) and n.name == file.stem for n in tree(file).body)
