"""A round over Flower: ours compared with in-process and with a plain Flower app.

    scripts/loopback.sh .venv-deploy/bin/python -m benchmarks.deploy [--visits N] [--rounds N]

in-process       the same clients without Flower, with a run folder
ours             a fedloom deployment
plain            benchmarks/plain_flower_app: Flower's own FedAvg, ClientApp and processes, with
                 Flower's defaults
plain, tuned     the same with Flower's pauses cut as far as ours: our SuperNode, which polls every
                 0.25 s instead of 3 s, and a SuperExec that polls every 0.1 s instead of 1 s

W1-like work: LeNet-5 on 28 x 28 images, three nodes with 334 training and 334 test samples each,
which is the work of W1's ten clients with 100 samples; batch size 10, one epoch. All train in every
round, and all evaluate the new model after it. TLS and node keys, one machine, loopback.

Contestants take turns. A visit starts all processes of one of them and trains some rounds; the
first is not counted. Seconds are wall time from the end of a round to the end of the next. Bytes
are those between nodes and server, TLS and polls included. Medians over all visits. Exceeding the
limit fails the benchmark.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.deploy_methods import through, wait_for_sites
from benchmarks.measure import fail, save
from benchmarks.relay import Relay
from benchmarks.site_images import write_images
from fedloom.cli.deploy_view import end, follow
from fedloom.deploy.agreement import agree
from fedloom.deploy.layout import Kit, ServerFolder
from fedloom.deploy.processes import Process, environment, free_port, stop_all
from fedloom.deploy.report import SiteReport
from fedloom.deploy.server import start_superlink, write_connection
from fedloom.deploy.simulated import simulated
from fedloom.deploy.site.data import Source, read_site
from fedloom.deploy.site.describe import Shared, report
from fedloom.deploy.trial import result_in_process, running, set_up
from fedloom.experiment.execute import execute
from fedloom.experiment.stored_run import read_run
from fedloom.settings.config import Config, load

APP = Path(__file__).parent / "plain_flower_app"
LIMIT = 0.6  # ours / plain
VISIT_SECONDS = 900.0
PROGRAMS = Path(sys.executable).parent
TUNED = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1"}


class Round(NamedTuple):
    seconds: float
    bytes_up: float
    bytes_down: float


class Watch:
    """Looks at a file that gets a line at the end of every round, and notes time and bytes."""

    def __init__(self, file: Path, counted: Callable[[], tuple[int, int]]) -> None:
        self.file, self.counted = file, counted
        self.ticks: list[tuple[float, int, int]] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def rounds(self) -> list[Round]:
        """What each round cost, from the second one on."""
        pairs = zip(self.ticks[1:], self.ticks, strict=False)
        return [
            Round(*(b - a for b, a in zip(after, before, strict=True))) for after, before in pairs
        ]

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            self._look()
        self._look()

    def _look(self) -> None:
        lines = self.file.read_bytes().count(b"\n") if self.file.exists() else 0
        if lines > len(self.ticks):
            self.ticks += [(time.perf_counter(), *self.counted())] * (lines - len(self.ticks))


class Visit:
    """The folder, data and settings of one visit."""

    def __init__(self, folder: Path, rounds: int) -> None:
        self.folder, self.rounds = folder, rounds
        self.sources = write_images(folder, (1, 28, 28), 334, 334)

    @property
    def config(self) -> Config:
        return load(
            {
                "model": "lenet5",
                "rounds": self.rounds,
                "sample": "all",
                "train": {"lr": 0.01, "batch": 10},
                "data": {"partition": "user", "clients": 0},
                "evaluate": {"on": "own"},
            }
        )

    def set_up(self) -> ServerFolder:
        return set_up(self.folder / "sites", self.config, self.sources, {})


def ours(visit: Visit) -> list[Round]:
    """A deployment of ours."""
    server = visit.set_up()
    with Relay(server.address.port) as relay:
        through(relay, server)
        with running(server, visit.sources, print) as look:
            wait_for_sites(server, look)
            metrics = server.runs / server.name / "metrics.jsonl"
            with Watch(metrics, lambda: relay.counted) as watch:
                end(follow(server, server.name, look), "fedloom deploy run")
    check_weights(server, visit.sources)
    return watch.rounds


def check_weights(server: ServerFolder, sources: Mapping[str, Path]) -> None:
    run = server.runs / server.name
    result = read_run(run).result
    here = result_in_process(run, sources, {})
    if result is None or result.weights_sha256 != here.weights_sha256:
        sys.exit("the weights of the same run in this process differ")


def in_process(visit: Visit) -> list[Round]:
    """The same run without Flower, in this process."""
    sites = [read_site(site, Source(path)) for site, path in visit.sources.items()]
    said = [report(site, Shared(class_counts=True)).to_json() for site in sites]
    reports = [SiteReport.from_json(s.site, facts) for s, facts in zip(sites, said, strict=True)]
    dataset = simulated(agree(visit.config, reports, "run"), sites)
    config = load({**visit.config.model_dump(mode="json"), "engine": "inprocess"})
    with Watch(visit.folder / "run" / "metrics.jsonl", lambda: (0, 0)) as watch:
        execute(config, visit.folder / "run", dataset=dataset)
    return watch.rounds


def plain(visit: Visit, tuned: bool = False) -> list[Round]:
    """Flower's own processes and strategy."""
    server, file = visit.set_up(), visit.folder / "rounds"
    with ExitStack() as stack:
        relay = stack.enter_context(Relay(server.address.port))
        stack.enter_context(start_superlink(server))
        stack.enter_context(nodes(server, visit.sources, relay.port, tuned))
        wait_for_sites(server, lambda: None)
        watch = stack.enter_context(Watch(file, lambda: relay.counted))
        submit_plain(server, file, visit.rounds)
        wait_for_rounds(watch, visit.rounds, server)
    return watch.rounds


@contextmanager
def nodes(
    server: ServerFolder, sources: Mapping[str, Path], port: int, tuned: bool
) -> Iterator[None]:
    """Flower's SuperNodes, which start a new process for every message."""
    program = [sys.executable, "-m", "fedloom.deploy.supernode"]
    with ExitStack() as stack:
        started: list[Process] = []
        stack.callback(stop_all, started)
        for site, path in sources.items():
            kit = Kit.find(server.path.parent / "kits" / site)
            command = [
                *(program if tuned else [str(PROGRAMS / "flower-supernode")]),
                *("--superlink", f"127.0.0.1:{port}", "--root-certificates", str(kit.ca)),
                *("--auth-supernode-private-key", str(kit.key)),
                *("--host", "127.0.0.1", "--port", str(free_port())),
                *("--node-config", f'data="{path}"'),
            ]
            settings = environment(kit.flower, TUNED if tuned else {})
            started.append(Process("the SuperNode", command, settings, kit.logs / "node.log"))
        yield


def submit_plain(server: ServerFolder, file: Path, rounds: int) -> None:
    write_connection(server)
    settings = f'rounds-file="{file}" num-server-rounds={rounds}'
    command = [str(PROGRAMS / "flwr"), "run", str(APP), "here", "--run-config", settings]
    subprocess.run(
        command,
        env=environment(server.flower),
        check=True,
        timeout=VISIT_SECONDS,
        stdout=subprocess.DEVNULL,
    )


def wait_for_rounds(watch: Watch, rounds: int, server: ServerFolder) -> None:
    deadline = time.monotonic() + VISIT_SECONDS
    while len(watch.ticks) < rounds:
        if time.monotonic() > deadline:
            log = (server.logs / "superlink.log").read_text()[-3000:]
            sys.exit(f"the plain app did not finish in {VISIT_SECONDS:.0f} s:\n{log}")
        time.sleep(0.2)


CONTESTANTS: dict[str, Callable[[Visit], list[Round]]] = {
    "in-process": in_process,
    "ours": ours,
    "plain": plain,
    "plain, tuned": lambda visit: plain(visit, tuned=True),
}


def measure(visits: int, rounds: int) -> dict[str, Any]:
    """All rounds of every contestant."""
    seen: dict[str, list[Round]] = {name: [] for name in CONTESTANTS}
    loads = []
    for _ in range(visits):
        for name, contestant in CONTESTANTS.items():
            with tempfile.TemporaryDirectory(prefix="b-") as folder:
                seen[name] += contestant(Visit(Path(folder), rounds))
            loads.append(round(os.getloadavg()[0], 1))
            times = " ".join(f"{r.seconds:.2f}" for r in seen[name])
            print(f"{name}: {times} s; load {loads[-1]}", flush=True)
    medians = {
        name: Round(*map(statistics.median, zip(*r, strict=True))) for name, r in seen.items()
    }
    ratios = {
        f"ours / {name}": medians["ours"].seconds / median.seconds
        for name, median in medians.items()
        if name != "ours"
    }
    return {
        "rounds": {name: len(r) for name, r in seen.items()},
        "load": loads,
        "medians": {name: median._asdict() for name, median in medians.items()},
        "seconds": {name: [round(r.seconds, 3) for r in of] for name, of in seen.items()},
        "ratios": ratios,
    }


def show(result: Mapping[str, Any]) -> None:
    """Print the table."""
    print("| a round | seconds | MB up | MB down | ours / it |\n|---|---|---|---|---|")
    for name, m in result["medians"].items():
        ratio = result["ratios"].get(f"ours / {name}")
        cells = [f"{m['seconds']:.2f}", *(f"{m[b] / 1e6:.2f}" for b in ("bytes_up", "bytes_down"))]
        print(f"| {name} | {' | '.join(cells)} | {f'{ratio:.2f}' if ratio else '-'} |")


def main() -> None:
    """Measure, print, and fail if the limit is exceeded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--visits", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/deploy.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    result = measure(arguments.visits, arguments.rounds)
    save(result, arguments.json)
    show(result)
    ratio = result["ratios"]["ours / plain"]
    fail([f"ours / plain {ratio:.2f}, limit {LIMIT}"] if ratio > LIMIT else [])


if __name__ == "__main__":
    main()
