"""Flower's side of a site: hands each message to the site's worker, and its answer back.

It starts in a moment because it imports neither torch nor NumPy itself. Where the worker listens is
the node's setting `socket`, made by `fedloom deploy node`.
"""

from __future__ import annotations

from typing import Any

from flwr.app import Context, Message
from flwr.app.error import Error
from flwr.clientapp import ClientApp

from fedloom.deploy.site import framing
from fedloom.engines.flower.records import MESSAGE_TYPE, MalformedRecord, from_record, to_record

MAX_BYTES = 2**31  # of a request or an answer; the worker and the server have limits of their own
NO_WORKER = 100  # error codes of our own; Flower's are smaller
MALFORMED = 101

app = ClientApp()


@app.query(MESSAGE_TYPE.removeprefix("query."))
def answer(message: Message, context: Context) -> Message:
    """The worker's answer, or an error that says why there is none."""
    try:
        parts = from_record(message.content, MAX_BYTES)
        reply = framing.ask(_socket(context.node_config), parts, MAX_BYTES)
    except (MalformedRecord, framing.BadFrame) as problem:
        return Message(Error(MALFORMED, f"the site received {problem}"), reply_to=message)
    except OSError as error:
        reason = f"the worker of the site cannot be reached: {error.strerror or error}"
        return Message(Error(NO_WORKER, reason), reply_to=message)
    return Message(to_record(reply), reply_to=message)


def _socket(node_config: Any) -> str:
    path = node_config.get("socket")
    if not isinstance(path, str):
        raise FileNotFoundError(0, "the node has no setting 'socket'; start it with deploy node")
    return path
