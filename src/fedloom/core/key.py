"""A named tree of random keys: a path gives the same draws on every machine, in any order."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch

Label = str | int


@dataclass(frozen=True, slots=True)
class Key:
    """A random key. Its draws depend on its path from the seed, never on earlier draws.

    >>> key = Key.root(7)
    >>> key.fold("round", 3, "client", 5) == key.fold("round", 3).fold("client", 5)
    True
    >>> key.fold("round", 3) == key.fold("round", "3")
    False
    """

    digest: bytes

    @staticmethod
    def root(seed: int) -> Key:
        """The root of a run."""
        return Key(hashlib.sha256(b"fedloom:%d" % seed).digest())

    def fold(self, *labels: Label) -> Key:
        """The descendant reached by the labels, one level per label."""
        digest = self.digest
        for label in labels:
            tag = b"i" if isinstance(label, int) else b"s"
            digest = hashlib.sha256(digest + tag + str(label).encode()).digest()
        return Key(digest)

    @property
    def seed(self) -> int:
        """63 bits of this node, for any generator that takes an integer seed."""
        return int.from_bytes(self.digest[:8], "big") >> 1

    def below(self, count: int) -> int:
        """A draw from 0 ... count - 1, with a bias of at most count / 2^63.

        It needs no generator: building one takes longer than a single draw from it.
        """
        return self.seed % count

    def seed_layers(self, device: torch.device) -> None:
        """Seed the global generator used by layers such as dropout, on the CPU and on the device.

        Not torch.manual_seed: without a GPU it queues a call with a stack trace, 1.5 ms each time.
        """
        torch.default_generator.manual_seed(self.seed)
        if device.type == "cuda":
            with torch.cuda.device(device):  # which need not be the current one
                torch.cuda.manual_seed(self.seed)
        elif device.type == "mps":
            torch.mps.manual_seed(self.seed)

    def generator(self, device: torch.device | str = "cpu") -> torch.Generator:
        """A new torch generator, seeded by this node."""
        return torch.Generator(device=device).manual_seed(self.seed)
