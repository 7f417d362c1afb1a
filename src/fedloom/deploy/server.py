"""The server of a deployment: starts the SuperLink and watches over it."""

from __future__ import annotations

import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Callable

from fedloom.deploy.certificates import check_in_date
from fedloom.deploy.flower_extra import check_flower
from fedloom.deploy.layout import ServerFolder, check_private, write_facts
from fedloom.deploy.processes import Process, check_port, environment
from fedloom.deploy.supervise import Supervisor
from fedloom.deploy.variables import SERVER_FOLDER

START_SECONDS = 120.0  # 2 s on a quiet machine, 10 s on a loaded one
TASK_POLL_SECONDS = "0.3"  # how often Flower looks for a run to start; its default is 1


def start_superlink(folder: ServerFolder, bind: str | None = None) -> Process:
    """Start the SuperLink and wait until it answers. bind: the address to listen on.

    By default it listens on loopback if the sites' address for it is loopback, else everywhere.
    """
    check_flower()
    check_private(folder.key)
    check_in_date(folder.certificate)
    address = folder.address
    host = bind or ("127.0.0.1" if address.is_loopback else "0.0.0.0")
    check_port(host, address.port)
    folder.roster.unlink(missing_ok=True)
    write_connection(folder)
    extra = {
        SERVER_FOLDER: str(folder.path),
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": TASK_POLL_SECONDS,
    }
    settings = environment(folder.flower, extra)
    command = _superlink_command(folder, host)
    process = Process("the SuperLink", command, settings, folder.logs / "superlink.log")
    try:
        process.wait_until(lambda: is_healthy(folder), START_SECONDS, "did not answer")
    except BaseException:
        process.stop()
        raise
    return process


def run_server(
    folder: ServerFolder,
    bind: str | None,
    say: Callable[[str], None],
    until: Callable[[], bool],
) -> None:
    """Run the server until it is stopped."""
    with Supervisor({"superlink": lambda: start_superlink(folder, bind)}, say) as server:
        say(f"the server answers on {folder.address}; sites: {', '.join(folder.sites)}")
        say(f"start a run with: fedloom deploy run {folder.path.parent} (Ctrl-C ends the server)")
        server.watch(until)
    say("the server has stopped")


def is_healthy(folder: ServerFolder) -> bool:
    """Whether the SuperLink on this machine answers, with the deployment's certificate."""
    context = ssl.create_default_context(cafile=str(folder.ca))
    url = f"https://127.0.0.1:{folder.address.port}/health"
    try:
        with urllib.request.urlopen(url, timeout=5, context=context) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def write_connection(folder: ServerFolder) -> None:
    """Flower's own settings, with which `flwr run` finds the SuperLink from the same machine."""
    here = {
        "address": f"127.0.0.1:{folder.address.port}",
        "root-certificates": str(folder.ca),
    }
    write_facts(folder.flower / "config.toml", {"superlink": {"default": "here", "here": here}})


def _superlink_command(folder: ServerFolder, host: str) -> list[str]:
    return [
        sys.executable,
        *("-m", "fedloom.deploy.superlink"),
        *("--host", host, "--port", str(folder.address.port)),
        *("--ssl-ca-certfile", str(folder.ca)),
        *("--ssl-certfile", str(folder.certificate)),
        *("--ssl-keyfile", str(folder.key)),
        *("--database", str(folder.database)),
        "--enable-supernode-auth",
        "--disable-runtime-dependency-installation",
    ]
