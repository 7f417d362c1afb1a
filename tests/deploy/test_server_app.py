"""The ServerApp with real sites in this process: from the app's settings to a run folder.

Flower's Grid is replaced by a dictionary of sites (support/dictionary_transport.py); everything
else is what a deployment runs.
"""

import json
import os
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedloom.core.errors import RunError, UserError
from fedloom.deploy import federation, server_app
from fedloom.deploy.app_files import pyproject
from fedloom.deploy.layout import Address, ServerFolder
from fedloom.deploy.provision import for_sites, provision
from fedloom.deploy.run_control import RunState
from fedloom.deploy.site.data import Source
from fedloom.deploy.site.settings import SiteSettings
from fedloom.deploy.site.site import Site
from fedloom.deploy.status import read_status
from fedloom.deploy.submit import control_of
from fedloom.deploy.trial import repeat_in_process
from fedloom.deploy.variables import SERVER_FOLDER
from fedloom.experiment.stored_run import read_run
from fedloom.settings.config import load
from support.dictionary_transport import DictionaryTransport, FakeTime

pytest.importorskip("cryptography")

HOSPITALS = Path(__file__).parents[2] / "docs/examples/hospitals"
SOURCES = {name: HOSPITALS / f"{name}.csv" for name in ("north", "south", "west")}
READER = {"target": "ill"}
SETTINGS = {"method": "scaffold", "model": "mlp(width=8)", "sample": "all", "rounds": 3}


class RealTime(FakeTime):
    """The transport's clock, which here only says who is away."""


class Bench:
    """A deployment whose sites are objects; `run` is what Flower calls."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        config, _ = for_sites(load(SETTINGS))
        provision(folder, config, tuple(SOURCES), Address("127.0.0.1", 1), READER)
        self.server = ServerFolder.find(folder)
        self.server.roster.write_text(json.dumps({site: n for n, site in enumerate(SOURCES, 1)}))
        self.time, self.sites = RealTime(), {name: self.site(name) for name in SOURCES}
        handles = {name: (lambda parts, n=name: self.sites[n].handle(parts)) for name in SOURCES}
        self.transport = DictionaryTransport(handles, self.time)
        self.nodes: Any = None
        self.submissions = count(1)
        monkeypatch.setenv(SERVER_FOLDER, str(self.server.path))
        monkeypatch.setattr(federation, "GridTransport", self.connect)
        monkeypatch.setattr(federation, "RETRY_SECONDS", 0.01)

    def connect(self, grid: Any, nodes: Any) -> DictionaryTransport:
        self.nodes = nodes
        return self.transport

    def site(self, name: str) -> Site:
        settings = SiteSettings(name, reader=READER)
        state = self.server.path.parent / "kits" / name / "state"
        return Site(settings, settings.source(SOURCES[name]), state)

    def run(self, name: str = "one", submission: str = "", **changes: Any) -> None:
        config, _ = for_sites(load({**SETTINGS, **changes}))
        import tomllib

        table = tomllib.loads(pyproject(name, config))["tool"]["flwr"]["app"]["config"]
        run_config = {**flat(table), "submission": submission or f"s{next(self.submissions)}"}
        server_app.main(None, SimpleNamespace(run_config=run_config))

    def state(self, name: str = "one") -> RunState:
        state = control_of(self.server, name).read()
        assert state is not None
        return state


def flat(table: dict[str, Any], path: str = "") -> dict[str, Any]:
    """As Flower hands the settings to an app."""
    result: dict[str, Any] = {}
    for key, value in table.items():
        result |= flat(value, f"{path}{key}.") if isinstance(value, dict) else {path + key: value}
    return result


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path / "d", monkeypatch)


def test_a_run_ends_with_the_weights_of_a_simulation_and_says_so(bench: Bench) -> None:
    bench.run()
    assert bench.state() == RunState("finished", os.getpid(), "s1")
    run = bench.server.runs / "one"
    result = read_run(run).result
    assert result is not None and result.rejected == 0
    assert result.weights_sha256 == repeat_in_process(run, SOURCES, READER)
    assert bench.nodes == {"north": 1, "south": 2, "west": 3}
    lines = {line.site: line for line in read_status(bench.server, "one").sites}
    assert {line.problem for line in lines.values()} == {None}
    assert lines["north"].round == 3


def test_a_run_that_was_stopped_resumes_without_asking_all_sites_again(bench: Bench) -> None:
    control = control_of(bench.server, "one")
    control.ask_to_stop()
    with pytest.raises(RunError):
        bench.run()
    assert bench.state().state == "stopped" and bench.state().exit_code == 130
    run = bench.server.runs / "one"
    assert len(read_run(run).history) == 1
    control.forget_stop()
    bench.run()
    result = read_run(run).result
    assert result is not None
    assert result.weights_sha256 == repeat_in_process(run, SOURCES, READER)


def test_a_new_run_names_the_sites_it_waits_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(federation, "WAIT_SECONDS", 0.1)
    bench.transport.away = {"south": (0.0, 1e9)}
    with pytest.raises(RunError, match="cannot begin: site 'south' is not connected"):
        bench.run()
    assert bench.state().state == "failed" and bench.state().exit_code == 1
    said, _ = control_of(bench.server, "one").messages()
    assert said == ["waiting: site 'south' is not connected"]  # once, not at every look
    assert not (bench.server.runs / "one").exists()


def test_wrong_settings_are_reported_as_wrong_input(bench: Bench) -> None:
    with pytest.raises(UserError):
        bench.run(data={"per_class": 5})
    assert bench.state().exit_code == 2
    assert "data.per_class=5 takes a part of the data" in bench.state().message


def test_a_crash_is_reported_as_one(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*arguments: Any) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(federation, "run_data", crash)
    with pytest.raises(ZeroDivisionError):
        bench.run()
    expected = "an error in fedloom: ZeroDivisionError: division by zero"
    assert (bench.state().state, bench.state().message) == ("failed", expected)


def test_a_site_with_another_version_of_its_data_is_left_out_by_name(bench: Bench) -> None:
    control = control_of(bench.server, "one")
    control.ask_to_stop()
    with pytest.raises(RunError):
        bench.run()
    control.forget_stop()
    changed = bench.server.path.parent / "changed.csv"
    changed.write_text((HOSPITALS / "south.csv").read_text().replace(",no\n", ",yes\n", 1))
    state = bench.server.path.parent / "kits" / "south" / "state"
    settings = SiteSettings("south", reader=READER)
    bench.sites["south"] = Site(settings, Source(changed, "auto", READER), state)
    bench.run()
    history = read_run(bench.server.runs / "one").history
    reasons = [reason for record in history for reason in record.rejected.values()]
    assert len(reasons) == 2 and all("site 'south'" in reason for reason in reasons)


def test_a_run_of_a_simulation_is_not_continued(bench: Bench) -> None:
    from fedloom.experiment.execute import execute

    raw = {**SETTINGS, "data": "crowd-8", "rounds": 1}
    execute(
        load({**raw, "data": {"name": "crowd-8", "clients": 8, "partition": "user"}}),
        bench.server.runs / "one",
    )
    with pytest.raises(UserError, match=r"holds a run without deployment\.json"):
        bench.run()


def test_a_site_that_was_added_needs_a_restart_of_the_server(bench: Bench) -> None:
    bench.server.roster.write_text('{"north": 1, "west": 3}')
    with pytest.raises(UserError, match="site 'south' was added since the server started"):
        bench.run()


def test_a_submission_that_is_replayed_is_refused_and_changes_nothing(bench: Bench) -> None:
    bench.run(submission="word")
    bench.run(submission="another")
    before = bench.state()
    with pytest.raises(UserError, match="run 'one': this attempt has been submitted before"):
        bench.run(submission="word")
    assert bench.state() == before == RunState("finished", os.getpid(), "another")
