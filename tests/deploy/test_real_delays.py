"""Sites that are slow, away or frozen, and runs that are submitted twice, on real processes.

Run with `make test-deploy`; the tests that wait for Flower's heartbeats are long.
"""

import json
import os
import signal
import sqlite3
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from fedloom.deploy.app_files import pyproject
from fedloom.deploy.layout import Kit, ServerFolder, private_folder, write_facts
from fedloom.deploy.node import site_processes
from fedloom.deploy.processes import environment
from fedloom.deploy.provision import for_sites
from fedloom.deploy.server import start_superlink
from fedloom.deploy.submit import Follower, control_of, submit
from fedloom.deploy.trial import set_up
from fedloom.experiment.stored_run import read_run
from fedloom.settings.config import load
from support.real_deployment import HOSPITALS, READER, Deployment, deployed, processes_of

pytestmark = [pytest.mark.deploy, pytest.mark.posix]

SITES = ("north", "south")
SETTINGS = {"method": "scaffold", "model": "mlp(width=8)", "sample": "all", "rounds": 3}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("d") / "delays", SETTINGS, SITES) as it:
        yield it


@contextmanager
def frozen_worker(deployment: Deployment, site: str) -> Iterator[None]:
    """Inside, the site's worker does nothing, and has a request that it was sent meanwhile."""
    kit = Kit.find(deployment.folder / "kits" / site)
    (worker,) = processes_of("fedloom.deploy.site.worker", kit.path)
    others = [
        Kit.find(deployment.folder / "kits" / other).logs / "worker.log"
        for other in deployment.sources
        if other != site
    ]
    os.kill(worker, signal.SIGSTOP)
    try:
        before = [log.stat().st_size for log in others]
        deployment.wait_for(lambda: before != [log.stat().st_size for log in others])
        yield
    finally:
        os.kill(worker, signal.SIGCONT)


def same_as_simulated(deployment: Deployment, run: str) -> bool:
    return deployment.result(run).weights_sha256 == deployment.simulated(run)


# ------------------------------------------------------------------ sites


@pytest.mark.long
def test_a_supernode_that_is_killed_in_the_middle_of_a_round_loses_nothing(
    deployment: Deployment,
) -> None:
    """The server notices after missed heartbeats, and asks again the node that is back by then."""
    kit = Kit.find(deployment.folder / "kits" / "north")
    with deployment.started("run", "--run", "node") as command:
        deployment.wait_for(lambda: deployment.rounds("node") >= 1)
        with frozen_worker(deployment, "north"):
            (node,) = processes_of("fedloom.deploy.supernode", kit.path)
            os.kill(node, signal.SIGKILL)
            deployment.wait_for(lambda: "the SuperNode ended" in "".join(deployment.said[-1:]))
        deployment.wait_for(lambda: command.poll() is not None, 300)
        _, said = command.communicate()
    assert command.returncode == 0, said
    assert deployment.result("node").rejected == 0
    assert same_as_simulated(deployment, "node")


@pytest.mark.long
def test_a_straggler_is_left_out_by_name_and_takes_part_again(deployment: Deployment) -> None:
    """Its time is guard.timeout for its one client, and a minute for the transport."""
    config = for_sites(load({**SETTINGS, "guard": {"timeout": 5}}))[0]
    app = deployment.server.app / "pyproject.toml"
    before = app.read_text()
    app.write_text(pyproject("slow", config))
    try:
        with deployment.started("run", "--run", "slow") as command:
            deployment.wait_for(lambda: deployment.rounds("slow") >= 1)
            with frozen_worker(deployment, "north"):
                deployment.wait_for(lambda: deployment.rounds("slow") >= 2, 180)
            deployment.wait_for(lambda: command.poll() is not None, 180)
            _, said = command.communicate()
    finally:
        app.write_text(before)
    assert command.returncode == 0, said
    _, second, third = read_run(deployment.server.runs / "slow").history
    noted = json.dumps(second.to_json())  # as rejected or, if it was scoring, as unscored
    assert "site 'north' gave no answer within 65 s" in noted
    assert not third.rejected


@contextmanager
def site(deployment: Deployment, name: str) -> Iterator[None]:
    kit = Kit.find(deployment.folder / "kits" / name)
    private_folder(kit.state)
    with site_processes(kit, deployment.sources[name], deployment.said.append):
        yield


@pytest.fixture
def new_deployment(tmp_path: Path) -> Deployment:
    """One of which nothing is running yet."""
    sources = {name: HOSPITALS / f"{name}.csv" for name in SITES}
    server = set_up(tmp_path / "down", for_sites(load(SETTINGS))[0], sources, READER)
    return Deployment(server, sources)


def test_a_site_that_is_down_at_the_start_is_waited_for(new_deployment: Deployment) -> None:
    it = new_deployment
    control = control_of(it.server, "down")
    problem = "waiting: site 'south' is not connected"
    with start_superlink(it.server), site(it, "north"), it.started("run") as command:
        it.wait_for(lambda: problem in control.messages()[0])
        with site(it, "south"):
            it.wait_for(lambda: command.poll() is not None, 240)
            _, said = command.communicate()
    assert command.returncode == 0, said
    assert problem in said
    assert it.result("down").rejected == 0
    assert same_as_simulated(it, "down")


def test_a_site_that_stays_away_ends_a_new_run(new_deployment: Deployment) -> None:
    it = new_deployment
    write_facts(it.server.path / "deployment.toml", {**it.server.facts, "wait": 1})
    with start_superlink(it.server), site(it, "north"):
        done = it.command("run")
    assert done.returncode == 1
    assert "cannot begin: site 'south' is not connected" in done.stderr.replace("\n", " ")


# ------------------------------------------------------------------ runs that come twice


def test_a_run_that_is_submitted_while_it_goes_on_is_refused(deployment: Deployment) -> None:
    with deployment.started("run", "--run", "twice") as command:
        deployment.wait_for(lambda: deployment.rounds("twice") >= 1)
        before = deployment.state("twice")
        with frozen_worker(deployment, "north"):  # so that it does go on
            submit(deployment.server, "twice")  # the command itself would not do it
            deployment.wait_for(
                lambda: "twice' is going on already" in failed_tasks(deployment.server)
            )
        deployment.wait_for(lambda: command.poll() is not None)
        _, said = command.communicate()
    assert command.returncode == 0, said
    after = deployment.state("twice")
    assert before is not None and after is not None
    assert (after.submission, after.state) == (before.submission, "finished")
    assert same_as_simulated(deployment, "twice")


def test_a_submission_that_is_replayed_is_refused(deployment: Deployment) -> None:
    submission = submit(deployment.server, "replay")
    follower = Follower(deployment.server, "replay", lambda text: None, deployment.look)
    assert follower.follow(submission).state == "finished"
    state = deployment.state("replay")
    metrics = (deployment.server.runs / "replay" / "metrics.jsonl").read_bytes()
    command = ["flwr", "run", str(deployment.server.app), "here", "--run-config"]
    command += [f'run="replay" submission="{submission}"']
    env = environment(deployment.server.flower)
    subprocess.run(command, env=env, check=True, capture_output=True, timeout=120)
    deployment.wait_for(lambda: "has been submitted before" in failed_tasks(deployment.server))
    assert deployment.state("replay") == state
    assert (deployment.server.runs / "replay" / "metrics.jsonl").read_bytes() == metrics


def failed_tasks(server: ServerFolder) -> str:
    """Why ServerApps have ended, as Flower notes it."""
    with closing(sqlite3.connect(server.database)) as link:
        rows = link.execute("SELECT details FROM task WHERE sub_status = 'failed'")
        return "".join(details for (details,) in rows)


@pytest.mark.parametrize(("minutes", "status"), [(0, 200), (10, 401)], ids=["now", "replayed"])
def test_a_signed_request_of_a_site_is_good_for_five_minutes(
    deployment: Deployment, minutes: int, status: int
) -> None:
    """TLS keeps requests from being recorded at all; the signature has a time in it besides."""
    import httpx
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
    from flwr.proto.node_pb2 import Node
    from flwr.supercore.date import now
    from flwr.supercore.protobuf.client import ProtobufRequestContext
    from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
    from flwr.supernode import node_auth_http_interceptor as auth

    kit = Kit.find(deployment.folder / "kits" / "north")
    key = load_ssh_private_key(kit.key.read_bytes(), None)
    roster = json.loads(deployment.server.roster.read_bytes())
    beat = SendNodeHeartbeatRequest(node=Node(node_id=roster["north"]), heartbeat_interval=30)
    context = ssl.create_default_context(cafile=str(kit.ca))
    with httpx.Client(verify=context) as client, pytest.MonkeyPatch.context() as patch:
        patch.setattr(auth, "now", lambda: now() - timedelta(minutes=minutes))
        request = client.build_request(
            "POST",
            f"https://{deployment.server.address}/v1/fleet/send-node-heartbeat",
            content=beat.SerializeToString(),
            headers={"content-type": PROTOBUF_MEDIA_TYPE, "accept": PROTOBUF_MEDIA_TYPE},
        )
        signed = auth.NodeAuthHttpInterceptor(key, key.public_key())
        answer = signed.intercept(
            ProtobufRequestContext("SendNodeHeartbeat", beat, request),
            lambda context: client.send(context.request),
        )
    assert answer.status_code == status, answer.text
