"""Flower's own SuperLink state and Grid in this process, without HTTP, and nodes that answer.

Real: the Grid, messages, records, chunks and checksums, the SuperLink's state, its object store and
the handlers of its requests. Not real: HTTP, TLS, and the SuperNode with its ClientApp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from flwr.app import Message, RecordDict
from flwr.app.error import Error
from flwr.app.message import remove_content_from_message
from flwr.common.constant import NOOP_FLWR_AID, SUPERLINK_NODE_ID
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID, TaskType
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid import HttpGrid
from flwr.superlink.servicer.runtime import runtime_handlers as handlers

Answer = Callable[[RecordDict], RecordDict | Error]
HEARTBEAT = 1000.0


class RuntimeClient:
    """What the Grid calls, answered by the SuperLink's handlers. pushed: objects that were sent."""

    def __init__(self, state: Any, run_id: int) -> None:
        self.state, self.task = state, SimpleNamespace(run_id=run_id)
        self.pushed: list[str] = []
        self.pulled = 0  # bytes

    def GetNodes(self, request: Any) -> Any:
        return handlers.get_nodes(request, self.state, self.task)

    def PushMessages(self, request: Any) -> Any:
        return handlers.push_messages(request, self.state, self.task)

    def PullMessages(self, request: Any) -> Any:
        return handlers.pull_messages(request, self.state, self.task)

    def PushObject(self, request: Any) -> Any:
        self.pushed.append(request.object_id)
        return handlers.push_object(request, self.state, self.task)

    def PullObject(self, request: Any) -> Any:
        response = handlers.pull_object(request, self.state, self.task)
        self.pulled += len(response.object_content)
        return response

    def ConfirmMessageReceived(self, request: Any) -> Any:
        return handlers.confirm_message_received(request, self.state, self.task)


class InMemoryFlower:
    """A SuperLink with one registered node per name. grid: what a ServerApp would be given."""

    def __init__(self, names: str) -> None:
        factory = LinkStateFactory(
            FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), ObjectStoreFactory()
        )
        self.state = factory.state()
        self.run_id = self.state.create_run(
            None, None, None, {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP
        )
        TaskIdentity.run_id, TaskIdentity.node_id = self.run_id, SUPERLINK_NODE_ID
        TaskIdentity.task_id = 1
        self.nodes = {
            name: self.state.create_node(NOOP_FLWR_AID, "none", name.encode(), HEARTBEAT)
            for name in names
        }
        for name in names:
            self.connect(name)
        self.grid = HttpGrid(token="none")
        self.grid.set_run(self.state.get_run_info(run_ids=[self.run_id])[0])
        self.client = RuntimeClient(self.state, self.run_id)
        self.grid._client = self.client

    def connect(self, name: str) -> None:
        assert self.state.activate_node(self.nodes[name], HEARTBEAT)

    def disconnect(self, name: str) -> None:
        assert self.state.deactivate_node(self.nodes[name])

    def answer(self, answers: Mapping[str, Answer]) -> list[str]:
        """Let these nodes answer what they were sent; the nodes that had something to answer."""
        busy = []
        for name, answer in answers.items():
            for delivered in self.state.get_message_ins(self.nodes[name], limit=None):
                busy.append(name)
                request = self._received(delivered.metadata.message_id)
                result = answer(request.content)
                if isinstance(result, Error):
                    self._send(Message(error=result, reply_to=request))
                else:
                    self._send(Message(result, reply_to=request))
        return busy

    def _received(self, message_id: str) -> Message:
        tree = self.state.object_store.get_object_tree(message_id)
        contents = {
            node.object_id: self.state.get_object(self.run_id, node.object_id)
            for node in iterate_object_tree(tree)
        }
        message = inflate_object_from_contents(message_id, contents)
        self.state.object_store.delete(message_id)
        assert isinstance(message, Message)
        message.metadata.__dict__["_message_id"] = message_id
        return message

    def _send(self, message: Message) -> None:
        message.metadata.__dict__["_message_id"] = message.object_id
        session = self.state.start_session(self.run_id)
        bare = remove_content_from_message(message)
        stored, missing = self.state.store_message_and_object_tree(
            bare, get_object_tree(message), session
        )
        assert stored
        objects = get_all_nested_objects(message)
        for object_id in missing:
            content = objects[object_id].deflate()
            assert self.state.store_object(self.run_id, session, object_id, content)
