"""Flower's side of a site: hands each message to the site's worker, and its answer back.

It starts in a moment because it imports no torch. Where the worker listens is the node's setting
`socket`, made by `fedloom deploy node`. Flower finds `app` here; it is made when it is asked for,
so that the module can be imported without Flower.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from fedloom.deploy.site import framing
from fedloom.engines.flower.records import MESSAGE_TYPE, MalformedRecord, from_record, to_record

MAX_BYTES = 2**31  # of a request or an answer; the worker and the server have limits of their own
NO_WORKER, MALFORMED = 100, 101  # error codes of our own; Flower's are smaller


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return _app()


@cache
def _app() -> Any:
    from flwr.clientapp import ClientApp

    app = ClientApp()
    app.query(MESSAGE_TYPE.removeprefix("query."))(forward)
    return app


def forward(message: Any, context: Any) -> Any:
    """The worker's answer to a message, or an error that says why there is none."""
    from flwr.app import Message
    from flwr.app.error import Error

    try:
        parts = from_record(message.content, MAX_BYTES)
        reply = framing.ask(_socket(context.node_config), parts, MAX_BYTES)
    except (MalformedRecord, framing.BadFrame) as problem:
        return Message(Error(MALFORMED, f"the site received {problem}"), reply_to=message)
    except OSError as error:
        reason = f"the worker of the site cannot be reached: {error.strerror or error}"
        return Message(Error(NO_WORKER, reason), reply_to=message)
    return Message(to_record(reply), reply_to=message)


def _socket(node_config: Mapping[str, Any]) -> str:
    path = node_config.get("socket")
    if not isinstance(path, str):
        raise FileNotFoundError(0, "the node has no setting 'socket'; use fedloom deploy node")
    return path
