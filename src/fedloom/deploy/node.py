"""A site's processes: the worker with its data, the SuperNode, and the executor between them.

What is seen from outside when one of them dies:

- the SuperNode: the server notices after a missed heartbeat (30 to 60 s) and reports "Node
  Unavailable" for messages it held; started again with the same key it is the same node, and
  continues with new messages;
- the executor: the message it worked on gets an error reply when its task expires; the next
  message is answered by its successor;
- the worker: the executor cannot reach it and replies with an error; the engine asks again.

A SuperNode whose key is not registered at the server, that has no key, or whose ca.crt did not sign
the server's certificate is refused at once and ends with exit code 1 (in its log: 305). While the
server cannot be reached at all it tries again without end.
"""

from __future__ import annotations

import secrets
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from fedloom.core.errors import UserError
from fedloom.deploy.certificates import write_private
from fedloom.deploy.flower_extra import check_flower
from fedloom.deploy.layout import Kit, check_private, private_folder
from fedloom.deploy.processes import Process, environment, free_port, last_lines
from fedloom.deploy.supervise import Supervisor
from fedloom.runs.lock import Lock

LONGEST_SOCKET_PATH = 100  # bytes; the operating system's limit is about 108
REFUSALS = {
    "CERTIFICATE_VERIFY_FAILED": "the server at {server} does not have the certificate of this "
    "deployment; check the address in site.toml, or get a new kit from the server's admin",
    "[code: 2004]": "the server at {server} does not know the key in '{key}'; get a new kit from "
    "the server's admin",
    "[code: 2001]": "the server at {server} accepts sites with a key only; get a new kit from the "
    "server's admin",
}


def run_node(
    kit: Kit,
    data: Path,
    options: Sequence[str],
    say: Callable[[str], None],
    until: Callable[[], bool],
) -> None:
    """Run a site until it is stopped. options: for the reader of its data, as NAME=VALUE."""
    check_flower()
    check_private(kit.key)
    if not data.exists():
        raise UserError(f"data '{data}' do not exist; give the path of this site's data")
    private_folder(kit.state)
    with closing(Lock(kit.state / "lock")), tempfile.TemporaryDirectory(prefix="fedloom-") as short:
        socket = kit.state / "worker.socket"
        if len(bytes(socket)) > LONGEST_SOCKET_PATH:
            socket = Path(short) / "worker.socket"
        with site_processes(kit, data.resolve(), options, socket, say) as site:
            say(f"site '{kit.name}': connecting to {kit.server} (Ctrl-C ends it)")
            site.watch(until)
    say(f"site '{kit.name}': stopped")


def site_processes(
    kit: Kit, data: Path, options: Sequence[str], socket: Path, say: Callable[[str], None]
) -> Supervisor:
    """The processes of a site, to be started by entering the result."""
    port, secret = free_port(), new_secret(kit.state / "executor.secret")
    starts = {
        "worker": lambda: start_worker(kit, data, options, socket),
        "supernode": lambda: start_supernode(kit, port, secret, socket),
        "executor": lambda: start_executor(kit, port, secret),
    }
    return Supervisor(starts, say, lambda process: refusal(kit, process))


def refusal(kit: Kit, process: Process) -> str | None:
    """Why the server will not have this site, from the end of the SuperNode's log."""
    end = last_lines(process.log, 40)
    for sign, reason in REFUSALS.items():
        if sign in end:
            return reason.format(server=kit.server, key=kit.key)
    return None


def start_worker(kit: Kit, data: Path, options: Sequence[str], socket: Path) -> Process:
    """Start the process that reads the data and trains."""
    command = [
        sys.executable,
        *("-m", "fedloom.deploy.site.worker"),
        *("--site", kit.name, "--data", str(data), "--state", str(kit.state)),
        *("--socket", str(socket)),
        *(word for option in options for word in ("--option", option)),
    ]
    return Process("the worker", command, environment(kit.flower), kit.logs / "worker.log")


def start_supernode(kit: Kit, port: int, secret: Path, socket: Path) -> Process:
    """Start the SuperNode, which keeps the connection to the server."""
    command = [
        sys.executable,
        *("-m", "fedloom.deploy.supernode"),
        *("--superlink", str(kit.server)),
        *("--root-certificates", str(kit.ca)),
        *("--auth-supernode-private-key", str(kit.key)),
        *("--isolation", "process"),
        *("--superexec-auth-secret-file", str(secret)),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--node-config", f'socket="{socket}"'),
    ]
    log = kit.logs / "supernode.log"
    return Process("the SuperNode", command, environment(kit.flower), log)


def start_executor(kit: Kit, port: int, secret: Path) -> Process:
    """Start the process that answers the SuperNode's messages."""
    command = [
        sys.executable,
        *("-m", "fedloom.deploy.executor"),
        *("--runtime-api", f"127.0.0.1:{port}"),
        *("--secret", str(secret)),
    ]
    return Process("the executor", command, environment(kit.flower), kit.logs / "executor.log")


def new_secret(path: Path) -> Path:
    """A new secret that SuperNode and executor share for as long as they run."""
    path.unlink(missing_ok=True)
    write_private(path, secrets.token_bytes(32))
    return path
