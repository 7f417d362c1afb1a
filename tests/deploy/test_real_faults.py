"""Processes of a real deployment are killed; the run resumes, with the weights of a simulation.

Run with `make test-deploy`.
"""

import os
import signal
from collections.abc import Iterator

import pytest

from fedloom.deploy.layout import Kit
from fedloom.experiment.stored_run import read_run
from support.real_deployment import Deployment, deployed, processes_of

pytestmark = [pytest.mark.deploy, pytest.mark.posix]

SETTINGS = {"method": "scaffold", "model": "mlp(width=8)", "sample": "all", "rounds": 4}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("d") / "faults", SETTINGS, ("north", "south")) as it:
        yield it


def finished(deployment: Deployment, run: str) -> None:
    """Run to the end; the weights are those of a simulation, and no client was left out."""
    deployment.wait_for(deployment.all_connected)
    done = deployment.command("run", "--run", run)
    assert done.returncode == 0, done.stderr
    assert deployment.result(run).rejected == 0
    assert deployment.result(run).weights_sha256 == deployment.simulated(run)


def test_a_killed_server_app_is_noticed_at_once_and_the_run_resumes(
    deployment: Deployment,
) -> None:
    with deployment.started("run", "--run", "app") as command:
        deployment.wait_for(lambda: deployment.rounds("app") >= 2)
        state = deployment.state("app")
        assert state is not None and state.state == "running"
        os.kill(state.pid, signal.SIGKILL)
        _, said = command.communicate(timeout=60)
    assert command.returncode == 1 and "the ServerApp was killed, or crashed" in said
    finished(deployment, "app")


def test_a_killed_superlink_is_started_again_and_the_run_resumes(deployment: Deployment) -> None:
    with deployment.started("run", "--run", "link") as command:
        deployment.wait_for(lambda: deployment.rounds("link") >= 1)
        (link,) = processes_of("fedloom.deploy.superlink", deployment.folder)
        os.kill(link, signal.SIGKILL)
        deployment.wait_for(lambda: command.poll() is not None)
        _, said = command.communicate()
    assert command.returncode in (1, 130), said
    assert "the SuperLink ended with exit code -9" in deployment.said[-1]
    finished(deployment, "link")


def test_a_killed_site_is_started_again_and_the_run_goes_on(deployment: Deployment) -> None:
    kit = Kit.find(deployment.folder / "kits" / "north")
    with deployment.started("run", "--run", "site") as command:
        deployment.wait_for(lambda: deployment.rounds("site") >= 1)
        for name in ("supernode", "executor", "site.worker"):
            (pid,) = processes_of(f"fedloom.deploy.{name}", kit.path)
            os.kill(pid, signal.SIGKILL)
        deployment.wait_for(lambda: command.poll() is not None, 240)
        _, said = command.communicate()
    assert command.returncode == 0, said
    reasons = read_run(deployment.server.runs / "site").history[1].rejected
    if reasons:  # it was not back in time
        assert list(reasons) == [0] and "site 'north'" in reasons[0] and "connect" in reasons[0]
    else:
        assert deployment.result("site").weights_sha256 == deployment.simulated("site")
    ended = [note for note in deployment.said if "kits/north" in note and "-9" in note]
    assert len(ended) == 3
    deployment.wait_for(deployment.all_connected)  # it is back
