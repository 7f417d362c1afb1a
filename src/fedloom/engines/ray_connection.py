"""The connection to a Ray cluster: join one, or start one on this machine."""

from __future__ import annotations

import logging
import re
import socket
from contextlib import suppress
from typing import Any

from fedloom.core.errors import UserError

_CONNECT_SECONDS = 5


def import_ray() -> Any:
    """The module `ray`; UserError if it is not installed."""
    try:
        import ray
    except ImportError:
        raise UserError(
            "engine 'ray' needs Ray; install it with: pip install \"fedloom[ray]\""
        ) from None
    return ray


def connect(ray: Any, workers: int, address: str | None) -> None:
    """Join a cluster or start one. `ray.init` sends no usage statistics for one that it starts."""
    quiet = {"log_to_driver": False, "logging_level": logging.WARNING}
    _silence_death_notices()
    if address is None:
        ray.init(address="local", num_cpus=workers or None, include_dashboard=False, **quiet)
        return
    try:
        _check_reachable(address)
        ray.init(address=address, **quiet)
    except (OSError, ValueError) as error:
        raise UserError(
            f"no Ray cluster to join at '{address}': {error}; start one with: ray start --head"
        ) from error


def _check_reachable(address: str) -> None:
    """Raise OSError if nothing listens at host:port; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit() and "/" not in host:
        target = (host.strip("[]"), int(port))
        socket.create_connection(target, timeout=_CONNECT_SECONDS).close()


def _silence_death_notices() -> None:
    """Ray prints on stdout that a worker died, without a public switch; we replace it anyway."""
    with suppress(ImportError):
        from ray._private.ray_logging import stdout_deduplicator

        stdout_deduplicator.skip_re = re.compile("^A worker died or was killed")
