"""The digest of all memories: a sum of checksums, each of which covers key and value."""

import hashlib
import itertools

from fedloom.runs.memory_digest import MemoryDigest, row_seal

LARGEST = bytes([255]) * 32


def test_the_checksum_of_a_row_covers_its_key_and_its_value() -> None:
    assert row_seal(1, "a", 2, b"xyz") == hashlib.sha256(b'[1, "a", 2]xyz').digest()
    rows = [(1, "a", 2, b""), (1, "a", 22, b""), (11, "a", 2, b""), (1, "b", 2, b"")]
    assert len({row_seal(*row) for row in rows}) == 4


def test_a_digest_is_a_sum_modulo_2_to_the_256() -> None:
    assert MemoryDigest().plus(LARGEST) == MemoryDigest(1, 2**256 - 1)
    assert MemoryDigest().plus(LARGEST).plus(LARGEST) == MemoryDigest(2, 2**256 - 2)
    assert MemoryDigest(1, 255).facts == {"count": 1, "digest": "0" * 62 + "ff"}


def test_the_order_of_rows_does_not_count_and_a_replaced_row_is_forgotten() -> None:
    seals = [row_seal(client, "control", 1, b"value") for client in range(3)]
    digests = set()
    for order in itertools.permutations(seals):
        digest = MemoryDigest().plus(LARGEST)
        for seal in order:
            digest = digest.plus(seal)
        digests.add(digest.minus(LARGEST))
    (digest,) = digests
    assert digest.count == 3
    assert digest.minus(seals[0]).minus(seals[1]).minus(seals[2]) == MemoryDigest()
