"""Facts and tensors come back bit for bit, or not at all."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.core.params import sha256
from fedloom.engines.flower.envelope import PROTOCOL, check_size, checksum, decode, encode
from fedloom.engines.wire import WireError

LIMIT = 10**6
TYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int8,
    torch.uint8,
    torch.bool,
]


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Any type and shape, with any bits, so also NaN of every kind."""
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    dtype = draw(st.sampled_from(TYPES))
    size = torch.empty(shape, dtype=dtype).numel() * torch.empty(0, dtype=dtype).element_size()
    if dtype == torch.bool:
        bits = draw(st.lists(st.booleans(), min_size=size, max_size=size))
        return torch.tensor(bits, dtype=dtype).reshape(shape)
    raw = bytearray(draw(st.binary(min_size=size, max_size=size)))
    flat = torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
    return flat.reshape(shape)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FACTS = st.dictionaries(st.text(), JSON, max_size=4)
PARAMS = st.dictionaries(st.text(max_size=8), tensors(), max_size=5)


def bits(params: dict[str, torch.Tensor]) -> list[Any]:
    return [(n, t.dtype, tuple(t.shape), sha256({"": t})) for n, t in params.items()]


@settings(deadline=None, max_examples=150)
@given(FACTS, PARAMS)
def test_a_message_comes_back_bit_for_bit(facts: Any, params: dict[str, torch.Tensor]) -> None:
    message = decode(encode(facts, params), LIMIT)
    assert message.facts == facts
    assert bits(message.tensors) == bits(params)  # in the same order, too


def test_kinds_of_tensors_that_are_easily_lost() -> None:
    params = {
        "0-d": torch.tensor(3.5, dtype=torch.bfloat16),
        "no elements": torch.empty(0, 4),
        "bool": torch.tensor([True, False]),
        "not contiguous": torch.arange(6.0).reshape(2, 3).t(),
        "expanded": torch.ones(1).expand(3),
        "NaN and -0": torch.tensor([float("nan"), -0.0, float("-inf")]),
    }
    shared = torch.arange(4.0)
    params |= {"one half": shared[:2], "other half": shared[2:], "the same": shared[:2]}
    assert bits(decode(encode({}, params), LIMIT).tensors) == bits(params)


EXAMPLE = encode({"kind": "example", "n": 1}, {"w": torch.arange(5.0), "n": torch.tensor(2)})


@settings(deadline=None, max_examples=300)
@given(st.integers(0, len(EXAMPLE) - 1), st.integers(1, 255))
def test_any_changed_byte_is_noticed(position: int, change: int) -> None:
    data = bytearray(EXAMPLE)
    data[position] ^= change
    with pytest.raises(WireError):
        decode(bytes(data), LIMIT)


def test_any_missing_end_is_noticed() -> None:
    for length in range(len(EXAMPLE)):
        with pytest.raises(WireError):
            decode(EXAMPLE[:length], LIMIT)
    with pytest.raises(WireError):
        decode(EXAMPLE + b"\0", LIMIT)


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200))
def test_bytes_from_anywhere(data: bytes) -> None:
    with pytest.raises(WireError):
        decode(data, LIMIT)


def sealed(rest: bytes) -> bytes:
    """A forgery: the start and the checksum are right, and the rest is not."""
    return b"fedloom" + bytes([PROTOCOL]) + hashlib.sha256(rest).digest() + rest


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=120), st.integers(0, 40) | st.integers(0, 2**64 - 1))
def test_a_right_checksum_over_nonsense(rest: bytes, length: int) -> None:
    with pytest.raises(WireError):
        decode(sealed(length.to_bytes(8, "little") + rest), LIMIT)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (b"{", "not JSON"),
        (b"[]", "is a list"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a": ' + b"1" * 5000 + b"}", "not JSON"),
        (b"{}", "malformed tensors"),
    ],
)
def test_forged_facts(facts: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        decode(sealed(len(facts).to_bytes(8, "little") + facts), LIMIT)


def test_facts_that_are_said_to_be_longer_than_the_message() -> None:
    with pytest.raises(WireError, match="cut short"):
        decode(sealed((3).to_bytes(8, "little") + b"{}"), LIMIT)


def test_a_lie_about_shapes_or_types_in_the_tensors() -> None:
    for tensor in ({"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 4]}, {"dtype": "X"}):
        header = json.dumps({"__metadata__": {"order": '["w"]'}, "w": tensor}).encode()
        body = len(header).to_bytes(8, "little") + header + b"\0" * 4
        with pytest.raises(WireError, match="malformed tensors"):
            decode(sealed((2).to_bytes(8, "little") + b"{}" + body), LIMIT)


def test_the_size_is_looked_at_before_anything_else() -> None:
    with pytest.raises(WireError, match="1,000 bytes, and at most 999 are accepted"):
        decode(b"x" * 1000, 999)
    check_size(999, 999)


def test_another_version_of_the_protocol_is_named_with_the_remedy() -> None:
    other = EXAMPLE[:7] + bytes([PROTOCOL + 1]) + EXAMPLE[8:]
    with pytest.raises(WireError, match=rf"protocol {PROTOCOL + 1}.*install the same version"):
        decode(other, LIMIT)


def test_what_cannot_be_sent_is_an_error_of_the_sender() -> None:
    for facts, params in (({"a": object()}, {}), ({}, {"w": torch.eye(2).to_sparse()})):
        with pytest.raises(WireError, match="cannot be sent"):
            encode(facts, params)


def test_the_checksum_identifies_the_content() -> None:
    assert checksum(encode({"a": 1})) == checksum(encode({"a": 1})) != checksum(encode({"a": 2}))
