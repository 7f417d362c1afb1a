"""Real sites on this machine: Flower's SuperLink and SuperNodes with TLS and keys, on loopback.

Run with `make test-deploy`. Two sites serve most tests: they are started once.
"""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fedloom.core.errors import RunError
from fedloom.deploy import node as node_module
from fedloom.deploy.layout import Address, Kit
from fedloom.deploy.processes import Process, environment, free_port
from fedloom.deploy.provision import for_sites, provision
from fedloom.settings.config import load
from support.real_deployment import HOSPITALS, Deployment, deployed

pytestmark = [pytest.mark.deploy, pytest.mark.posix]

SETTINGS = {"method": "scaffold", "model": "mlp(width=8)", "sample": "all", "rounds": 2}
SITES = ("north", "south")


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("deploy") / "two", SETTINGS, SITES) as it:
        yield it
    assert it.said == []  # nothing died and was started again


def test_a_run_over_flower_has_the_weights_of_a_simulation(deployment: Deployment) -> None:
    done = deployment.command("run")
    assert done.returncode == 0, done.stderr
    assert "scaffold: round 1/2, 2 clients, accuracy" in done.stderr
    result = deployment.result("two")
    assert result.rejected == 0
    assert result.weights_sha256 in done.stdout
    assert result.weights_sha256 == deployment.simulated("two")


def test_status_says_who_is_connected_and_how_far_the_run_is(deployment: Deployment) -> None:
    done = deployment.command("status")
    assert done.returncode == 0, done.stderr
    assert "two: finished" in done.stdout and "2 of 2" in done.stdout
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[:2] for line in lines if line[:1] in (["north"], ["south"])] == [
        ["north", "connected"],
        ["south", "connected"],
    ]


def test_a_finished_run_is_shown_again_and_not_trained(deployment: Deployment) -> None:
    before = (deployment.server.runs / "two" / "metrics.jsonl").read_bytes()
    done = deployment.command("run", "--json")
    assert done.returncode == 0, done.stderr
    assert (deployment.server.runs / "two" / "metrics.jsonl").read_bytes() == before


def test_nothing_secret_is_on_a_command_line(deployment: Deployment) -> None:
    """Flower's own token of the ServerApp's task is the exception: docs/deploy.md says so."""
    secrets = [path.read_bytes() for path in deployment.folder.rglob("*.key")]
    secrets += [path.read_bytes() for path in deployment.folder.rglob("*secret")]
    assert len(secrets) >= 8
    lines = [line for text in secrets for line in text.splitlines() if len(line) > 20]
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
    ours = [command for command in commands if str(deployment.folder).encode() in command]
    assert len(ours) >= 7  # the SuperLink, and three processes for each site
    assert not [line for line in lines for command in ours if line in command]


def test_secrets_of_sites_are_for_their_owner_only(deployment: Deployment) -> None:
    for path in deployment.folder.rglob("*"):
        mode = path.lstat().st_mode & 0o777
        if path.is_dir():
            assert mode == 0o700, path
        elif path.suffix in (".key", ".sock") or "secret" in path.name:
            assert mode == 0o600, path


def test_listeners_are_on_loopback_only(deployment: Deployment) -> None:
    listening = [
        line.split()[1].split(":")[0]
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    ]
    assert listening and set(listening) == {"0100007F"}


def node(kit: Kit, log: Path, *words: str) -> Process:
    command = [sys.executable, "-m", "fedloom.deploy.supernode", "--isolation", "process"]
    command += ["--superlink", str(kit.server), "--host", "127.0.0.1", "--port", str(free_port())]
    return Process("the SuperNode", [*command, *words], environment(log.parent / "home"), log)


@pytest.mark.parametrize(
    ("key", "ca", "why"),
    [
        (None, "own", "accepts sites with a key only"),
        ("other", "own", "does not know the key in"),
        ("own", "other", "does not have the certificate of this deployment"),
    ],
    ids=["no key", "an unknown key", "another authority"],
)
def test_strangers_are_refused(
    deployment: Deployment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    key: str | None,
    ca: str,
    why: str,
) -> None:
    provision(tmp_path / "other", for_sites(load({}))[0], ("north",), Address("127.0.0.1", 9))
    own, other = (Kit.find(d / "kits" / "north") for d in (deployment.folder, tmp_path / "other"))
    kits = {"own": own, "other": other}
    words = ["--root-certificates", str(kits[ca].ca)]
    if key is not None:
        words += ["--auth-supernode-private-key", str(kits[key].key)]
    with node(own, tmp_path / "node.log", *words) as process:
        deployment.wait_for(lambda: process.exit_code is not None)
        assert process.exit_code == 1
        monkeypatch.setattr(node_module, "STALE_SECONDS", -1.0)
        reason = node_module.Refusals(own, print)(process)
        assert isinstance(reason, RunError) and why in str(reason)


def test_sites_are_known_by_their_key(deployment: Deployment) -> None:
    """The node's number, which the roster names, belongs to the registered key and no other."""
    with closing(sqlite3.connect(deployment.server.database)) as link:
        rows = link.execute("SELECT name, public_key FROM node WHERE status != 'unregistered'")
        registered = dict(rows.fetchall())
    from cryptography.hazmat.primitives import serialization as s

    for site in SITES:
        line = deployment.server.public_key(site).read_bytes()
        key = s.load_ssh_public_key(line)
        pem = key.public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
        assert registered[site] == pem


def test_ctrl_c_ends_a_trial_and_all_of_its_processes(tmp_path: Path) -> None:
    out = tmp_path / "trial"
    words = ("deploy", "try", str(HOSPITALS), "--option", "target=ill", "--model", "mlp(width=8)")
    command = [sys.executable, "-m", "fedloom", *words, "--set", "sample=all", "--out", str(out)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as trial:
        assert trial.stderr is not None
        for line in trial.stderr:
            if "round 1/" in line:
                os.kill(trial.pid, signal.SIGINT)
                break
        said = trial.stderr.read()
    assert trial.returncode == 130, said
    assert "continue with: fedloom deploy run" in said
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
    assert not [command for command in commands if str(out).encode() in command]
