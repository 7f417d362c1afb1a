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
from typing import Any

from benchmarks.measure import fail, save
from benchmarks.relay import Relay
from benchmarks.site_images import METHODS, settings, write_images
from fedloom.cli.deploy_view import end, follow
from fedloom.deploy.app_files import pyproject
from fedloom.deploy.layout import Kit, ServerFolder, read_facts, write_facts
from fedloom.deploy.status import read_status
from fedloom.deploy.trial import result_in_process, running, set_up
from fedloom.experiment.stored_run import read_run

CONNECT_SECONDS = 180.0


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
) -> dict[str, Any]:
    """Train a method on the deployment and in this process; what came out, and what it cost."""
    (server.app / "pyproject.toml").write_text(pyproject(method, settings(method)))
    before = relay.counted
    end(follow(server, method, look), f"fedloom deploy run {server.path.parent}")
    up, down = (after - earlier for after, earlier in zip(relay.counted, before, strict=True))
    stored = read_run(server.runs / method)
    there, here = stored.result, result_in_process(server.runs / method, sources, {})
    assert there is not None
    equal = there.weights_sha256 == here.weights_sha256 and there.rejected == 0
    personal = {True: "yes", False: "no"}[there.personal_models == here.personal_models]
    seconds = sum(r.seconds + (r.evaluation_seconds or 0) for r in stored.history)
    return {
        "rounds": there.rounds,
        "weights": "yes" if equal else "no",
        "personal": personal if here.personalised else "has none",
        "bytes_up": up,
        "bytes_down": down,
        "seconds": seconds / there.rounds,
        "sha256": there.weights_sha256,
    }


def show(rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the table."""
    headings = ("method", *next(iter(rows.values())))
    print("| " + " | ".join(headings) + " |\n" + "|---" * len(headings) + "|")
    for method, row in rows.items():
        shown = {**row, "seconds": f"{row['seconds']:.1f}", "sha256": row["sha256"][:12]}
        print(f"| {method} | " + " | ".join(map(str, shown.values())) + " |")


def main() -> None:
    """Train, compare, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(METHODS))
    results = Path("benchmarks/results/deploy-methods.json")
    parser.add_argument("--json", type=Path, default=results)
    arguments = parser.parse_args()
    methods = arguments.only.split(",")
    with tempfile.TemporaryDirectory(prefix="b-") as name:
        folder = Path(name)
        sources = write_images(folder)
        server = set_up(folder / "sites", settings(methods[0]), sources, {})
        with Relay(server.address.port) as relay:
            through(relay, server)
            with running(server, sources, print) as look:
                wait_for_sites(server, look)
                rows = {m: compare(m, server, sources, relay, look) for m in methods}
    load = round(os.getloadavg()[0], 1)
    save({"load": load, "methods": rows}, arguments.json)
    print(f"load of the machine: {load}")
    show(rows)
    fail([f"{name} differs" for name, row in rows.items() if "no" in row.values()])


if __name__ == "__main__":
    main()
