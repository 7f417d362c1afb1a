"""Twelve methods over Flower compared with the same runs in this process, bit by bit.

    scripts/loopback.sh .venv-deploy/bin/python -m benchmarks.deploy_methods [--only fedavg,ditto]

A server and three sites with TLS and node keys are started once, and one method after the other is
trained on them for two short rounds (benchmarks/site_images.py). Each run is repeated in-process on
the same clients. Compared are the sha256 of the final weights, and the scores of the clients' own
models if the method has them. Bytes are those between the sites and the server, with TLS, polls and
the handshake. Fails if anything differs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.measure import fail
from benchmarks.relay import Relay
from benchmarks.site_images import METHODS, settings, write_images
from fedloom.cli.deploy_view import end, follow
from fedloom.deploy.app_files import pyproject
from fedloom.deploy.layout import Kit, ServerFolder, read_facts, write_facts
from fedloom.deploy.status import read_status
from fedloom.deploy.trial import result_in_process, running, set_up
from fedloom.experiment.stored_run import read_run

CONNECT_SECONDS = 180.0
COLUMNS = (
    "method", "rounds", "weights equal", "personal scores equal", "bytes up", "bytes down",
    "s per round", "sha256 of the weights",
)  # fmt: skip


def through(relay: Relay, server: ServerFolder) -> None:
    """Let the sites connect to the relay, and tell the server how often they have each class."""
    for site in server.sites:
        file = Kit.find(server.path.parent / "kits" / site).path / "site.toml"
        facts = read_facts(file, ("server",))
        share = {"class_counts": True}
        write_facts(file, {**facts, "server": f"127.0.0.1:{relay.port}", "share": share})


def wait_for_sites(server: ServerFolder, look: Callable[[], None]) -> None:
    """Wait until all sites are connected."""
    deadline = time.monotonic() + CONNECT_SECONDS
    while not all(site.connected for site in read_status(server, server.name).sites):
        if time.monotonic() > deadline:
            sys.exit("the sites did not connect in time")
        look()
        time.sleep(0.5)


def compare(
    method: str,
    server: ServerFolder,
    sources: Mapping[str, Path],
    relay: Relay,
    look: Callable[[], None],
) -> tuple[list[str], bool]:
    """Train a method on the deployment and in this process; a row, and whether they agree."""
    (server.app / "pyproject.toml").write_text(pyproject(method, settings(method)))
    before = relay.counted
    end(follow(server, method, look), f"fedloom deploy run {server.path.parent}")
    up, down = (after - earlier for after, earlier in zip(relay.counted, before, strict=True))
    stored = read_run(server.runs / method)
    there, here = stored.result, result_in_process(server.runs / method, sources, {})
    assert there is not None
    weights = there.weights_sha256 == here.weights_sha256 and there.rejected == 0
    personal = there.personal_models == here.personal_models
    seconds = sum(r.seconds + (r.evaluation_seconds or 0) for r in stored.history) / there.rounds
    said = ["no", "yes"][personal] if here.personalised else "has none"
    numbers = [f"{up:,}", f"{down:,}", f"{seconds:.1f}", there.weights_sha256[:12]]
    return [method, str(there.rounds), ["no", "yes"][weights], said, *numbers], weights and personal


def main() -> None:
    """Train, compare, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(METHODS))
    methods = parser.parse_args().only.split(",")
    with tempfile.TemporaryDirectory(prefix="b-") as name:
        folder = Path(name)
        sources = write_images(folder)
        server = set_up(folder / "sites", settings(methods[0]), sources, {})
        with Relay(server.address.port) as relay:
            through(relay, server)
            with running(server, sources, print) as look:
                wait_for_sites(server, look)
                rows = [compare(method, server, sources, relay, look) for method in methods]
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|")
    for row, _ in rows:
        print("| " + " | ".join(row) + " |")
    fail([f"{row[0]} differs" for row, equal in rows if not equal])


if __name__ == "__main__":
    main()
