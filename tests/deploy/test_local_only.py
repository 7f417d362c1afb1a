"""Flower's control and runtime APIs answer the server's own machine only; the fleet API all."""

import asyncio
from typing import Any

import pytest

from fedloom.deploy.superlink import LocalOnly


def request(path: str, host: str | None) -> int:
    """The status of the answer to a request from that host; 200 if it was let through."""
    sent: list[dict[str, Any]] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        sent.append({"status": 200})

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "path": path, "client": None if host is None else (host, 1)}
    asyncio.run(LocalOnly(inner)(scope, None, send))
    return sent[0]["status"]


@pytest.mark.parametrize("path", ["/v1/control/start-run", "/v1/runtime/acquire-task", "/docs", ""])
@pytest.mark.parametrize("host", ["10.0.0.7", "fd00::1", "::ffff:10.0.0.7", "", None])
def test_strangers_are_refused(path: str, host: str | None) -> None:
    assert request(path, host) == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_the_own_machine_may_do_everything(host: str) -> None:
    assert request("/v1/control/start-run", host) == 200


@pytest.mark.parametrize("path", ["/v1/fleet/pull-messages", "/health"])
def test_sites_may_use_the_fleet_api(path: str) -> None:
    assert request(path, "10.0.0.7") == 200


def test_a_path_that_only_resembles_it_is_refused() -> None:
    assert request("/v1/fleetX", "10.0.0.7") == 403
    assert request("/v1/control/../fleet/", "10.0.0.7") == 403
    assert request("/healthy/secrets", "10.0.0.7") == 403
