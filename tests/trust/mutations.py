"""Random damage to bytes: what disks, transfers, editors and attackers do to a file."""

from __future__ import annotations

import gzip
import io
import random
import struct
import zipfile
import zlib
from collections.abc import Callable

Mutate = Callable[[random.Random, bytes], bytes]

TOKENS = [
    *(b"", b"nan", b"inf", b"-", b"null", b"1e999", b"-1", b"0.5", b'"', b"\x00", b"\xff", b"\n"),
    *(
        b"[]",
        b"{}",
        b"true",
        b"[" * 5000,
        b"9" * 5000,
        b"1,2",
        "\N{GREEK SMALL LETTER PI}".encode(),
    ),
]
EXTREMES = (0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, 0x1_0000_0000, 2**63 - 1)


def _span(rng: random.Random, data: bytes) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 4, 16, 100, 1000)))


def flip_bits(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def extend(rng: random.Random, data: bytes) -> bytes:
    return data + rng.randbytes(rng.choice((1, 7, 500)))


def remove(rng: random.Random, data: bytes) -> bytes:
    start, stop = _span(rng, data)
    return data[:start] + data[stop:]


def duplicate(rng: random.Random, data: bytes) -> bytes:
    start, stop = _span(rng, data)
    return data[:stop] + data[start:]


def zeros(rng: random.Random, data: bytes) -> bytes:
    start, stop = _span(rng, data)
    return data[:start] + bytes(stop - start) + data[stop:]


def swap(rng: random.Random, data: bytes) -> bytes:
    (a, b), (c, d) = sorted([_span(rng, data), _span(rng, data)])
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:] if b <= c else data


def edit_length(rng: random.Random, data: bytes) -> bytes:
    """Another number in one place, mostly near the start or the end, where formats keep lengths."""
    places = (rng.randrange(64), max(0, len(data) - 64 + rng.randrange(64)), rng.randrange(1 << 20))
    at, size = rng.choice(places) % (len(data) + 1), rng.choice((1, 2, 4, 8))
    value = rng.choice((*EXTREMES, rng.randrange(1 << 32))) % (1 << (8 * size))
    return data[:at] + value.to_bytes(size, rng.choice(("big", "little"))) + data[at + size :]


def replace_everything(rng: random.Random, data: bytes) -> bytes:
    return rng.choice((b"", bytes(len(data)), rng.randbytes(len(data)), rng.choice(TOKENS)))


def edit_line(rng: random.Random, data: bytes) -> bytes:
    """A line removed, repeated or moved."""
    lines = data.splitlines(keepends=True) or [b""]
    line = lines[rng.randrange(len(lines))]
    if rng.random() < 0.6:
        lines.remove(line)
    if rng.random() < 0.6:
        lines.insert(rng.randrange(len(lines) + 1), line)
    return b"".join(lines)


def edit_token(rng: random.Random, data: bytes) -> bytes:
    """Something else between two separators of CSV, JSON or an .npy header."""
    separators = [i for i, byte in enumerate(data[:100_000]) if byte in b",:;[]{}()\n \t'\""]
    if len(separators) < 2:
        return data
    at = rng.randrange(len(separators) - 1)
    return data[: separators[at] + 1] + rng.choice(TOKENS) + data[separators[at + 1] :]


BYTES: list[Mutate] = [
    *(flip_bits, cut, extend, remove, duplicate, zeros, swap, edit_length, replace_everything),
    *(edit_line, edit_token),
]


def of_bytes(rng: random.Random, data: bytes) -> bytes:
    """One mutation, or several."""
    for _ in range(rng.choice((1, 1, 1, 3))):
        data = rng.choice(BYTES)(rng, data)
    return data


def inside_gzip(rng: random.Random, data: bytes) -> bytes:
    return gzip.compress(of_bytes(rng, gzip.decompress(data)), 1)


def inside_zip(rng: random.Random, data: bytes) -> bytes:
    """A member changed, swapped with another, renamed or left out; checksums are right again."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    a, b = rng.choice(list(members)), rng.choice(list(members))
    kind = rng.randrange(6)
    if kind < 3:
        members[a] = of_bytes(rng, members[a])
    elif kind == 3:
        members[a], members[b] = members[b], members[a]
    elif kind == 4:
        members[rng.choice(("x.npy", "y.npy", "users.npy", "classes.npy", "z"))] = members[a]
    else:
        del members[a]
    return _zipped(members, rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))


def _zipped(members: dict[str, bytes], compression: int) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def inside_png(rng: random.Random, data: bytes) -> bytes:
    """A chunk changed, with a right checksum."""
    at, chunks = 8, []
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += 12 + size
    i = rng.randrange(len(chunks))
    chunks[i] = (chunks[i][0], of_bytes(rng, chunks[i][1])[:100_000])
    packed = [
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    ]
    return data[:8] + b"".join(packed)


INSIDE: dict[str, Mutate] = {".gz": inside_gzip, ".npz": inside_zip, ".png": inside_png}


def of_file(rng: random.Random, suffix: str, data: bytes) -> bytes:
    """A mutation of the file as it is, or of what is packed in it."""
    inside = INSIDE.get(suffix)
    return inside(rng, data) if inside and rng.random() < 0.6 else of_bytes(rng, data)
