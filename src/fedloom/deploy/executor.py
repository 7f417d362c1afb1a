"""The process that answers messages at a site, instead of Flower's SuperExec.

    python -m fedloom.deploy.executor --runtime-api ADDRESS --secret FILE

Flower's SuperExec installs the app that the server sent and starts a new process with its code for
every message: seconds of imports each time, and the server would control the site. This
process stays, and hands every message to fedloom's own ClientApp. The app in the message is neither
unpacked nor run. The SuperNode is started with `--isolation process` and a secret of its own, so
that no other user of the machine can take its tasks; with SuperExec there is no such secret, and
each task's token stands on a command line.
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
from pathlib import Path
from threading import Thread
from typing import Any

from fedloom.core.errors import shortened

POLL_SECONDS = 0.1  # on loopback; an idle site takes 5 % of a core
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"


class Runtime:
    """The SuperNode's API for those who work for it."""

    def __init__(self, address: str, secret: bytes) -> None:
        self.address = address
        from flwr.supercore.interceptors import SuperExecAuthHttpInterceptor

        signed = SuperExecAuthHttpInterceptor(
            master_secret=secret, protected_methods=frozenset({ACQUIRE})
        )
        self.client = self.connect(signed)

    def connect(self, *interceptors: Any) -> Any:
        """A client of the API that signs its requests in this way."""
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
        from flwr.supercore.retry import make_simple_http_retry_invoker
        from flwr.supercore.runtime import RuntimeHttpClient

        return RuntimeHttpClient(
            f"http://{self.address}",  # loopback, within one machine
            interceptors=[RuntimeVersionHttpInterceptor("fedloom"), *interceptors],
            verify=False,  # there is no TLS, so no certificates need to be loaded for every task
            retry_invoker=make_simple_http_retry_invoker(),
        )

    def next_token(self) -> str | None:
        """The token of the next task, if one is waiting."""
        from flwr.proto.runtime_pb2 import AcquireTaskRequest
        from flwr.supercore.constant import TaskType

        wanted = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
        task = self.client.AcquireTask(wanted)
        return task.token if task.HasField("task") and task.token else None


def answer(runtime: Runtime, token: str) -> None:
    """Do one task: take its message, give the reply, say that it is done."""
    from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
    from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor
    from flwr.supernode.runtime.run_clientapp import push_message

    client = runtime.connect(RuntimeTokenHttpInterceptor(token))
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heartbeat.start()
    try:
        message, context = pull(client)
        push_message(client, _reply(message, context), context)
        _finish(client, context)
    except Exception as error:  # such as a run that has ended; the next task must not suffer
        _log(f"a task was given up: {type(error).__name__}: {error}")
    finally:
        heartbeat.stop()
        client.close()


def pull(client: Any) -> tuple[Any, Any]:
    """The message of a task and its context, without the app that comes with it.

    The SuperNode hands out a task before it has the whole message, and Flower's own function looks
    again for the rest after one second and more.
    """
    from flwr.app import Message
    from flwr.common.serde import context_from_proto
    from flwr.proto.node_pb2 import Node
    from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullTaskInputRequest
    from flwr.supercore.inflatable import inflatable_protobuf_utils as calls
    from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree

    context = context_from_proto(client.PullTaskInput(PullTaskInputRequest()).context)
    tree = client.PullMessages(PullAppMessagesRequest()).message_object_trees[0]
    place = Node(node_id=context.node_id), context.run_id
    message = pull_and_inflate_object_from_tree(
        tree,
        calls.make_pull_object_fn_protobuf(client.PullObject, *place),
        calls.make_confirm_message_received_fn_protobuf(client.ConfirmMessageReceived, *place),
        return_type=Message,
        max_tries_per_object=None,
        initial_backoff=0.02,
        backoff_cap=1.0,
    )
    message.metadata.__dict__["_message_id"] = tree.object_id  # as Flower does: it is not sent
    return message, context


def _reply(message: Any, context: Any) -> Any:
    """The ClientApp's reply; a message with an error if it raises."""
    from flwr.app import Error, Message
    from flwr.common.constant import ErrorCode

    from fedloom.deploy.client_app import app as client_app

    try:
        return client_app(message=message, context=context)
    except Exception as error:
        reason = shortened(f"{type(error).__name__}: {error}")
        _log(f"the ClientApp failed: {reason}")
        return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)


def _finish(client: Any, context: Any) -> None:
    from flwr.common.constant import SubStatus
    from flwr.supernode.runtime.run_clientapp import push_task_output

    push_task_output(client=client, context=context, sub_status=SubStatus.COMPLETED, details="")


def serve(runtime: Runtime) -> None:
    """Answer messages until the process is ended.

    Each has a thread of its own. There is one at a time, but for this: if a run ends while the
    SuperNode receives a message of it, the task stays and its message never comes.
    """
    import httpx

    while True:
        try:
            if token := runtime.next_token():
                Thread(target=answer, args=(runtime, token), daemon=True).start()
                continue
        except httpx.HTTPError as error:  # the SuperNode is being started again
            _log(f"{type(error).__name__}: {error}")
            time.sleep(1)
        time.sleep(POLL_SECONDS)


def _log(text: str) -> None:
    sys.stderr.write(f"{shortened(text)}\n")
    sys.stderr.flush()


def wait_for(address: str) -> None:
    """Wait until something listens there: Flower's own retries have pauses of several seconds."""
    host, _, port = address.rpartition(":")
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            return
        except OSError:
            time.sleep(POLL_SECONDS)


def main() -> None:
    """The entry point; see above."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runtime-api", required=True)
    parser.add_argument("--secret", required=True, type=Path)
    given = parser.parse_args()
    wait_for(given.runtime_api)
    serve(Runtime(given.runtime_api, given.secret.read_bytes()))


if __name__ == "__main__":
    main()
