"""A relay that counts the bytes between sites and a server on one machine.

It listens on a port of its own and passes every connection on, so what it counts is what would
travel on a network: TLS records, with polls and heartbeats.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Relay:
    """port: where it listens. up, down: bytes from those who connect, and to them, so far."""

    def __init__(self, target: int) -> None:
        self.target, self.up, self.down = target, 0, 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.close()

    @property
    def counted(self) -> tuple[int, int]:
        with self._lock:
            return self.up, self.down

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self.target))
                except OSError:  # no server at the moment
                    near.close()
                    continue
                for ends in ((near, far, "up"), (far, near, "down")):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, way: str) -> None:
        with suppress(OSError):
            while data := source.recv(2**16):
                target.sendall(data)
                with self._lock:
                    setattr(self, way, getattr(self, way) + len(data))
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()  # the other thread closes the other one
