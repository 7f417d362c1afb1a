"""A site's processes: the worker with its data, the SuperNode, and the executor between them.

What is seen from outside when one of them dies:

- the SuperNode: the server notices after a missed heartbeat (30 to 60 s) and reports "Node
  Unavailable" for messages it held; started again with the same key it is the same node, and
  continues with new messages;
- the executor: the message it worked on gets an error reply when its task expires; the next
  message is answered by its successor;
- the worker: the executor cannot reach it and replies with an error; the engine asks again.

A SuperNode whose key is not registered at the server, that has no key, or whose ca.crt did not sign
the server's certificate is refused at once and ends with exit code 1 (in its log: 305). One that
was killed is refused in the same way as one with an unknown key until its last connection expires,
up to 60 s later; so it is started again for a while. That is as well: the request that it had when
it was killed is lost, and the server learns of it only when the connection expires. While the
server cannot be reached at all, a SuperNode tries without end.
"""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from fedloom.core.errors import RunError, UserError
from fedloom.deploy.certificates import write_private
from fedloom.deploy.flower_extra import check_flower
from fedloom.deploy.layout import Kit, check_private, private_folder
from fedloom.deploy.processes import Process, environment, free_port
from fedloom.deploy.supervise import Supervisor
from fedloom.runs.lock import Lock

WORKER, SUPERNODE = "the site's worker", "the SuperNode"
BAD_INPUT = 2  # exit code of the worker
READ_SECONDS = 3600.0  # for a site to read its data
LONGEST_SOCKET_PATH = 100  # bytes; the operating system's limit is about 108
STALE_SECONDS = 90.0  # Flower counts a connection for 60 s after its last heartbeat
NOT_ACTIVATED = "[code: 2004]"
REFUSALS = {
    "CERTIFICATE_VERIFY_FAILED": "the server at {server} does not have the certificate of this "
    "deployment; check the address in site.toml, or get a new kit from the server's admin",
    NOT_ACTIVATED: "the server at {server} does not know the key in '{key}'; get a new kit from "
    "the server's admin",
    "[code: 2001]": "the server at {server} accepts sites with a key only; get a new kit from the "
    "server's admin",
}


def run_node(kit: Kit, data: Path, say: Callable[[str], None], until: Callable[[], bool]) -> None:
    """Run a site until it is stopped."""
    check_flower()
    check_private(kit.key)
    if not data.exists():
        raise UserError(f"data '{data}' do not exist; give the path of this site's data")
    private_folder(kit.state)
    with closing(Lock(kit.state / "lock")), site_processes(kit, data.resolve(), say) as site:
        say(f"site '{kit.name}': its data are read; connecting to {kit.server} (Ctrl-C ends it)")
        site.watch(until)
    say(f"site '{kit.name}': stopped")


@contextmanager
def site_processes(kit: Kit, data: Path, say: Callable[[str], None]) -> Iterator[Supervisor]:
    """The processes of a site, running; they are ended at the end of the block."""
    port, secret = free_port(), new_secret(kit.state / "executor.secret")
    with _socket_path(kit) as socket:
        starts = {
            "worker": lambda: start_worker(kit, data, socket),
            "supernode": lambda: start_supernode(kit, port, secret, socket),
            "executor": lambda: start_executor(kit, port, secret),
        }
        with Supervisor(starts, say, Refusals(kit, say)) as site:
            yield site


@contextmanager
def _socket_path(kit: Kit) -> Iterator[Path]:
    """Where the worker listens: in the site's state, or in a folder with a shorter path."""
    path = kit.state / "worker.sock"
    if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="fedloom-") as folder:
        yield Path(folder) / "worker.sock"


class Refusals:
    """Judges whether it is of use to start a process of a site again."""

    def __init__(self, kit: Kit, say: Callable[[str], None]) -> None:
        self.kit, self.say = kit, say
        self.refused_since: float | None = None

    def __call__(self, process: Process) -> Exception | None:
        """The error if it is no use; None if it may help."""
        end = process.last_lines(40)
        if process.name == WORKER and process.exit_code == BAD_INPUT:
            return UserError(end.rpartition("error: ")[2].strip())
        if process.name != SUPERNODE:
            return None
        for sign, reason in REFUSALS.items():
            if sign in end and (sign != NOT_ACTIVATED or self._is_final(process)):
                return RunError(reason.format(server=self.kit.server, key=self.kit.key))
        return None

    def _is_final(self, process: Process) -> bool:
        """Whether the server has refused the key for so long that no earlier connection is why."""
        now = time.monotonic()
        if self.refused_since is None or now - process.began > STALE_SECONDS:
            self.refused_since = now
            self.say(
                "the server does not know the key of this site, or still counts its earlier "
                f"connection, which expires in a minute; trying for {STALE_SECONDS:.0f} s"
            )
        return now - self.refused_since > STALE_SECONDS


def start_worker(kit: Kit, data: Path, socket: Path) -> Process:
    """Start the process that reads the data and trains, and wait until it has read them."""
    from fedloom.deploy.site.worker import is_listening

    command = [
        sys.executable,
        *("-m", "fedloom.deploy.site.worker", str(kit.path)),
        *("--data", str(data), "--state", str(kit.state), "--socket", str(socket)),
    ]
    process = Process(WORKER, command, environment(kit.flower), kit.logs / "worker.log")
    try:
        process.wait_until(lambda: is_listening(socket), READ_SECONDS, "did not read its data")
    except RunError:
        process.stop()
        if (reason := Refusals(kit, lambda text: None)(process)) is not None:
            raise reason from None
        raise
    except BaseException:
        process.stop()
        raise
    return process


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
    return Process(SUPERNODE, command, environment(kit.flower), log)


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
