"""Checksums of the clients' memories: of every row, and of all current memories together.

A checkpoint records the sum of the checksums of all current memories, which reveals a row that was
lost, added, swapped or edited. The sum is updated row by row: the cost of a commit depends on what
it writes, not on the number of clients.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TypedDict


def row_seal(client: int, slot: str, round: int, value: bytes) -> bytes:
    """The checksum of a row. It covers the key, so that a damaged index cannot swap two rows."""
    digest = hashlib.sha256(row_key(client, slot, round))
    digest.update(value)
    return digest.digest()


def row_key(client: int, slot: str, round: int) -> bytes:
    return json.dumps([client, slot, round]).encode()


class DigestFacts(TypedDict):
    """A MemoryDigest, as a checkpoint stores it."""

    count: int
    digest: str


@dataclass(frozen=True)
class MemoryDigest:
    """The number of current memories, and the sum of their checksums modulo 2^256.

    A sum does not depend on their order, and can be updated when one memory is replaced.
    """

    count: int = 0
    total: int = 0

    def plus(self, seal: bytes) -> MemoryDigest:
        return MemoryDigest(self.count + 1, (self.total + int.from_bytes(seal, "big")) % 2**256)

    def minus(self, seal: bytes) -> MemoryDigest:
        return MemoryDigest(self.count - 1, (self.total - int.from_bytes(seal, "big")) % 2**256)

    @property
    def facts(self) -> DigestFacts:
        """For JSON."""
        return {"count": self.count, "digest": f"{self.total:064x}"}
