"""The ClientApp of a site: what it forwards, and what it says without a worker. Needs Flower."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: see `make test-deploy`")

from flwr.app import Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from deploy.served_worker import HELLO, LIMIT, Served
from fedloom.deploy.client_app import MALFORMED, NO_WORKER, app
from fedloom.engines.flower import messages
from fedloom.engines.flower.records import MESSAGE_TYPE, from_record, to_record

pytestmark = [pytest.mark.deploy, pytest.mark.posix]


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[Path]:
    """Where a worker of site 'north' listens."""
    served = Served(tmp_path)
    yield served.path
    served.close()


def asked(content: Any, **node_config: Any) -> Any:
    """The ClientApp's reply to a message, as Flower calls it."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 2, 3
    message = Message(content, 2, MESSAGE_TYPE, ttl=60.0)
    return app(message=message, context=SimpleNamespace(node_config=node_config))


def test_the_worker_answers(socket: Path) -> None:
    reply = asked(to_record(HELLO), socket=str(socket))
    assert not reply.has_error()
    answer = messages.read_reply(from_record(reply.content, LIMIT), LIMIT)
    assert isinstance(answer, messages.HelloReply) and answer.report["site"] == "north"


def test_a_refusal_of_the_worker_is_passed_on(socket: Path) -> None:
    reply = asked(to_record({"request": b"garbage"}), socket=str(socket))
    answer = messages.read_reply(from_record(reply.content, LIMIT), LIMIT)
    assert isinstance(answer, messages.ErrorReply) and "site 'north' received" in answer.reason


def test_without_a_worker_the_server_is_told(tmp_path: Path) -> None:
    reply = asked(to_record(HELLO), socket=str(tmp_path / "none.sock"))
    assert reply.error.code == NO_WORKER
    assert reply.error.reason == (
        "the worker of the site cannot be reached: No such file or directory"
    )
    assert "no setting 'socket'" in asked(to_record(HELLO)).error.reason


def test_a_message_of_another_app_is_refused(socket: Path) -> None:
    reply = asked(RecordDict(), socket=str(socket))
    assert reply.error.code == MALFORMED and "without the one record" in reply.error.reason


def test_it_imports_no_torch() -> None:
    code = "import sys; from fedloom.deploy.client_app import app; print('torch' in sys.modules)"
    path = os.pathsep.join(sys.path)
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert run.stdout.strip() == "False"
