"""A site of a deployment: takes the server's requests and answers them. Nothing here knows Flower.

hello   what the site is and what data it has
setup   an agreement: the site checks it against its data, builds what it names, and stores it
work    answers of its clients to a broadcast, by the same code as in a simulation

A request that comes twice gets the answer that was given already. Whatever goes wrong becomes an
error reply with one line for the user; `handle` never raises.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedloom.core.determinism import deterministic
from fedloom.core.errors import RunError, UserError, shortened
from fedloom.core.request import EvaluationTask, Task
from fedloom.core.sealed_json import seal, unseal
from fedloom.core.server import Absent
from fedloom.deploy.site.data import Source, read_site
from fedloom.deploy.site.describe import report
from fedloom.deploy.site.federation import site_federation
from fedloom.deploy.site.memory import SiteMemory
from fedloom.deploy.site.secret import site_secret
from fedloom.deploy.site.settings import SiteSettings
from fedloom.deploy.terms import Agreement, check_run_id
from fedloom.engines.flower import envelope, messages
from fedloom.engines.flower.envelope import PROTOCOL
from fedloom.engines.flower.messages import HelloRequest, Parts, SetupRequest, WorkRequest
from fedloom.engines.inprocess import InProcess
from fedloom.engines.wire import WireError
from fedloom.experiment.build import resolve_device
from fedloom.runs.durable_files import PRIVATE_FOLDER, read_if_exists, sync_folder, write_durably

AGREEMENT, MEMORY, SECRET = "agreement.json", "memory", "secret"
_DIGITS = 12  # of an agreement's digest, in the name of its folder


@dataclass
class _Setup:
    """An agreement that the site has accepted, and what it needs to work by it."""

    agreement: Agreement
    engine: InProcess
    memory: SiteMemory
    device: torch.device
    last: tuple[str, Parts] = ("", {})  # the last request, by its checksum, and its answer


class Site:
    """One site with its data in memory. folder: where it keeps secrets, agreements and memories."""

    def __init__(
        self,
        settings: SiteSettings,
        source: Source,
        folder: Path,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.settings, self.folder, self.log = settings, folder, log
        _private_folder(folder)
        self.secret = site_secret(folder / SECRET)
        self.data = read_site(settings.name, source)
        self._report: dict[str, Any] | None = None
        self._setup: _Setup | None = None

    @property
    def name(self) -> str:
        return self.settings.name

    def handle(self, parts: Parts) -> Parts:
        """The reply to a request."""
        started, header = time.perf_counter(), messages.NO_HEADER
        try:
            request = messages.read_request(parts, self.settings.max_bytes)
            header = request.header
            self._check_addressed(header)
            reply = self._answer(request, parts)
        except WireError as error:
            return self._error(header, f"site '{self.name}' received {error}", fatal=False)
        except (UserError, RunError) as error:
            return self._error(header, str(error), fatal=isinstance(error, UserError))
        except Exception as error:  # of a model or method, or a mistake of ours: the worker goes on
            cause = f"{type(error).__name__}: {error}"
            return self._error(header, f"site '{self.name}' failed: {cause}", fatal=True)
        self.log(f"{_title(request)}, {time.perf_counter() - started:.2f} s")
        return reply

    def _error(self, header: messages.Header, reason: str, fatal: bool) -> Parts:
        self.log(f"refused: {shortened(reason)}")
        return messages.error_reply(header, reason, fatal)

    def _check_addressed(self, header: messages.Header) -> None:
        check_run_id(header.run)
        if header.site != self.name:
            raise UserError(
                f"a request for site '{shortened(header.site, 60)}' reached site '{self.name}'; "
                "check which start kit was installed there"
            )

    def _answer(self, request: messages.Request, parts: Parts) -> Parts:
        match request:
            case HelloRequest(header):
                if self._report is None:  # the data do not change while they are in memory
                    self._report = report(self.data, self.settings.shared).to_json()
                return messages.hello_reply(header, self._report)
            case SetupRequest(header, digest, facts):
                self._accept(header.run, digest, facts)
                return messages.setup_reply(header, digest)
            case _:
                return self._work(request, envelope.checksum(parts[messages.REQUEST]))

    # -------------------------------------------------------------- agreements

    def _accept(self, run: str, digest: str, facts: messages.Facts) -> None:
        """Check an agreement, prepare to work by it, and store it for after a restart."""
        if self._setup is not None and self._setup.agreement.digest == digest:
            return
        agreement = Agreement.from_json(facts)
        if (agreement.run, agreement.digest) != (run, digest):
            raise UserError(f"an agreement that is not the one of run '{run}' with this digest")
        folder = self._run_folder(run, digest)
        self._setup = self._built(agreement, folder)
        _private_folder(folder)
        write_durably(folder / AGREEMENT, seal(agreement.to_json()))

    def _built(self, agreement: Agreement, folder: Path) -> _Setup:
        if agreement.protocol != PROTOCOL:
            raise UserError(
                f"site '{self.name}': the agreement is of protocol {agreement.protocol}, and this "
                f"version of fedloom speaks {PROTOCOL}; install the same version everywhere"
            )
        clients = agreement.clients_of(self.name)
        memory = SiteMemory(folder / MEMORY, {n: c.name for n, c in clients.items()})
        config, federation = site_federation(
            agreement, self.data, self.settings.trust, memory, self.secret
        )
        engine, device = InProcess(federation), resolve_device(config.device)
        return _Setup(agreement, engine, memory, device)

    def _run_folder(self, run: str, digest: str) -> Path:
        """Of one agreement: a run that is started again with other settings has other memories."""
        check_run_id(run)
        return self.folder / "runs" / f"{run}-{digest[:_DIGITS]}"

    def _setup_of(self, request: WorkRequest) -> _Setup | None:
        """The setup that a request belongs to, from memory or from disk; None if it is unknown."""
        if self._setup is not None and self._setup.agreement.digest == request.setup:
            return self._setup
        folder = self._run_folder(request.header.run, request.setup)
        facts = unseal(read_if_exists(folder / AGREEMENT))
        if facts is None:
            return None
        agreement = Agreement.from_json(facts)
        if agreement.digest != request.setup:
            return None
        self._setup = self._built(agreement, folder)
        return self._setup

    # -------------------------------------------------------------- work

    def _work(self, request: WorkRequest, checksum: str) -> Parts:
        setup = self._setup_of(request)
        if setup is None:
            return messages.unknown_setup_reply(request)
        if setup.last[0] == checksum:
            return setup.last[1]
        setup.memory.oldest = request.oldest
        with deterministic(setup.device):
            reply = messages.answers_reply(request, self._answers(setup, request))
        setup.last = checksum, reply
        return reply

    def _answers(self, setup: _Setup, request: WorkRequest) -> Iterator[tuple[int, Any]]:
        own = setup.agreement.clients_of(self.name)
        ours = [task for task in request.tasks if task.number in own]
        for task in request.tasks:
            if task.number not in own:
                yield task.number, Absent(task.number, f"it is not at site '{self.name}'")
        yield from self._scored(setup, request, ours)

    def _scored(
        self, setup: _Setup, request: WorkRequest, tasks: list[Task]
    ) -> Iterator[tuple[int, Any]]:
        """The answers of the site's own clients; none has the server's test data."""
        needs_test = request.sent.work == "score" or any(
            isinstance(task, EvaluationTask) for task in tasks
        )
        if needs_test and setup.engine.federation.own_test is None:
            raise UserError(
                f"site '{self.name}' has only its own test data, and the settings ask for scores "
                "on those of the server; set evaluate.on='own'"
            )
        yield from setup.engine.map(request.sent, tasks)


def _title(request: messages.Request) -> str:
    match request:
        case WorkRequest(header, _, sent, tasks):
            clients = f"{len(tasks)} client{'s' if len(tasks) != 1 else ''}"
            return f"run '{header.run}', round {sent.round + 1}: {sent.work}, {clients}"
        case SetupRequest(header, digest):
            return f"run '{header.run}': accepted agreement {digest[:_DIGITS]}"
        case _:
            return f"run '{request.header.run}': said hello"


def _private_folder(folder: Path) -> None:
    """Make a folder for its owner only, with its parents."""
    if not folder.is_dir():
        _private_folder(folder.parent)
        folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        sync_folder(folder.parent)
