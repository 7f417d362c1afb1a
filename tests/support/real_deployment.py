"""A deployment with real processes on this machine, for tests."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedloom.deploy.layout import ServerFolder
from fedloom.deploy.provision import for_sites
from fedloom.deploy.run_control import RunState
from fedloom.deploy.status import read_status
from fedloom.deploy.submit import control_of
from fedloom.deploy.trial import repeat_in_process, running, set_up
from fedloom.experiment.stored_run import read_run
from fedloom.metrics.records import RunResult
from fedloom.settings.config import load

HOSPITALS = Path(__file__).parents[2] / "docs/examples/hospitals"
READER = {"target": "ill"}


class Deployment:
    """A running deployment of some hospitals."""

    def __init__(self, server: ServerFolder, sources: Mapping[str, Path]) -> None:
        self.server, self.sources, self.folder = server, sources, server.path.parent
        self.look: Callable[[], None] = lambda: None
        self.said: list[str] = []

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of `fedloom deploy` on this deployment, to its end."""
        with self.started(*words) as process:
            out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    @contextmanager
    def started(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """The command, while it runs; a test that fails meanwhile does not wait for it."""
        first, *rest = words
        command = [sys.executable, "-m", "fedloom", "deploy", first, str(self.folder), *rest]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def wait_for(self, ready: Callable[[], bool], seconds: float = 120) -> None:
        """Wait, and start again what has died."""
        deadline = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < deadline
            self.look()
            time.sleep(0.1)

    def all_connected(self) -> bool:
        return all(site.connected for site in read_status(self.server, "any").sites)

    def state(self, run: str) -> RunState | None:
        return control_of(self.server, run).read()

    def rounds(self, run: str) -> int:
        """The rounds that are done."""
        metrics = self.server.runs / run / "metrics.jsonl"
        return metrics.read_bytes().count(b"\n") if metrics.exists() else 0

    def result(self, run: str) -> RunResult:
        result = read_run(self.server.runs / run).result
        assert result is not None
        return result

    def simulated(self, run: str) -> str:
        """The weights' sha256 of the same run in this process."""
        return repeat_in_process(self.server.runs / run, self.sources, READER)


@contextmanager
def deployed(
    folder: Path, settings: Mapping[str, Any], sites: tuple[str, ...]
) -> Iterator[Deployment]:
    """A deployment with these sites, connected."""
    sources = {site: HOSPITALS / f"{site}.csv" for site in sites}
    server = set_up(folder, for_sites(load(settings))[0], sources, READER)
    deployment = Deployment(server, sources)
    with running(server, sources, deployment.said.append) as look:
        deployment.look = look
        deployment.wait_for(deployment.all_connected)
        yield deployment


def processes_of(word: str, folder: Path) -> list[int]:
    """The processes with a word and a folder on their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        command = path.read_bytes()
        if word.encode() in command and bytes(folder) in command:
            found.append(int(path.parent.name))
    return found
