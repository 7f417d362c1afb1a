"""Flower's SuperNode, asking for messages several times a second.

    python -m fedloom.deploy.supernode OPTIONS OF flower-supernode

Flower's loop sleeps 3 s when there is no message, and looks every 0.5 s for the reply to one,
which is most of a short round. Both are constants in its source, so the module's `time` is replaced
by one that sleeps less. A poll is one signed HTTPS request of some hundred bytes.
"""

from __future__ import annotations

import time
from types import SimpleNamespace

POLL_SECONDS = 0.25


def main() -> None:
    """The entry point: `flower-supernode` with shorter pauses."""
    from flwr.supernode import start_client_internal as loop
    from flwr.supernode.cli.flower_supernode import flower_supernode

    def sleep(seconds: float) -> None:
        time.sleep(min(seconds, POLL_SECONDS))

    loop.time = SimpleNamespace(**{**vars(time), "sleep": sleep})
    flower_supernode()


if __name__ == "__main__":
    main()
