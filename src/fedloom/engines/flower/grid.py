"""The transport of the engine on Flower's Grid, for the version of Flower that the extra pins.

Flower's own `pull_messages` fetches a reply of any size into memory, waits up to two hours for a
reply that is still being uploaded, and looks again for it only after a second. So replies are
pulled here, object by object, from the same interface. Flower's `send_and_receive`, which polls
every three seconds, is not used. While the SuperLink is away, Flower repeats every call for ever;
here it gives up after RECONNECT_SECONDS.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from threading import Lock
from typing import Any, TypeVar

from fedloom.core.errors import RunError, shortened
from fedloom.engines.flower.delivery import REPLY_LIMIT
from fedloom.engines.flower.messages import BROADCAST, Parts
from fedloom.engines.flower.records import (
    MESSAGE_TYPE,
    MalformedRecord,
    array_of,
    from_record,
    to_record,
)
from fedloom.engines.flower.transport import Failure

T = TypeVar("T")
RECONNECT_SECONDS = 60.0  # for a SuperLink that cannot be reached
UPLOAD_SECONDS = 120.0  # for a site to finish the upload of a reply that it has announced
CLOCK_SECONDS = 600.0  # by which clocks may differ; else a site's replies are born expired
OVERHEAD = 2**20  # bytes of a reply that are not its parts
_ERRORS = {
    3: "gave no answer before its request expired, or its upload broke off",
    4: "gave an answer that expired before it was read",
    5: "lost its connection: it did not report to the SuperLink in time",
    8: "has a ClientApp that ended without an answer",
}


class GridTransport:
    """Sites are nodes of a Grid.

    nodes: the id of each site's node, which belongs to the key in the site's start kit; a node that
    is not among them is never sent anything. limit: bytes of a reply that are accepted.
    """

    def __init__(self, grid: Any, nodes: Mapping[str, int], limit: int = REPLY_LIMIT) -> None:
        self.grid, self.nodes, self.limit = grid, dict(nodes), limit
        self._broadcast: tuple[bytes, Any] | None = None
        grid._retry_invoker.max_time = RECONNECT_SECONDS

    def connected(self) -> Collection[str]:
        online = set(_call(self.grid.get_node_ids))
        return [site for site, node in self.nodes.items() if node in online]

    def push(self, site: str, parts: Parts, seconds: float) -> str | Failure:
        from flwr.app import Message
        from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

        content = to_record(parts, self._array)
        ttl = seconds + CLOCK_SECONDS
        message = Message(content, self.nodes[site], MESSAGE_TYPE, ttl=ttl)
        try:
            tickets = list(_call(lambda: self.grid.push_messages([message])))
        except ObjectPushError as error:
            return Failure(f"could not be sent a request: {shortened(str(error), 200)}")
        if not tickets or not tickets[0]:
            return Failure("could not be sent a request: the SuperLink did not accept it")
        return str(tickets[0])

    def _array(self, name: str, data: bytes) -> Any:
        """A large part. The broadcast is the same for all sites, so its Array is kept."""
        if name != BROADCAST:
            return array_of(data)
        if self._broadcast is None or self._broadcast[0] is not data:
            self._broadcast = data, array_of(data)
        return self._broadcast[1]

    def pull(self, tickets: Collection[str]) -> Mapping[str, Parts | Failure]:
        messages = _call(lambda: dict(pull_messages(self.grid, tickets, self.limit + OVERHEAD)))
        return {ticket: self._content(message) for ticket, message in messages.items()}

    def _content(self, message: Any) -> Parts | Failure:
        if isinstance(message, Failure):
            return message
        if message.has_error():
            return Failure(_explained(message.error))
        try:
            return from_record(message.content, self.limit)
        except MalformedRecord as error:
            return Failure(f"sent {error}")

    def close(self) -> None:
        """Nothing to release: the Grid belongs to Flower."""


def pull_messages(
    grid: Any, tickets: Iterable[str], limit: int
) -> Iterator[tuple[str, Any | Failure]]:
    """The replies that have arrived, by ticket; a Failure for one that cannot be had.

    limit: bytes that are pulled of a reply.
    """
    from flwr.proto.runtime_pb2 import PullAppMessagesRequest

    request = PullAppMessagesRequest(message_ids=list(tickets))
    response = grid._runtime_client.PullMessages(request)
    for message, tree in zip(response.messages_list, response.message_object_trees, strict=True):
        yield message.metadata.reply_to_message_id, _pulled(grid, message, tree, limit)


def _pulled(grid: Any, message: Any, tree: Any, limit: int) -> Any | Failure:
    """One reply, with its content."""
    from flwr.app import Message
    from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
    from flwr.supercore.inflatable.inflatable_utils import (
        ObjectPullError,
        inflate_object_from_contents,
        pull_objects,
    )

    try:
        contents = pull_objects(
            [node.object_id for node in iterate_object_tree(tree)],
            _counted(_pull_object(grid), limit),
            max_time=UPLOAD_SECONDS,
            initial_backoff=0.05,
            backoff_cap=0.5,
        )
    except TooLarge:
        most = f"more than the {limit - OVERHEAD:,} bytes that are accepted of a reply"
        return Failure(f"sent {most}", final=True)
    except ObjectPullError as error:
        return Failure(f"did not finish the upload of its reply ({shortened(str(error), 200)})")
    finally:
        _forget(grid, message.metadata.message_id)
    try:
        reply = inflate_object_from_contents(message.metadata.message_id, contents)
    except Exception as error:  # whatever Flower makes of objects that a site has made up
        return Failure(f"sent a message that Flower cannot read ({type(error).__name__})")
    return reply if isinstance(reply, Message) else Failure("sent something that is no message")


class TooLarge(Exception):
    """A reply with more bytes than are accepted."""


def _counted(pull: Callable[[str], bytes], limit: int) -> Callable[[str], bytes]:
    """The function, which raises TooLarge as soon as it has pulled more bytes; thread-safe."""
    lock, left = Lock(), limit

    def pull_counted(object_id: str) -> bytes:
        nonlocal left
        content = pull(object_id)
        with lock:
            left -= len(content)
            if left < 0:
                raise TooLarge
        return content

    return pull_counted


def _pull_object(grid: Any) -> Callable[[str], bytes]:
    from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf

    pull: Callable[[str], bytes] = make_pull_object_fn_protobuf(
        grid._runtime_client.PullObject, node=grid.node, run_id=grid.run.run_id
    )
    return pull


def _forget(grid: Any, message_id: str) -> None:
    """Let the SuperLink delete a reply, also one that was not read to its end."""
    from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest

    grid._runtime_client.ConfirmMessageReceived(
        ConfirmMessageReceivedRequest(
            node=grid.node, run_id=grid.run.run_id, message_object_id=message_id
        )
    )


def _explained(error: Any) -> str:
    """A Flower error as a phrase about the site; of a traceback the last line."""
    if error.code in _ERRORS:
        return _ERRORS[error.code]
    lines = [line for line in (error.reason or "").splitlines() if line.strip()]
    why = f": {shortened(lines[-1], 200)}" if lines else ""
    return f"failed in its ClientApp (Flower's error {error.code}){why}"


def _call(call: Callable[[], T]) -> T:
    """The result of a call of the Grid; RunError if there is no SuperLink or no run any more."""
    import httpx
    from flwr.supercore.run import RunNotRunningException

    resume = "the run folder is intact: resume with `fedloom deploy run`"
    try:
        return call()
    except httpx.HTTPError as error:
        cause = shortened(str(error), 200) or type(error).__name__
        raise RunError(f"Flower's SuperLink does not answer ({cause}); {resume}") from error
    except RunNotRunningException as error:  # not an Exception
        raise RunError(f"Flower has ended this run, as after a restart; {resume}") from error
