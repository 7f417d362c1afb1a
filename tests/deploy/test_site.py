"""Sites on a dictionary instead of a network: the bits of a simulation, restarts, refusals."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deploy.three_sites import HOSPITALS, table_config
from fedloom.core import user_code
from fedloom.core.errors import UserError
from fedloom.core.request import Broadcast, ClientTask, EvaluationTask
from fedloom.core.server import Absent
from fedloom.deploy.agreement import agree
from fedloom.deploy.outline import run_data
from fedloom.deploy.report import SiteReport
from fedloom.deploy.returning_site import report_problem
from fedloom.deploy.simulated import simulated
from fedloom.deploy.site.data import Source
from fedloom.deploy.site.describe import Shared
from fedloom.deploy.site.settings import SiteSettings
from fedloom.deploy.site.site import Site
from fedloom.deploy.terms import Agreement
from fedloom.engines.flower import messages
from fedloom.engines.flower.delivery import Delivery
from fedloom.engines.flower.engine import FlowerEngine, Setup, say_hello
from fedloom.engines.flower.messages import Header, Parts
from fedloom.engines.flower.status import StatusBoard
from fedloom.experiment.execute import execute
from fedloom.experiment.run_data import RemoteFederation
from fedloom.experiment.train import TrainedRun
from fedloom.settings.config import Config
from support.dictionary_transport import LIMIT, DictionaryTransport, FakeTime

NAMES = ("north", "south", "east")
RUN = "first-run"


def config(**more: Any) -> Config:
    return table_config(**{"evaluate": {"on": "own"}, **more})


class Sites:
    """Sites in this process. said: the bytes of all that they sent or were sent."""

    def __init__(
        self, folder: Path, data: Path = HOSPITALS, suffix: str = ".csv", **settings: Any
    ) -> None:
        self.data, self.suffix = data, suffix
        self.folder, self.settings = folder, {"shared": Shared(class_counts=True), **settings}
        self.said: list[bytes] = []
        self.sites: dict[str, Site] = {}
        for name in NAMES:
            self.restart(name)

    def restart(self, name: str, path: Path | None = None) -> Site:
        source = Source(path or self.data / f"{name}{self.suffix}")
        settings = SiteSettings(name, **self.settings)
        self.sites[name] = Site(settings, source, self.folder / name)
        return self.sites[name]

    def handle(self, name: str, parts: Parts) -> Parts:
        reply = self.sites[name].handle(parts)
        self.said += [*parts.values(), *reply.values()]
        return reply

    def delivery(self) -> Delivery:
        time = FakeTime()
        handles = {n: lambda parts, n=n: self.handle(n, parts) for n in self.sites}
        board = StatusBoard(self.sites, lambda change: None, time.clock)
        transport = DictionaryTransport(handles, time)
        return Delivery(transport, board, None, LIMIT, time.clock, time.sleep)

    def agree(self, settings: Config) -> Agreement:
        said = dict(say_hello(self.delivery(), RUN, NAMES))
        reports = [SiteReport.from_json(name, said[name]) for name in NAMES]
        return agree(settings, reports, RUN)

    def remote(self, settings: Config, agreement: Agreement) -> RemoteFederation:
        clients = {name: list(agreement.clients_of(name)) for name in NAMES}
        setup = Setup(RUN, agreement.digest, agreement.to_json(), clients)
        engine = FlowerEngine(self.delivery(), setup)
        return RemoteFederation(run_data(agreement), engine, "flower")

    def run(self, settings: Config, folder: Path | None = None, **more: Any) -> TrainedRun:
        return execute(settings, folder, remote=self.remote(settings, self.agree(settings)), **more)

    def simulate(self, settings: Config) -> TrainedRun:
        data = [site.data for site in self.sites.values()]
        return execute(settings, dataset=simulated(self.agree(settings), data))


@pytest.fixture
def sites(tmp_path: Path) -> Sites:
    return Sites(tmp_path / "sites")


METHODS = ["fedavg", "scaffold", "ditto", "fedrep", "feddyn", "fedmix", "moon+fedadam"]


@pytest.mark.parametrize("method", METHODS)
def test_sites_give_the_bits_of_a_simulation(method: str, sites: Sites) -> None:
    settings = config(method=method)
    deployed, simulated = sites.run(settings).result, sites.simulate(settings).result
    assert deployed.weights_sha256 == simulated.weights_sha256
    assert (deployed.accuracy, deployed.test_loss) == (simulated.accuracy, simulated.test_loss)
    assert deployed.personal_models == simulated.personal_models
    assert not deployed.rejected


IMAGE_METHODS = ["fedprox", "fedmlb", "fedalign", "fedbn", "fedafa"]


@pytest.mark.parametrize("method", IMAGE_METHODS)
def test_images_and_several_clients_at_a_site(method: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for place, name in enumerate(NAMES):
        users = np.array([f"w{i}" for i in range(1 + place)] * 20)
        x = rng.integers(0, 256, (len(users), 3, 8, 8), dtype=np.uint8)
        np.savez(tmp_path / f"{name}.npz", x=x, y=rng.integers(0, 3, len(users)), users=users)
    settings = config(
        method=method,
        model="resnet(depth=8)",  # with batch norm
        rounds=1,
        sample={"name": "uniform", "per_round": 4},
        train={"lr": 0.1, "batch": 8, "steps": 2},
    )
    sites = Sites(tmp_path / "sites", data=tmp_path, suffix=".npz")
    deployed, simulated = sites.run(settings).result, sites.simulate(settings).result
    assert deployed.clients == 6 and not deployed.rejected
    assert deployed.weights_sha256 == simulated.weights_sha256
    assert deployed.personal_models == simulated.personal_models


def test_memories_stay_at_the_sites(sites: Sites) -> None:
    trained = sites.run(config(method="scaffold"))
    carried = [trained.store.recall(client) for client in range(3)]
    assert {slot for memories in carried for slot in memories} == {"receipt"}
    files = list(sites.folder.glob("*/runs/first-run-*/memory/*.memory"))
    assert len(files) >= 2


def test_no_row_travels(sites: Sites) -> None:
    """Neither a row of the files, nor one that is encoded, nor a number of it is in any message."""
    settings = config(method="scaffold")
    agreement = sites.agree(settings)
    sites.run(settings)
    said = b"".join(sites.said)
    whole = simulated(agreement, [site.data for site in sites.sites.values()])
    rows = torch.cat([whole.train.x, whole.test.x])
    assert len(said) > 10_000 and len(rows) > 100
    assert not any(row.numpy().tobytes() in said for row in rows)
    texts = [line for name in NAMES for line in (HOSPITALS / f"{name}.csv").read_bytes().split()]
    assert not any(line in said for line in texts[1:])
    seldom = {f"{value!r}" for value in rows[:, 0].unique().tolist() if abs(value) > 1e-6}
    assert not any(number.encode() in said for number in seldom)


def test_the_secret_of_a_site_never_travels(sites: Sites) -> None:
    sites.run(config(method="fedmix(noise=0.5)"))
    said = b"".join(sites.said)
    for site in sites.sites.values():
        assert len(site.secret) == 64
        assert site.secret.encode() not in said and bytes.fromhex(site.secret) not in said


def test_noise_is_drawn_with_the_secret_of_the_site(tmp_path: Path) -> None:
    settings = config(method="fedmix(noise=0.5)")
    shas = [Sites(tmp_path / name).run(settings).result.weights_sha256 for name in "ab"]
    assert shas[0] != shas[1]
    again = Sites(tmp_path / "a").run(settings).result.weights_sha256
    assert again == shas[0]


def test_a_restarted_site_knows_its_agreements_and_memories(sites: Sites, tmp_path: Path) -> None:
    settings = config(method="scaffold", rounds=4)
    expected = sites.simulate(settings).result.weights_sha256
    agreement = sites.agree(settings)
    remote = sites.remote(settings, agreement)
    rounds = []

    def restart_all() -> bool:
        rounds.append(len(rounds))
        for name in NAMES:
            sites.restart(name)
        return False

    result = execute(settings, tmp_path / "run", remote=remote, stop=restart_all).result
    assert len(rounds) == 4 and result.weights_sha256 == expected and not result.rejected


def test_a_server_that_goes_back_is_followed(sites: Sites, tmp_path: Path) -> None:
    """Rounds whose checkpoint was lost are done again; the sites kept what they were before."""
    settings = config(method="scaffold", rounds=4)
    expected = sites.simulate(settings).result.weights_sha256
    folder = tmp_path / "run"
    copy = tmp_path / "copy"

    def stop_after(count: int) -> Any:
        seen: list[int] = []
        return lambda: len(seen) >= count or seen.append(1) is not None or len(seen) >= count

    with pytest.raises(Exception, match="stopped after round 1"):
        sites.run(settings, folder, stop=stop_after(1))
    shutil.copytree(folder, copy)
    with pytest.raises(Exception, match="stopped after round 3"):
        sites.run(settings, folder, stop=stop_after(2))
    assert sites.run(settings, copy).result.weights_sha256 == expected


# ------------------------------------------------------------------ requests, one by one


def ask(site: Site, request: Parts) -> Any:
    return messages.read_reply(site.handle(request), LIMIT)


def header(site: str = "north", run: str = RUN) -> Header:
    return Header("id-1", run, site)


def setup(agreement: Agreement, **change: Any) -> Parts:
    facts = {**agreement.to_json(), **change}
    return messages.setup_request(header(), agreement.digest, facts)


def work(
    site: Site,
    agreement: Agreement,
    clients: Sequence[int] = (0,),
    work: Any = "train",
    id: str = "1",
    timeout: float = 60.0,
) -> Parts:
    from fedloom.deploy.outline import outline
    from fedloom.experiment.build import build_federation

    settings = config()
    dataset = outline(agreement)
    weights = build_federation(settings, dataset, ()).build().state_dict()
    sent = messages.broadcast_part(Broadcast(work, 0, dict(weights), timeout=timeout))
    kind = EvaluationTask if work == "evaluate" else ClientTask
    tasks = [kind(client) for client in clients]
    return messages.work_request(Header(id, RUN, site.name), agreement.digest, sent, tasks)


@pytest.fixture
def agreement(sites: Sites) -> Agreement:
    return sites.agree(config())


@pytest.fixture
def north(sites: Sites) -> Site:
    return sites.sites["north"]


def test_hello_setup_work(north: Site, agreement: Agreement) -> None:
    assert ask(north, messages.hello_request(header())).report["site"] == "north"
    assert ask(north, setup(agreement)).digest == agreement.digest
    reply = ask(north, work(north, agreement))
    assert reply.answers[0].samples == agreement.clients[0].train


def test_work_without_a_setup_asks_for_it(north: Site, agreement: Agreement) -> None:
    reply = ask(north, work(north, agreement))
    assert isinstance(reply, messages.UnknownSetupReply) and reply.setup == agreement.digest


def test_a_request_that_comes_twice_gets_the_same_answer(
    north: Site, agreement: Agreement, monkeypatch: pytest.MonkeyPatch
) -> None:
    north.handle(setup(agreement))
    request = work(north, agreement)
    first = north.handle(request)
    monkeypatch.setattr(north._setup.engine, "map", None)  # it is not asked again
    assert north.handle(request) == first
    other = messages.read_reply(north.handle(work(north, agreement, id="2")), LIMIT)
    assert isinstance(other, messages.ErrorReply)


def test_clients_of_other_sites_are_absent(north: Site, agreement: Agreement) -> None:
    north.handle(setup(agreement))
    answers = ask(north, work(north, agreement, [0, 1, 99])).answers
    assert not isinstance(answers[0], Absent)
    assert [answers[n].reason for n in (1, 99)] == ["it is not at site 'north'"] * 2


def test_evaluation_is_on_the_clients_own_test_samples(north: Site, agreement: Agreement) -> None:
    north.handle(setup(agreement))
    scored = ask(north, work(north, agreement, work="evaluate")).answers[0]
    assert int(scored.counts.seen.sum()) == agreement.clients[0].test


def test_scores_on_test_data_of_the_server_are_refused(sites: Sites) -> None:
    north, agreement = sites.sites["north"], sites.agree(config(evaluate={"on": "test"}))
    north.handle(setup(agreement))
    for kind in ("evaluate", "score"):
        reply = ask(north, work(north, agreement, work=kind))
        assert "set evaluate.on='own'" in reply.reason and reply.fatal


def test_a_client_that_fails_is_absent_and_the_site_goes_on(
    north: Site, agreement: Agreement
) -> None:
    north.handle(setup(agreement))
    bad = messages.broadcast_part(Broadcast("train", 0, {"x": torch.zeros(2)}))
    request = messages.work_request(header(), agreement.digest, bad, [ClientTask(0)])
    assert "KeyError" in ask(north, request).answers[0].reason
    assert not isinstance(ask(north, work(north, agreement)).answers[0], Absent)


def test_a_client_that_takes_too_long_is_interrupted(sites: Sites) -> None:
    settings = config(train={"lr": 0.1, "batch": 1, "epochs": 10**6})
    north, agreement = sites.sites["north"], sites.agree(settings)
    north.handle(setup(agreement))
    request = work(north, agreement, timeout=0.3)
    assert "it was not done after 0.3 s (guard.timeout)" in ask(north, request).answers[0].reason


def test_a_model_that_does_not_fit_in_memory_is_refused(sites: Sites) -> None:
    agreement = sites.agree(config(model="mlp(width=900000000)"))
    assert "memory" in reason(sites.sites["north"], setup(agreement))


def test_an_unknown_receipt_makes_the_client_absent(north: Site, agreement: Agreement) -> None:
    north.handle(setup(agreement))
    receipt = {"version": torch.tensor(3), "seal": torch.zeros(32, dtype=torch.uint8)}
    request = work(north, agreement)
    sent = request[messages.BROADCAST]
    task = ClientTask(0, {"receipt": receipt})
    reply = ask(north, messages.work_request(header(), agreement.digest, sent, [task]))
    assert "memory of client 'north' is not the one the server knows" in reply.answers[0].reason


def reason(site: Site, request: Parts) -> str:
    reply = ask(site, request)
    assert isinstance(reply, messages.ErrorReply), reply
    return reply.reason


def test_agreements_that_do_not_fit_are_refused(north: Site, agreement: Agreement) -> None:
    assert "cannot be read" in reason(north, setup(agreement, clients=[3]))
    assert "not the one of run" in reason(north, setup(agreement, classes=["a", "b"]))
    for change, expected in [
        ({"protocol": 9}, "site 'north': the agreement is of protocol 9"),
        ({"settings": "= no TOML"}, "are not TOML"),
        ({"settings": "rounds = 0"}, "rounds"),
        ({"shape": (9,)}, "were agreed on"),
    ]:
        other = replace(agreement, **change)
        assert expected in reason(north, setup(other)), change
    assert north._setup is None and not list(north.folder.glob("runs/*"))


@pytest.mark.parametrize("run", ["../../evil", "a/b", "", "x\0y", ".."])
def test_names_from_the_wire_are_no_paths(run: str, north: Site, agreement: Agreement) -> None:
    before = sorted(north.folder.parent.rglob("*"))
    for request in (
        messages.hello_request(header(run=run)),
        messages.setup_request(header(run=run), agreement.digest, agreement.to_json()),
        messages.work_request(
            header(run=run), agreement.digest, work(north, agreement)[messages.BROADCAST], []
        ),
    ):
        assert "run id" in reason(north, request)
    assert sorted(north.folder.parent.rglob("*")) == before


def test_a_request_for_another_site_is_refused(north: Site) -> None:
    request = messages.hello_request(header(site="south"))
    assert "a request for site 'south' reached site 'north'" in reason(north, request)


def test_data_that_changed_are_refused_after_a_restart(
    sites: Sites, agreement: Agreement, tmp_path: Path
) -> None:
    sites.sites["north"].handle(setup(agreement))
    lines = (HOSPITALS / "north.csv").read_text().splitlines()
    changed = tmp_path / "north.csv"
    changed.write_text("\n".join([lines[0], "1" + lines[1], *lines[2:]]))
    north = sites.restart("north", changed)
    expected = "site 'north': the data of client 'north' have changed since the agreement"
    assert expected in reason(north, work(north, agreement))


def test_a_damaged_agreement_on_disk_is_asked_for_again(sites: Sites, agreement: Agreement) -> None:
    sites.sites["north"].handle(setup(agreement))
    (file,) = (sites.folder / "north" / "runs").glob("*/agreement.json")
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text(file.read_text().replace("no", "on", 1))
    north = sites.restart("north")
    assert isinstance(ask(north, work(north, agreement)), messages.UnknownSetupReply)


# ------------------------------------------------------------------ code of users


MODEL = """
from torch import nn

def net(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], classes))
"""


def with_model(folder: Path, text: str = MODEL) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "model.py").write_text(text)
    return f"{folder / 'model.py'}:net"


def test_code_that_a_site_does_not_trust_is_refused(sites: Sites, tmp_path: Path) -> None:
    reference = with_model(tmp_path / "server")
    user_code.allow([reference])
    agreement = sites.agree(config(model=reference))
    text = reason(sites.sites["north"], setup(agreement))
    assert "the settings name the code 'model.py:net', which this site does not trust" in text
    assert "to its site.toml (it lists nothing)" in text


def test_a_site_runs_its_own_copy_of_code_that_it_trusts(tmp_path: Path) -> None:
    at_server, at_site = (with_model(tmp_path / name) for name in ("server", "site"))
    user_code.allow([at_server])
    sites = Sites(tmp_path / "sites", trust=(at_site,))
    settings = config(model=at_server)
    deployed = sites.run(settings).result
    assert deployed.weights_sha256 == sites.simulate(settings).result.weights_sha256


def test_another_version_of_trusted_code_is_refused(tmp_path: Path) -> None:
    at_server = with_model(tmp_path / "server")
    at_site = with_model(tmp_path / "site", MODEL + "\n# edited\n")
    user_code.allow([at_server])
    sites = Sites(tmp_path / "sites", trust=(at_site,))
    text = reason(sites.sites["north"], setup(sites.agree(config(model=at_server))))
    assert "model.py has the sha256" in text and "copy the same version to both" in text


# ------------------------------------------------------------------ the server's side


def test_a_site_that_comes_back_must_still_fit(sites: Sites, agreement: Agreement) -> None:
    facts = ask(sites.sites["north"], messages.hello_request(header())).report
    assert report_problem(agreement, "north", facts) is None
    client, software = facts["clients"][0], facts["software"]
    cases = {
        "the number of train samples of client 'north' is 1, and was": {"train": 1},
        "the checksum of client 'north' is 00": {"checksum": "0" * 64},
        "its clients are x, and were north": {"name": "x"},
    }
    for expected, change in cases.items():
        other = {**facts, "clients": [{**client, **change}]}
        assert expected in (report_problem(agreement, "north", other) or "")
    other = {**facts, "software": {**software, "fedloom": "9.9"}}
    assert "the version of fedloom is 9.9" in (report_problem(agreement, "north", other) or "")
    assert "cannot be read" in (report_problem(agreement, "north", {}) or "")


def test_the_server_cannot_read_samples(sites: Sites) -> None:
    settings = config()
    data = run_data(sites.agree(settings))
    assert data.clients.sizes.tolist() == [len(client) for client in data.clients]
    assert len(data.dataset.train) == 0
    with pytest.raises(Exception, match="the samples of client 'south' are at site 'south'"):
        data.clients[1].batch(torch.tensor([0]))
    with pytest.raises(
        UserError, match=r"evaluate\.on='test': 'test' needs test data at the server"
    ):
        run_data(sites.agree(config(evaluate={"on": "test"})))


def test_the_servers_own_test_data_must_have_the_agreed_form(sites: Sites) -> None:
    settings = config(evaluate={"on": "test"})
    agreement = sites.agree(settings)
    whole = simulated(agreement, [site.data for site in sites.sites.values()])
    assert run_data(agreement, whole).own_test is None
    other = replace(whole, classes=("healthy", "ill"))
    with pytest.raises(UserError, match="their classes is"):
        run_data(agreement, other)


def test_garbage_is_answered_with_an_error(north: Site) -> None:
    rng = np.random.default_rng(0)
    for size in (0, 1, 40, 100, 1000):
        assert "site 'north' received" in reason(north, {"request": rng.bytes(size)})
    assert "without the part" in reason(north, {})
    assert "without the part" in reason(north, {"other": b"x"})
    small = replace(north.settings, max_bytes=10)
    north.settings = small
    assert "at most 10 are accepted" in reason(north, {"request": b"x" * 11})
