"""The memories of a site's clients: they stay here, and the server carries receipts.

After a client's training its memories are written to a file of their own, and the server gets a
receipt: the version (rounds completed then) and the seal (sha256) of that file. With its next task
the client gets the receipt back, and remembers what that file holds. The server stores receipts
like memories, so its checkpoints, its rejection of replies and its way back to an earlier round
apply to them unchanged: a reply that it did not accept leaves it with the earlier receipt.

Nothing is deleted when an earlier receipt comes: it may be a request that was delivered late. A
version is deleted once the server cannot ask for it any more, which is when a later one, which it
is known to have accepted, is not later than the oldest round that the server may go back to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch

from fedloom.core.errors import RunError
from fedloom.core.keeper import Memories
from fedloom.core.params import Params
from fedloom.core.regular_files import check_folder
from fedloom.core.tensor_checks import first_not_finite
from fedloom.engines.flower import envelope
from fedloom.engines.wire import WireError, flatten, unflatten
from fedloom.runs.durable_files import (
    PRIVATE_FOLDER,
    file_error,
    read_if_exists,
    sync_folder,
    write_durably,
)

RECEIPT = "receipt"
_FILE = re.compile(r"client-(\d{1,18})-version-(\d{1,18})-([0-9a-f]{64})\.memory")
_ANY_SIZE = 2**62  # our own files are not limited


class Receipt(NamedTuple):
    """What the server carries in place of a client's memories."""

    version: int
    seal: str

    def tensors(self) -> dict[str, Params]:
        """As the server carries it."""
        seal = torch.tensor(list(bytes.fromhex(self.seal)), dtype=torch.uint8)
        return {RECEIPT: {"version": torch.tensor(self.version), "seal": seal}}

    @classmethod
    def of(cls, carried: Memories) -> Receipt | None:
        """The receipt that the server carries; None if it carries nothing. ValueError for others"""
        if not carried:
            return None
        if set(carried) != {RECEIPT} or set(carried[RECEIPT]) != {"version", "seal"}:
            raise ValueError("it has other names")
        version, seal = carried[RECEIPT]["version"], carried[RECEIPT]["seal"]
        if version.dtype != torch.int64 or version.shape != () or int(version) < 1:
            raise ValueError("its version is not a round")
        if seal.dtype != torch.uint8 or seal.shape != (32,):
            raise ValueError("its seal is not a checksum")
        return cls(int(version), bytes(seal.tolist()).hex())


class SiteMemory:
    """The memories of one run's clients, in a folder of the site. A `MemoryKeeper`.

    names: of the clients, by number. oldest: the oldest round that the server may go back to, as it
    says with every request; None keeps everything.
    """

    def __init__(self, folder: Path, names: Mapping[int, str]) -> None:
        self.folder, self.names = folder, names
        self.oldest: int | None = None
        self._recalled: tuple[int, Memories] | None = None
        # versions that the server has shown a receipt of, by client: it has accepted them
        self._accepted: dict[int, set[int]] = {}
        self._pruned: dict[int, int] = {}  # below which nothing is left, by client

    def recall(self, client: int, carried: Memories) -> Memories:
        """What the client remembers according to the server's receipt."""
        try:
            receipt = Receipt.of(carried)
        except ValueError as problem:
            raise self._refusal(client, f"it sent no receipt of a site ({problem})") from None
        memories = {} if receipt is None else self._read(client, receipt)
        self._recalled = client, memories
        self._prune(client, 0 if receipt is None else receipt.version)
        return memories

    def keep(self, client: int, round: int, memories: Memories) -> Memories:
        """Write what the client remembers after a round; the receipt for the server."""
        if not memories:
            return {}
        assert self._recalled is not None and self._recalled[0] == client
        for slot, params in memories.items():
            if (name := first_not_finite(params)) is not None:
                raise RunError(f"its memory '{slot}' cannot be kept: '{name}' is not finite")
        everything = {**self._recalled[1], **memories}
        facts = {"client": client, "version": round + 1, "slots": list(everything)}
        data = envelope.encode(facts, flatten(everything, "memories"))
        receipt = Receipt(round + 1, envelope.checksum(data))
        self._write(self._path(client, receipt), data)
        return receipt.tensors()

    def versions(self, client: int) -> list[Receipt]:
        """What is kept for a client, oldest first."""
        if not _exists(self.folder):
            return []
        files = (_FILE.fullmatch(path.name) for path in self.folder.iterdir())
        kept = [m for m in files if m is not None and int(m[1]) == client]
        return sorted(Receipt(int(m[2]), m[3]) for m in kept)

    def _path(self, client: int, receipt: Receipt) -> Path:
        return self.folder / f"client-{client}-version-{receipt.version}-{receipt.seal}.memory"

    def _write(self, path: Path, data: bytes) -> None:
        if not _exists(self.folder):
            self.folder.mkdir(mode=PRIVATE_FOLDER)
            sync_folder(self.folder.parent)
        write_durably(path, data)

    def _read(self, client: int, receipt: Receipt) -> Memories:
        data = read_if_exists(self._path(client, receipt))
        if data is None:
            kept = ", ".join(str(version) for version, _ in self.versions(client)) or "none"
            raise self._refusal(
                client, f"it knows version {receipt.version}, and the site has {kept}"
            )
        try:
            facts, tensors = envelope.decode(data, _ANY_SIZE)
        except WireError as error:
            raise self._refusal(client, f"version {receipt.version} is damaged: {error}") from error
        if envelope.checksum(data) != receipt.seal or facts.get("client") != client:
            raise self._refusal(client, f"version {receipt.version} has another content")
        groups = unflatten(tensors, "memories")
        return {slot: groups.get(slot, {}) for slot in facts["slots"]}

    def _refusal(self, client: int, reason: str) -> RunError:
        return RunError(
            f"the site's memory of client '{self.names.get(client, client)}' is not the one the "
            f"server knows: {reason}; restore {self.folder} from a backup, or start a new run"
        )

    def _prune(self, client: int, current: int) -> None:
        """Delete what the server cannot ask for any more. current: the version it knows now.

        Versions that are later than the current one were rejected, or the server went back.
        """
        accepted = {v for v in self._accepted.get(client, set()) if v <= current}
        accepted |= {current} if current else set()
        needed = max((v for v in accepted if v <= (self.oldest or 0)), default=0)
        if needed > self._pruned.get(client, 0):
            for receipt in self.versions(client):
                if receipt.version < needed:
                    self._path(client, receipt).unlink(missing_ok=True)
        self._pruned[client] = needed
        self._accepted[client] = {v for v in accepted if v >= needed}


def _exists(folder: Path) -> bool:
    try:
        return check_folder(folder)
    except OSError as error:
        raise file_error(folder, error) from error
