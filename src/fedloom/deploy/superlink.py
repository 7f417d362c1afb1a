"""Flower's SuperLink, with the sites' keys registered and only its fleet API open to the network.

    python -m fedloom.deploy.superlink OPTIONS OF flower-superlink

Flower serves three APIs on one port: Fleet, for SuperNodes, which sign every request with their
key; Control, with which `flwr run` submits an app and `flwr supernode register` adds keys; and
Runtime, for the processes of the SuperLink itself. Without an account system, which only Flower's
hosted service has, Control and Runtime accept anyone who reaches the port: a stranger could run
code at every site. Here they answer requests from this machine only.

Flower numbers nodes at random and ties the number to the registered key: a request is refused
unless its node number belongs to the key that signed it. So the number that a key got when it was
registered says which site a message comes from, whatever the site claims. The numbers are written
to the roster, for the ServerApp. They are in the SuperLink's database and survive a restart.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fedloom.core.errors import RunError
from fedloom.deploy.layout import ServerFolder
from fedloom.deploy.variables import SERVER_FOLDER
from fedloom.runs.durable_files import write_durably

FLEET, HEALTH = "/v1/fleet/", "/health"
LOOPBACK = ("127.", "::1", "::ffff:127.")
REFUSAL = b"This API can be used on the server's own machine only."


class LocalOnly:
    """Refuses requests from other machines, except those of sites."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan" or _allowed(scope):
            await self.app(scope, receive, send)
            return
        headers = [(b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 403, "headers": headers})
        await send({"type": "http.response.body", "body": REFUSAL})


def _allowed(scope: Any) -> bool:
    host = (scope.get("client") or ("",))[0]
    path = scope.get("path", "")
    return host.startswith(LOOPBACK) or path.startswith(FLEET) or path == HEALTH


def register_sites(state: Any, folder: ServerFolder) -> dict[str, int]:
    """Register every site's public key once; the number of each site's node."""
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key
    from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, NOOP_FLWR_AID
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    roster: dict[str, int] = {}
    for site in folder.sites:
        public: Any = load_ssh_public_key(folder.public_key(site).read_bytes())
        key = public_key_to_bytes(public)
        node = state.get_node_id_by_public_key(key) or state.create_node(
            NOOP_FLWR_AID, "fedloom", key, HEARTBEAT_DEFAULT_INTERVAL, name=site
        )
        if node in roster.values():
            raise RunError(f"site '{site}' has the same key as another site; make a new one")
        roster[site] = node
    return roster


def retire_others(state: Any, roster: dict[str, int]) -> None:
    """Lock out keys that were registered before but belong to no site any more."""
    for node in state.get_node_info():
        if node.node_id not in roster.values() and node.status != "unregistered":
            state.delete_node(node.owner_aid, node.node_id)


def main() -> None:
    """The entry point: `flower-superlink` with our extensions."""
    from flwr.superlink import extensions
    from flwr.superlink.cli.flower_superlink import flower_superlink
    from starlette.middleware import Middleware

    folder = ServerFolder(Path(os.environ[SERVER_FOLDER]))

    @asynccontextmanager
    async def registered(app: Any) -> AsyncIterator[None]:
        state = app.state.linkstate_factory.state()
        roster = register_sites(state, folder)
        retire_others(state, roster)
        write_durably(folder.roster, json.dumps(roster, indent=2).encode())
        yield

    extensions.get_middleware = lambda: (Middleware(LocalOnly),)
    extensions.get_lifespan_contexts = lambda: (registered,)
    flower_superlink()


if __name__ == "__main__":
    main()
