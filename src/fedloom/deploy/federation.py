"""From a Grid with sites to a federation that a run can train: handshake, agreement, engine.

A new run needs all sites once: their reports become the agreement, which is kept in the run folder.
A run that resumes goes by the agreement it has, so it goes on while a site is away.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedloom.core.errors import RunError, UserError
from fedloom.deploy.agreement import agree
from fedloom.deploy.given import Given
from fedloom.deploy.layout import ServerFolder
from fedloom.deploy.outline import run_data
from fedloom.deploy.report import SiteReport
from fedloom.deploy.returning_site import report_problem
from fedloom.deploy.status import site_reports_file
from fedloom.deploy.terms import Agreement
from fedloom.engines.flower.delivery import Delivery, SiteProblem
from fedloom.engines.flower.engine import FlowerEngine, Setup, say_hello
from fedloom.engines.flower.grid import GridTransport
from fedloom.engines.flower.status import StatusBoard
from fedloom.experiment.callbacks import Callback, RunStart
from fedloom.experiment.run_data import RemoteFederation
from fedloom.metrics.records import RoundRecord
from fedloom.runs.checkpoint_files import saved_rounds
from fedloom.runs.durable_files import read_if_exists, write_durably
from fedloom.runs.folder_layout import CHECKPOINT, CONFIG
from fedloom.settings.config import Config

AGREEMENT = "deployment.json"
WAIT_SECONDS = 600.0  # for all sites, before the first round; `wait` in deployment.toml
RETRY_SECONDS = 2.0

Say = Callable[[str], None]


@dataclass(frozen=True)
class OpenFederation:
    """remote: for `execute`. callbacks: which a run with it needs."""

    remote: RemoteFederation
    callbacks: tuple[Callback, ...]


def open_federation(
    grid: Any, folder: ServerFolder, config: Config, path: Path, say: Say
) -> OpenFederation:
    """The sites as a federation for the run in this folder, new or not."""
    transport = GridTransport(grid, read_roster(folder))
    delivery = Delivery(transport, _board(folder, path.name))
    agreement = stored_agreement(path)
    if agreement is None:
        reports = greet_all(delivery, folder, path.name, say)
        given = Given.from_table(folder.facts.get("given", {}))
        agreement = agree(config, [reports[site] for site in folder.sites], path.name, given)
    engine = _engine(delivery, agreement)
    remote = RemoteFederation(run_data(agreement), engine, "flower")
    return OpenFederation(remote, (AgreementKeeper(agreement), MemoryLimit(engine)))


def _engine(delivery: Delivery, agreement: Agreement) -> FlowerEngine:
    clients = {site: list(agreement.clients_of(site)) for site in agreement.sites}
    setup = Setup(agreement.run, agreement.digest, agreement.to_json(), clients)
    return FlowerEngine(delivery, setup, check_report=partial(report_problem, agreement))


def read_roster(folder: ServerFolder) -> dict[str, int]:
    """The node of each site, as the SuperLink registered their keys."""
    roster: dict[str, int] = json.loads(folder.roster.read_bytes())
    if missing := [site for site in folder.sites if site not in roster]:
        raise UserError(
            f"site '{missing[0]}' was added since the server started; restart it with: "
            f"fedloom deploy server {folder.path.parent}"
        )
    return roster


def greet_all(
    delivery: Delivery, folder: ServerFolder, run: str, say: Say
) -> dict[str, SiteReport]:
    """The reports of all sites; waits for those that are not there yet."""
    deadline = time.monotonic() + float(folder.facts.get("wait", WAIT_SECONDS))
    reports: dict[str, SiteReport] = {}
    problems: dict[str, str] = {}
    while True:
        missing = [site for site in folder.sites if site not in reports]
        here = set(delivery.transport.connected())
        _tell_news(problems, _greet(delivery, run, missing, here, reports), say)
        if len(reports) == len(folder.sites):
            return reports
        if time.monotonic() > deadline:
            causes = "; ".join(problems[site] for site in folder.sites if site in problems)
            raise RunError(f"the run needs all sites once, and cannot begin: {causes}")
        time.sleep(RETRY_SECONDS)


def _greet(
    delivery: Delivery,
    run: str,
    missing: list[str],
    here: set[str],
    reports: dict[str, SiteReport],
) -> dict[str, str]:
    """Ask those of the missing sites that are connected; why the others did not answer."""
    problems = {site: f"site '{site}' is not connected" for site in missing if site not in here}
    for site, answer in say_hello(delivery, run, [site for site in missing if site in here]):
        if isinstance(answer, SiteProblem):
            problems[site] = str(answer)
        else:
            reports[site] = SiteReport.from_json(site, answer)
    return problems


def _tell_news(problems: dict[str, str], now: Mapping[str, str], say: Say) -> None:
    """Say what is new, and remember it."""
    for site, problem in now.items():
        if problems.get(site) != problem:
            say(f"waiting: {problem}")
    problems.clear()
    problems.update(now)


def stored_agreement(path: Path) -> Agreement | None:
    """The agreement of a run that has begun; None of a new one."""
    if not (path / CONFIG).exists() or not saved_rounds(path / CHECKPOINT):
        return None
    data = read_if_exists(path / AGREEMENT)
    if data is None:
        raise UserError(
            f"'{path}' holds a run without {AGREEMENT}, so it is not one of a deployment; "
            "choose another name with --run"
        )
    return Agreement.from_json(json.loads(data))


class AgreementKeeper(Callback):
    """Writes the agreement into the run folder before the first round."""

    def __init__(self, agreement: Agreement) -> None:
        self.agreement = agreement

    def on_start(self, start: RunStart) -> None:
        if start.folder is not None:
            text = json.dumps(self.agreement.to_json(), indent=1)
            write_durably(start.folder / AGREEMENT, text.encode())


class MemoryLimit(Callback):
    """Tells the engine to which round the server may go back, so that sites can forget the rest."""

    def __init__(self, engine: FlowerEngine) -> None:
        self.engine = engine
        self.folder: Path | None = None

    def on_start(self, start: RunStart) -> None:
        self.folder = start.folder
        self._set()

    def on_round(self, record: RoundRecord) -> None:
        self._set()

    def _set(self) -> None:
        if self.folder is not None and (rounds := saved_rounds(self.folder / CHECKPOINT)):
            self.engine.oldest = min(rounds)


def _board(folder: ServerFolder, run: str) -> StatusBoard:
    """What is known of the sites, in a file for `fedloom deploy status`."""
    file = site_reports_file(folder, run)

    def write(statuses: object) -> None:
        file.write_text(json.dumps(board.as_json()), encoding="utf-8")

    board = StatusBoard(folder.sites, write)
    return board
