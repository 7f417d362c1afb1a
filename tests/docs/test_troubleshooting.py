"""Every message on the page of troubleshooting is what the command line prints today."""

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from reading import ROOT
from typer.testing import CliRunner

import fedloom
from fedloom.cli.main import app
from fedloom.core import user_code
from fedloom.runs.lock import Lock

PAGE = ROOT / "docs" / "guides" / "troubleshooting.md"
ENTRY = re.compile(
    r"^### (?P<title>[^\n]+)\n\n```text\n(?P<message>.*?)^```$", re.DOTALL | re.MULTILINE
)
FEW = "--model mlp --clients 20 --per-round 2 --rounds 1"
ONE_RUN = f"run {FEW} --seed 1 --out runs/one"
FAILING = "run --method failing.py:failing --model mlp --clients 20 --per-round 2 --rounds 8"

FILES = {
    "bad.toml": "rounds = 5\n[train\nlr = 0.1\n",
    "many.toml": "rounds = 0\n[train]\nlr = -1\nepoch = 2\n",
    "code.toml": 'method = "docs/examples/my_method.py:modest"\n',
    "nets.py": """from torch import nn

def five(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 5))

def flat(shape, classes):
    return nn.Linear(784, classes)

def linear(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, classes))
""",
    "broken.py": "import nothing_here\n",
    "failing.py": """import fedloom as fl

def failing():
    return fl.Method("failing", fl.Phase(terms=lambda step: step.taps["layer9"].sum()))
""",
    "no_header.csv": "".join(f"{i},{2 * i},{i % 2}\n" for i in range(40)),
    "words.csv": "age,ill\n" + "".join(f"{i},{i % 2}\n" for i in range(20, 60)) + "about 50,1\n",
    "prices.csv": "age,price\n" + "".join(f"{i},{i * 1.37:.2f}\n" for i in range(20, 60)),
    "full/notes.txt": "",
}


@contextmanager
def nothing(patch: pytest.MonkeyPatch) -> Iterator[None]:
    yield


Within = Callable[[pytest.MonkeyPatch], AbstractContextManager[None]]


@dataclass(frozen=True)
class Case:
    """How to provoke a message.

    command: the one that fails. before: those before it, which must succeed. within: what else has
    to be the case while it runs.
    """

    command: str
    before: tuple[str, ...] = ()
    within: Within = nothing


@contextmanager
def damaged(patch: pytest.MonkeyPatch) -> Iterator[None]:
    for file in Path("runs/one/checkpoint").glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:100])
    yield


@contextmanager
def locked(patch: pytest.MonkeyPatch) -> Iterator[None]:
    lock = Lock(Path("runs/one/lock"))
    yield
    lock.close()


@contextmanager
def from_python(patch: pytest.MonkeyPatch) -> Iterator[None]:
    data = torch.rand(90, 4), torch.arange(90) % 2
    exp = fedloom.Experiment("fedavg", "mlp(width=8)", data, clients=3, per_round=2, rounds=1)
    exp.run("runs/python")
    yield


class StopAfterOne(fedloom.Callback):
    def on_round(self, record: fedloom.RoundRecord) -> None:
        raise KeyboardInterrupt


@contextmanager
def unfinished(patch: pytest.MonkeyPatch) -> Iterator[None]:
    exp = fedloom.Experiment("fedavg", "mlp(width=8)", clients=20, per_round=2, rounds=3)
    with pytest.raises(KeyboardInterrupt):
        exp.run("runs/part", [StopAfterOne()])
    yield


def without(*modules: str) -> Within:
    """As if these modules were not installed."""

    @contextmanager
    def patched(patch: pytest.MonkeyPatch) -> Iterator[None]:
        for module in modules:
            patch.setitem(sys.modules, module, None)
        yield

    return patched


@contextmanager
def ray_address(patch: pytest.MonkeyPatch) -> Iterator[None]:
    pytest.importorskip("ray")
    patch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    yield


ADD = "data add hospitals --from docs/examples/hospitals --option target=ill"
ON_HOSPITALS = "run --data hospitals --model mlp --clients 2 --per-round 2 --rounds 1 --out runs/h"
CASES = {
    "no method": Case("run --method fedporx"),
    "no parameter": Case("run --method 'fedprox(nu=0.1)'"),
    "must be at least": Case("run --method 'fedprox(mu=-1)'"),
    "no setting": Case("run --set train.learning_rate=0.1"),
    "several problems": Case("run --config many.toml"),
    "is not TOML": Case("run --config bad.toml"),
    "the settings file does not exist": Case("run --config missing.toml"),
    "comes from a file, and would be executed": Case("run --config code.toml"),
    "which settings may not call": Case("run --method os:system"),
    "more clients per round than clients": Case("run --per-round 30 --clients 20"),
    "names a method twice": Case("compare --methods fedavg,fedavg"),
    "a grid needs values, not a range": Case("sweep --over train.lr=0.01..0.1"),
    "no data set": Case("run --data cifar10"),
    "no known data format": Case("data add some --from docs"),
    "no column": Case("data add x --from docs/examples/hospitals --option target=illness"),
    "the first line looks like data": Case("data add x --from no_header.csv"),
    "numbers and words in one column": Case("data add x --from words.csv"),
    "looks like a target for regression": Case("data add x --from prices.csv"),
    "the data set already exists": Case(ADD, (ADD,)),
    "the data have no user ids": Case("run --partition user"),
    "not enough samples for the clients": Case("run --clients 20000"),
    "leaves no sample of a class": Case("run --set data.longtail=100000"),
    "returns the wrong shape": Case("run --model nets.py:five"),
    "does not accept a sample": Case("run --model nets.py:flat"),
    "takes images": Case("run --data hospitals --model lenet5 --clients 2 --per-round 2", (ADD,)),
    "needs a model of at least 2 blocks": Case("run --method fedmlb --model nets.py:linear"),
    "no block": Case("run --method 'fedafa(at=layer9)' --model mlp"),
    "cannot be combined": Case("run --method fedavgm+fedadam"),
    "is not a file": Case("run --model nofile.py:net"),
    "no function in the file": Case("run --model nets.py:missing"),
    "the file cannot be loaded": Case("run --model broken.py:net"),
    "training diverged": Case("run --lr 1000000 --model mlp --clients 20 --per-round 2 --rounds 8"),
    "replies are not valid": Case(FAILING),
    "a client failed in a strict run": Case(f"{FAILING} --strict"),
    "holds a run already": Case(ONE_RUN, (ONE_RUN,)),
    "is not the folder of a run": Case("resume runs/none"),
    "is not empty": Case(f"run {FEW} --out full"),
    "is being written": Case("resume runs/one", (ONE_RUN,), locked),
    "was made with other data": Case(
        "resume runs/h",
        (ADD, ON_HOSPITALS, ADD.replace("target=ill", "target=smoker --replace")),
    ),
    "has no valid checkpoint": Case("resume runs/one", (ONE_RUN,), damaged),
    "data that were passed from Python": Case("resume runs/python", within=from_python),
    "is not finished": Case("export runs/part", within=unfinished),
    "compare runs on the same data": Case("report runs/one runs/h", (ONE_RUN, ADD, ON_HOSPITALS)),
    "there is no accuracy at round": Case("report runs/one --at 50", (ONE_RUN,)),
    "there is no leakage to measure": Case("analyze runs/one --leak", (ONE_RUN,)),
    "the device does not exist": Case("run --device cuda"),
    "no engine": Case("run --engine gpu"),
    "Ray is not installed": Case(f"run {FEW} --engine ray", within=without("ray")),
    "no Ray cluster to join": Case(f"run {FEW} --engine ray", within=ray_address),
    "a plot needs matplotlib": Case(
        "data show --png plot.png", within=without("matplotlib", "matplotlib.figure")
    ),
    "tuning needs Optuna": Case(
        "tune --methods fedavg,fedprox --trials 1", within=without("optuna")
    ),
}
ENTRIES = {e["title"]: e["message"] for e in ENTRY.finditer(PAGE.read_text(encoding="utf-8"))}


def invoke(command: str) -> tuple[int, str]:
    """The exit code of a command and what it says on stderr."""
    user_code._allowed.clear()  # each command starts anew, as in a shell
    done = CliRunner().invoke(app, shlex.split(command))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stderr


def pattern(message: str) -> str:
    """A regular expression for a message in which `...` stands for anything."""
    return ".*".join(re.escape(" ".join(part.split())) for part in message.split("..."))


def test_every_entry_of_the_page_is_provoked() -> None:
    assert list(ENTRIES) == list(CASES)
    headings = re.findall(r"^### (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == list(CASES)


@pytest.mark.parametrize("title", CASES)
def test_the_message_is_printed(title: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if title == "the device does not exist" and torch.cuda.is_available():
        pytest.skip("this machine has the device")
    for name, text in FILES.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(text, encoding="utf-8")
    case = CASES[title]
    for command in case.before:
        assert invoke(command)[0] == 0, command
    with case.within(monkeypatch):
        code, said = invoke(case.command)
    message = ENTRIES[title]
    assert code == {"error": 2, "failed": 1}[message.partition(":")[0]]
    assert re.search(pattern(message), " ".join(said.split())), said


def test_a_message_that_is_not_printed_is_noticed() -> None:
    said = "error: no method 'x' (choices: fedavg)"
    assert re.search(pattern("error: no method 'x' (choices: ...)"), said)
    assert not re.search(pattern("error: no method 'y' (choices: ...)"), said)
