"""A home for data sets with the tiny one in it, and a module of user code that can be imported."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from cli import talk

USER_MODULE = """
from torch import Tensor, nn

import fedloom as fl


def two_layers(shape, classes):
    pixels = shape[0] * shape[1] * shape[2]
    hidden = nn.Linear(pixels, 4)
    return nn.Sequential(nn.Flatten(), hidden, nn.ReLU(), nn.Linear(4, classes))


class OneLayer(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.fc = nn.Linear(shape[0] * shape[1] * shape[2], classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x.flatten(1))


class NoArguments(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x.flatten(1))


def entropy(step):
    logs = step.logits.log_softmax(1)
    return (logs.exp() * logs).sum(1).mean()


def confident(weight: float = 0.5):
    return fl.Method("confident", fl.Phase(terms=lambda step: -weight * entropy(step)))
"""


@pytest.fixture(scope="module", autouse=True)
def home() -> Iterator[Path]:
    """The disk of a test file."""
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(
            prefix="fedloom-", dir=memory if memory.is_dir() else None
        ) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("FEDLOOM_HOME", f"{folder}/home")
        talk.fedloom("data", "add", "tiny", "--from", talk.write_tiny(Path(folder) / "tiny.npz"))
        yield Path(folder)


@pytest.fixture
def desk(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the working directory."""
    folder = Path(tempfile.mkdtemp(dir=home))
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def user(desk: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module above, as something that any process started from here can import."""
    (desk / "user_module.py").write_text(USER_MODULE)
    monkeypatch.syspath_prepend(desk)
    monkeypatch.delitem(sys.modules, "user_module", raising=False)
    import user_module  # type: ignore[import-not-found]

    yield user_module
    sys.modules.pop("user_module", None)
