"""Settings files and run folders of strangers: what they name is not executed without --trust.

The stranger's file writes `mark` beside itself as soon as it is executed. Every case is run twice,
without and with --trust, so that a mark that can never be written would be noticed.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import fedloom as fl
from cli.talk import TINY, fedloom, run
from fedloom.core import user_code
from support import warm_python

EVIL = """
from pathlib import Path

from torch import nn

from fedloom.core.method import Method

Path(__file__).with_name("mark").write_text("was executed")

def method(strength: float = 0.5):
    return Method("stranger")

def net(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
"""
TOML = """
rounds = 2
method = "{method}"
model = "{model}"
sample = {{ per_round = 3 }}
train = {{ batch = 10 }}

[data]
name = "tiny"
clients = 8
"""
REFUSED = "comes from"
ARGUMENTS = "os:system(command='touch mark')"


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forgets what was allowed and loaded, as a new process would; called once by itself."""

    def forget() -> None:
        monkeypatch.setattr(user_code, "_allowed", set())
        monkeypatch.setattr(user_code, "_origins", {})
        for name in [n for n in sys.modules if n.startswith("fedloom_user_evil")]:
            del sys.modules[name]

    forget()
    return forget


@pytest.fixture
def stranger(desk: Path, forget: Callable[[], None]) -> Path:
    """A folder with evil.py, settings that name it, and a finished and an unfinished run of it."""
    (desk / "evil.py").write_text(EVIL)
    (desk / "method.toml").write_text(TOML.format(method="evil.py:method", model="mlp"))
    (desk / "model.toml").write_text(TOML.format(method="fedavg", model="evil.py:net"))
    (desk / "table.toml").write_text('[method]\nname = "evil.py:method"\n')
    words = ("--method", "evil.py:method", "--model", "evil.py:net")
    run(desk / "finished", *words, rounds=2)
    shutil.copytree(desk / "finished", desk / "begun")
    (desk / "begun/result.json").unlink()
    run(desk / "mine", "--method", "fedavg", "--model", "evil.py:net", rounds=2)
    run(desk / "lent", "--method", "evil.py:method", rounds=2)
    (desk / "mark").unlink()
    forget()
    return desk


COMMANDS = {
    "check a method": "check method.toml",
    "check a model": "check model.toml",
    "check a table": "check table.toml --set data.name=tiny --set model=mlp",
    "run a method": "run --config method.toml --out new",
    "run a model": "run --config model.toml --out new",
    "run under a flag": "run --config method.toml --lr 0.1 --server fedadam --out new",
    "run in the pool": "run --config model.toml --engine pool --workers 1 --out new",
    "compare with a file": "compare --config model.toml --methods fedavg,fedprox --out new",
    "compare in processes": "compare --config model.toml --methods fedavg,fedprox --jobs 2"
    " --out new",
    "reproduce": "reproduce fedalign/table1 --config model.toml --rows fedavg --columns accuracy"
    " --data tiny --clients 8 --per-round 3 --rounds 1 --out new",
    "resume": "resume begun",
    "resume a client": "resume begun --client 1",
    "resume elsewhere": "resume begun --engine pool --workers 1",
    "analyze": "analyze finished --only drift",
    "export": "export finished --weights-only --out files",
    "report compute": "report finished mine --compute --out plots",
    "rounds of": f"run {' '.join(TINY)} --rounds 2 --method finetune --rounds-of lent --out new",
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_code_that_a_file_names_runs_only_with_trust(
    stranger: Path, forget: Callable[[], None], words: str
) -> None:
    said = fedloom(*words.split(), code=2)
    assert "evil.py" in said.flat and REFUSED in said.flat and "--trust" in said.flat, said.err
    assert not (stranger / "mark").exists()
    assert not (stranger / "new/seed-0").exists()
    forget()
    shutil.rmtree(stranger / "new", ignore_errors=True)
    # the data do not fit the paper's table, which is noticed after its code was loaded
    fedloom(*words.split(), "--trust", code=2 if words.startswith("reproduce") else 0)
    assert (stranger / "mark").exists()


@pytest.mark.parametrize(
    "words",
    [
        "report finished begun mine",
        "report finished begun mine --html page.html",
        "report finished mine --latex",
        "report finished mine --client 1 --out plots",
        "report finished mine --by train.lr --out plots",
        "data show --config method.toml",
        "data show --config model.toml --averages",
    ],
)
def test_commands_that_need_no_code_run_none(stranger: Path, words: str) -> None:
    fedloom(*words.split())
    assert not (stranger / "mark").exists()


def test_what_is_typed_needs_no_trust(stranger: Path) -> None:
    fedloom("run", "--config", "model.toml", "--model", "evil.py:net", "--out", "new")
    assert (stranger / "mark").exists()


@pytest.mark.parametrize("words", ["--set model.name=evil.py:net", "--set model=evil.py:net"])
def test_so_does_what_is_set(stranger: Path, words: str) -> None:
    fedloom("run", "--config", "model.toml", *words.split(), "--out", "new")


def test_typed_code_does_not_allow_other_code_of_the_file(stranger: Path) -> None:
    words = ("--config", "method.toml", "--model", "evil.py:net", "--out", "new")
    assert "'evil.py:method' comes from" in short(fedloom("run", *words, code=2).flat, stranger)


def short(text: str, folder: Path) -> str:
    return text.replace(f"{folder}/", "").replace(f"{folder.resolve()}/", "")


def test_the_message_names_the_code_and_where_it_comes_from(stranger: Path) -> None:
    said = short(fedloom("check", "method.toml", code=2).flat, stranger)
    assert (
        "method 'evil.py:method' comes from 'method.toml', not from the command line, and would be "
        "executed; read that code, and if you trust it repeat the command with --trust"
    ) in said
    assert "comes from 'begun/config.toml'" in short(
        fedloom("resume", "begun", code=2).flat, stranger
    )


@pytest.mark.parametrize("trust", [(), ("--trust",)])
@pytest.mark.parametrize("command", ["check {}", "run --config {} --out new"])
def test_functions_of_other_modules_never_run(
    desk: Path, trust: tuple[str, ...], command: str
) -> None:
    for name in ("os:system", "subprocess:getoutput", "builtins:exec"):
        argument = "cmd" if name.startswith("sub") else "command"
        method = f"{name}({argument}='touch mark')"
        (desk / "x.toml").write_text(TOML.format(method=method, model="mlp"))
        said = fedloom(*command.format("x.toml").split(), *trust, code=2)
        assert f"{name.partition(':')[0]}', which settings may not call" in said.flat
        (desk / "x.toml").write_text(TOML.format(method="fedavg", model=method))
        fedloom(*command.format("x.toml").split(), *trust, code=2)
    assert not (desk / "mark").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("run", *TINY, "--method", ARGUMENTS),
        ("run", *TINY, "--server", ARGUMENTS),
        ("compare", *TINY, "--methods", ARGUMENTS),
        ("cost", "--method", ARGUMENTS),
        ("cost", "--model", "os:system"),
        ("methods", "os:system"),
    ],
)
def test_not_even_if_typed(desk: Path, words: tuple[str, ...]) -> None:
    assert "which settings may not call" in fedloom(*words, code=2).flat
    assert not (desk / "mark").exists()


def test_a_folder_that_names_a_module_function(desk: Path) -> None:
    """Its checksums are right; only the names are a stranger's."""
    run(desk / "run", "--model", "mlp", rounds=1)
    config = desk / "run/config.toml"
    config.write_text(config.read_text().replace('"fedavg"', '"os:system"'))
    shutil.rmtree(desk / "run/checkpoint")
    (desk / "run/checkpoint").mkdir()
    (desk / "run/result.json").unlink()
    for words in (("resume", "run"), ("export", "run"), ("analyze", "run")):
        for trust in ((), ("--trust",)):
            fedloom(*words, *trust, code=2)


USES: dict[str, Callable[[fl.Run], object]] = {
    "model": lambda run: run.model,
    "client": lambda run: run.client(0),
    "predict": lambda run: run.predict([[[0] * 8] * 8]),
    "resume": lambda run: run.resume(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_in_python(
    stranger: Path, forget: Callable[[], None], use: Callable[[fl.Run], object]
) -> None:
    opened = fl.open("begun")
    assert len(opened.history) == 2 and "begun" in repr(opened)
    assert len(fl.compare("finished", opened).rows) == 2  # of one seed, so not one row
    with pytest.raises(fl.UserError, match=r"comes from.*from Python: trust=True"):
        use(opened)
    assert not (stranger / "mark").exists()
    forget()
    use(fl.open("begun", trust=True))
    assert (stranger / "mark").exists()


def test_what_is_passed_in_python_needs_no_trust(stranger: Path) -> None:
    fl.method("evil.py:method", strength=1.0)
    assert (stranger / "mark").exists()
    settings = {"clients": 8, "per_round": 3, "rounds": 1}
    made = fl.Experiment("evil.py:method", "evil.py:net", "tiny", **settings)  # type: ignore[arg-type]
    made.run("python")
    assert fl.open("python").model is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    ["run --engine pool --workers 1 --out new", "compare --methods fedavg --jobs 2 --out new"],
)
def test_modules_in_the_current_folder_are_not_imported(desk: Path, words: str) -> None:
    """The processes that a command starts import from where the command itself does."""
    for name in ("torch", "numpy", "typer"):
        (desk / f"{name}.py").write_text("open('mark', 'w').close()\nraise ImportError\n")
    # -P: without the current folder, like the installed command
    command = [sys.executable, "-P", "-m", "fedloom", *words.split(), *TINY, "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not (desk / "mark").exists()


def test_a_command_line_of_its_own(stranger: Path) -> None:
    """In a new process, where nothing was allowed and no module of fedloom imported before."""
    command = ("-m", "fedloom", "check", "method.toml")
    refused = warm_python.run(*command)
    assert refused.returncode == 2 and "--trust" in refused.stderr, refused.stderr
    assert not (stranger / "mark").exists()
    assert warm_python.run(*command, "--trust").returncode == 0
    assert (stranger / "mark").exists()
