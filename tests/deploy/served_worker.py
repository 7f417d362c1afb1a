"""A worker of site 'north' that serves in a thread of the test's process."""

import socket
import threading
from contextlib import suppress
from pathlib import Path

from deploy.three_sites import HOSPITALS
from fedloom.deploy.site import framing
from fedloom.deploy.site.settings import SiteSettings
from fedloom.deploy.site.site import Site
from fedloom.deploy.site.worker import listening, serve
from fedloom.engines.flower import messages
from fedloom.engines.flower.messages import Header

LIMIT = 10**6
HELLO = messages.hello_request(Header("1", "run", "north"))


class Served:
    """A worker in a thread of this process."""

    def __init__(self, folder: Path) -> None:
        settings = SiteSettings("north", max_bytes=LIMIT)
        self.site = Site(settings, settings.source(HOSPITALS / "north.csv"), folder / "state")
        self.path = folder / "socket" / "worker.sock"
        self.entered = listening(self.path)
        self.listener = self.entered.__enter__()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        with suppress(OSError):  # the listener is closed at the end
            serve(self.site, self.listener, read_seconds=0.5)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join(10)
        self.entered.__exit__(None, None, None)

    def says_hello(self) -> bool:
        reply = messages.read_reply(framing.ask(self.path, HELLO, LIMIT), LIMIT)
        return isinstance(reply, messages.HelloReply)

    def sent(self, data: bytes) -> bytes:
        """What comes back for these bytes, until the worker closes the connection."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(str(self.path))
            with suppress(OSError):
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
            received = b""
            with suppress(ConnectionResetError):
                while piece := connection.recv(1 << 16):
                    received += piece
            return received
