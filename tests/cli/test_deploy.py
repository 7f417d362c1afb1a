"""`fedloom deploy ...`: wrong input of every command ends in a message and exit code 2."""

import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cli.talk import Said, fedloom
from fedloom.deploy import flower_extra

pytest.importorskip("cryptography")

HOSPITALS = Path(__file__).parents[2] / "docs/examples/hospitals"


def refused(*words: object) -> str:
    said: Said = fedloom("deploy", *map(str, words), code=2)
    return " ".join(said.err.split())


@pytest.fixture
def deployment(desk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A deployment, on a machine where Flower seems to be installed."""
    monkeypatch.setattr("fedloom.deploy.server.check_flower", lambda: None)
    monkeypatch.setattr("fedloom.deploy.node.check_flower", lambda: None)
    fedloom("deploy", "init", "mine", "--sites", "north,south", "--set", "sample=all")
    return desk / "mine"


def test_init_says_what_it_made_and_what_comes_next(desk: Path) -> None:
    said = fedloom("deploy", "init", "mine", "--sites", "north, south")
    assert "2 start kits in mine/kits" in said.out and "mine/README.md" in said.out
    assert "note: data.partition is set to 'user'" in said.err
    assert "only this machine reaches 127.0.0.1:9092" in said.err
    assert (desk / "mine/kits/south/node.key").is_file()
    other = fedloom("deploy", "init", "other", "--sites", "a", "--address", "fl.example.org:1")
    assert "only this machine" not in other.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["new", "--sites", ","], "--sites names no site"),
        (["new", "--sites", "a,a"], "site 'a' is named twice"),
        (["new", "--sites", "a b"], "cannot be the name of a folder"),
        (["new", "--sites", "a", "--address", "here"], "is not of the form HOST:PORT"),
        (["new", "--sites", "a", "--config", "no.toml"], "'no.toml' does not exist"),
        (["new", "--sites", "a", "--set", "train.lr=-1"], "train.lr"),
        (["new", "--sites", "a", "--set", "model=m.py:net"], "which sites do not have"),
        (["new", "--sites", "a", "--option", "target"], "is not of the form name=value"),
    ],
)
def test_init_refuses_wrong_input_and_makes_nothing(desk: Path, words: list[str], why: str) -> None:
    assert why in refused("init", *words)
    assert not (desk / "new").exists()


def test_init_does_not_touch_an_existing_deployment(deployment: Path) -> None:
    assert "exists already; choose another folder" in refused("init", deployment, "--sites", "a")


@pytest.mark.parametrize("command", ["server", "run", "status"])
def test_a_folder_that_is_no_deployment_is_named(desk: Path, command: str) -> None:
    assert "'nowhere' is not a deployment" in refused(command, "nowhere")


def test_a_port_that_is_taken_is_named(desk: Path, deployment: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        address = f"127.0.0.1:{port}"
        fedloom("deploy", "init", "taken", "--sites", "a", "--address", address)
        said = refused("server", "taken")
    assert f"cannot listen on {address}: address already in use; is the server running" in said


def test_run_without_a_server_says_how_to_start_it(deployment: Path) -> None:
    said = refused("run", deployment)
    assert "the server does not answer on 127.0.0.1:9092" in said
    assert f"fedloom deploy server {deployment}" in said


def test_the_name_of_a_run_is_checked(deployment: Path) -> None:
    assert "run '../x' cannot be the name of a folder" in refused(
        "run", deployment, "--run", "../x"
    )


def test_status_of_a_deployment_that_never_ran(deployment: Path) -> None:
    said = fedloom("deploy", "status", deployment)
    assert "does not answer" in said.out and "not started" in said.out
    assert said.out.count("not connected") == 2 and said.out.count("never") == 2


def test_status_while_the_server_makes_its_database(deployment: Path) -> None:
    with closing(sqlite3.connect(deployment / "server/flower/superlink.db")) as link:
        link.execute("CREATE TABLE node (node_id INTEGER)")
    assert fedloom("deploy", "status", deployment).out.count("never") == 2


def test_node_checks_kit_data_and_key(deployment: Path) -> None:
    data = HOSPITALS / "north.csv"
    kit = deployment / "kits" / "north"
    assert "is not a start kit" in refused("node", deployment, "--data", data)
    assert "data 'no.csv' do not exist" in refused("node", kit, "--data", "no.csv")
    (kit / "node.key").chmod(0o644)
    assert "can be read by others (mode 0644)" in refused("node", kit, "--data", data)


@pytest.mark.parametrize("name", ["server", "node", "try"])
def test_without_flower_the_extra_is_named(
    desk: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    fedloom("deploy", "init", "mine", "--sites", "north")
    (desk / "data").mkdir()
    monkeypatch.setattr(flower_extra.importlib.util, "find_spec", lambda package: None)
    words = {
        "server": ["server", "mine"],
        "node": ["node", "mine/kits/north", "--data", "data"],
        "try": ["try", "data"],
    }[name]
    assert "pip install 'fedloom[flower]'" in refused(*words)


def test_try_needs_a_folder_with_data(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedloom.deploy.flower_extra.check_flower", lambda: None)
    assert "'nowhere' is not a folder" in refused("try", "nowhere")
    (desk / "data").mkdir()
    assert "holds no file; put one for each site there" in refused("try", "data")
    (desk / "data/a.csv").touch()
    (desk / "data/a.npz").touch()
    assert "has several files named 'a'" in refused("try", "data")
    (desk / "data/a.npz").rename(desk / "data/b c.npz")
    assert "cannot be the name of a folder" in refused("try", "data")
