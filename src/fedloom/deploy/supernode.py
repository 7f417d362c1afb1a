"""Flower's SuperNode, with shorter pauses.

    python -m fedloom.deploy.supernode OPTIONS OF flower-supernode

Flower's loop sleeps 3 s when there is no message, looks every 0.5 s for the reply to one, and waits
1 s, then 2 s and so on for a part of a message that is still being uploaded. This is most of a
short round. All are constants in its source, so the loop gets a `time` that sleeps less, and a
`pull_objects` that asks again sooner. A poll is one signed HTTPS request of some hundred bytes.
"""

from __future__ import annotations

import time
from functools import partial
from types import SimpleNamespace
from typing import Any

POLL_SECONDS = 0.25  # for a message, over the network
REPLY_SECONDS = 0.05  # for a reply, in this process
SOONER = {"initial_backoff": 0.05, "backoff_cap": 0.5}  # of Flower's functions that pull objects


def sleep(seconds: float) -> None:
    """Instead of Flower's pauses of 3 s and of 0.5 s."""
    time.sleep(min(seconds, POLL_SECONDS if seconds > 1 else REPLY_SECONDS))


def shorten_pauses(loop: Any) -> None:
    """In the module of Flower's SuperNode."""
    loop.time = SimpleNamespace(**{**vars(time), "sleep": sleep})
    loop.pull_objects = partial(loop.pull_objects, **SOONER)


def main() -> None:
    """The entry point: `flower-supernode` with shorter pauses."""
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli.flower_supernode import flower_supernode

    shorten_pauses(start_client_internal)
    flower_supernode()


if __name__ == "__main__":
    main()
