"""`fedloom deploy try`: a whole deployment on one machine, on loopback, with TLS and keys.

Everything is real but the distance: a server and a site for each file, in processes of their own,
that know nothing of each other but what their folders hold. Afterwards the same run is repeated
in-process on the same clients, and the weights are compared bit by bit.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from fedloom.core.errors import UserError, shown
from fedloom.deploy.layout import Address, Kit, ServerFolder, check_site_names, private_folder
from fedloom.deploy.node import site_processes
from fedloom.deploy.processes import free_port
from fedloom.deploy.provision import provision
from fedloom.deploy.server import start_superlink
from fedloom.deploy.supervise import Supervisor
from fedloom.metrics.records import RunResult
from fedloom.settings.config import Config, load

Say = Callable[[str], None]


def site_sources(data: Path) -> dict[str, Path]:
    """The data of each site by its name: every file or folder in a folder that begins with a
    letter; a README is not data."""
    if not data.is_dir():
        raise UserError(f"'{data}' is not a folder; give one that holds a file for each site")
    entries = [p for p in sorted(data.iterdir()) if p.stem[:1].isalpha() and p.suffix != ".md"]
    sources = {path.stem: path.resolve() for path in entries}
    if len(sources) < len(entries):
        stems = [path.stem for path in entries]
        twice = next(stem for stem in stems if stems.count(stem) > 1)
        raise UserError(f"'{data}' has several files named {shown(twice)}; keep one for each site")
    if not sources:
        raise UserError(f"'{data}' holds no file; put one for each site there")
    check_site_names(tuple(sources))
    return sources


def set_up(
    folder: Path, config: Config, sources: Mapping[str, Path], reader: Mapping[str, Any]
) -> ServerFolder:
    """Provision a deployment on loopback."""
    address = Address("127.0.0.1", free_port())
    provision(folder, config, tuple(sources), address, reader)
    return ServerFolder.find(folder)


@contextmanager
def running(
    server: ServerFolder, sources: Mapping[str, Path], say: Say
) -> Iterator[Callable[[], None]]:
    """All processes of a deployment. Yields a function that starts again what has died."""
    kits = [(Kit.find(server.path.parent / "kits" / site), sources[site]) for site in sources]
    for kit, _ in kits:
        private_folder(kit.state)
    link = Supervisor({"superlink": lambda: start_superlink(server)}, say)
    managers = [link, *(site_processes(kit, path, say) for kit, path in kits)]
    supervisors: list[Supervisor] = []
    stack = ExitStack()
    try:
        with ThreadPoolExecutor(len(managers)) as pool:  # most of a start is waiting for imports
            supervisors += pool.map(stack.enter_context, managers)

        def look() -> None:
            for supervisor in supervisors:
                supervisor.look()

        yield look
    finally:
        with interrupts_ignored():
            ask_all_to_end(supervisors)
            stack.close()


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Inside, an impatient second Ctrl-C does not leave processes behind."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def ask_all_to_end(supervisors: Iterable[Supervisor]) -> None:
    """So that they end at the same time when each of them is waited for."""
    for supervisor in supervisors:
        supervisor.ask_to_end()


def repeat_in_process(run: Path, sources: Mapping[str, Path], reader: Mapping[str, Any]) -> str:
    """The sha256 of the weights after the same run in this process, on the same clients."""
    return result_in_process(run, sources, reader).weights_sha256


def result_in_process(
    run: Path, sources: Mapping[str, Path], reader: Mapping[str, Any]
) -> RunResult:
    """The result of the same run in this process, on the same clients."""
    from fedloom.deploy.federation import AGREEMENT
    from fedloom.deploy.simulated import simulated
    from fedloom.deploy.site.data import Source, read_site
    from fedloom.deploy.terms import Agreement
    from fedloom.experiment.execute import execute
    from fedloom.experiment.stored_run import run_config

    agreement = Agreement.from_json(json.loads((run / AGREEMENT).read_bytes()))
    options = dict(reader)
    kind = str(options.pop("format", "auto"))
    sites = [read_site(site, Source(path, kind, options)) for site, path in sources.items()]
    config = load({**run_config(run).model_dump(mode="json"), "engine": "inprocess"})
    return execute(config, dataset=simulated(agreement, sites)).result
