"""`fedloom deploy status`: which sites are connected, and how far the run is."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedloom.core.errors import RunError
from fedloom.deploy.flower_extra import TESTED
from fedloom.deploy.layout import ServerFolder
from fedloom.deploy.server import is_healthy
from fedloom.deploy.submit import control_of

HEARTBEATS = 2  # Flower calls a node online for this many intervals after its last heartbeat


@dataclass(frozen=True)
class SiteLine:
    """What is known of a site. seen: seconds since its last sign of life; None: never."""

    site: str
    connected: bool
    seen: float | None
    round: int | None = None
    problem: str | None = None


@dataclass(frozen=True)
class DeploymentStatus:
    """server: whether it answers. state: of the run; None if there was none yet."""

    server: bool
    run: str
    state: str | None
    round: int
    rounds: int | None
    sites: tuple[SiteLine, ...]


def read_status(folder: ServerFolder, run: str) -> DeploymentStatus:
    """The status of a deployment and of one of its runs, from files of the server."""
    answers = is_healthy(folder)
    control = control_of(folder, run)
    written = control.read()
    was_killed = written is not None and not written.has_ended and not control.is_alive()
    state = None if written is None else "killed" if was_killed else written.state
    done, total = progress(folder.runs / run)
    reports = _site_reports(folder, run)
    seen = _last_seen(folder, answers) if folder.database.exists() else {}
    lines = tuple(
        _line(site, answers, seen.get(site), reports.get(site, {}), total) for site in folder.sites
    )
    return DeploymentStatus(answers, run, state, done, total, lines)


def progress(run: Path) -> tuple[int, int | None]:
    """The rounds that a run has done, and those it will have; None if it has not begun."""
    from fedloom.experiment.stored_run import read_run

    if not (run / "config.toml").is_file():
        return 0, None
    stored = read_run(run)
    return len(stored.history), stored.config.rounds


def _line(
    site: str,
    server: bool,
    seen: tuple[float, float] | None,
    report: dict[str, Any],
    rounds: int | None,
) -> SiteLine:
    """seen: seconds since the last heartbeat, and for how long one counts."""
    connected = server and seen is not None and seen[0] < seen[1]
    last = report.get("last_round")
    if last is not None and rounds is not None:
        last = min(last, rounds)  # the evaluation after the last round counts as one more
    return SiteLine(site, connected, None if seen is None else seen[0], last, report.get("problem"))


def _last_seen(folder: ServerFolder, answers: bool) -> dict[str, tuple[float, float]]:
    """Seconds since each site's last heartbeat, from the SuperLink's database.

    Flower's own list of nodes needs a process of seconds; the table is read without disturbing it.
    """
    now = time.time()
    query = "SELECT name, online_until, heartbeat_interval FROM node WHERE online_until NOT NULL"
    place = f"file:{folder.database}?mode=ro"
    try:
        with closing(sqlite3.connect(place, uri=True, timeout=5)) as link:
            rows = link.execute(query).fetchall()
    except sqlite3.OperationalError as error:
        if not answers:  # a server that starts for the first time makes the tables one by one
            return {}
        raise RunError(
            f"cannot read which sites are connected from '{folder.database}': {error}; is flwr "
            f"{TESTED} installed?"
        ) from error
    return {
        name: (max(0.0, now - until + HEARTBEATS * interval), HEARTBEATS * interval)
        for name, until, interval in rows
    }


def site_reports_file(folder: ServerFolder, run: str) -> Path:
    """Where the ServerApp keeps what it knows of the sites."""
    return folder.path / "control" / f"{run}.sites.json"


def _site_reports(folder: ServerFolder, run: str) -> dict[str, Any]:
    try:
        reports: dict[str, Any] = json.loads(site_reports_file(folder, run).read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return reports
