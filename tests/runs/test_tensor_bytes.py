"""Tensors come back bit for bit, in their order, whatever they are made of."""

import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedloom.runs.tensor_bytes import MalformedTensors, pack, unpack
from runs.toy import assert_same

DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]
shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)


@given(
    st.lists(
        st.tuples(st.text(max_size=6), st.sampled_from(DTYPES), shapes),
        unique_by=lambda t: t[0],
        max_size=6,
    )
)
def test_round_trip(specs: list[tuple[str, torch.dtype, tuple[int, ...]]]) -> None:
    generator = torch.Generator().manual_seed(1)
    params = {
        name: torch.randint(0, 99, shape, generator=generator).to(dtype)
        for name, dtype, shape in specs
    }
    assert_same(unpack(pack(params)), params)


def test_special_values_keep_their_bits() -> None:
    bits = torch.tensor(
        [0x7FC00001, -0x00400000, -0x80000000, 0x00000001], dtype=torch.int32
    )  # NaNs, -0, the smallest subnormal number
    back = unpack(pack({"x": bits.view(torch.float32)}))["x"]
    assert torch.equal(back.view(torch.int32), bits)


def test_views_and_shared_memory() -> None:
    base = torch.arange(12.0).reshape(3, 4)
    params = {
        "t": base.t(),
        "row": base[1],
        "again": base[1],
        "column": base[:, 1],
        "expanded": base[0, :1].expand(5),
        "base": base,
    }
    assert_same(unpack(pack(params)), params)


def test_unpacked_tensors_own_aligned_memory() -> None:
    data = pack({"a": torch.zeros(3, dtype=torch.uint8), "b": torch.ones(5)})
    first, second = unpack(data), unpack(data)
    first["b"] += 1
    assert second["b"].tolist() == [1] * 5
    assert first["b"].data_ptr() % 64 == 0 and first["b"].untyped_storage().nbytes() == 20


def test_parameters_are_unpacked_as_plain_tensors() -> None:
    back = unpack(pack({"w": torch.nn.Parameter(torch.ones(2))}))["w"]
    assert type(back) is torch.Tensor and not back.requires_grad


def test_any_safetensors_reader_can_read_it() -> None:
    data = pack({"z": torch.ones(2), "a": torch.zeros(1)})
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header["__metadata__"] == {"order": '["z", "a"]'} and header["z"]["dtype"] == "F32"


def test_another_device(device: str = "meta") -> None:
    assert unpack(pack({"a": torch.ones(2)}), device)["a"].device.type == device


def test_damage_to_the_header_is_an_error() -> None:
    with pytest.raises(Exception, match="header"):
        unpack(b"\xff" * 40)


def header_of(data: bytes) -> tuple[dict[str, Any], bytes]:
    end = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:end]), data[end:]


def with_header(header: object, body: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def malformed() -> dict[str, bytes]:
    header, body = header_of(pack({"a": torch.arange(3.0), "b": torch.zeros(2)}))
    entry = header["a"]

    def order(text: str) -> bytes:
        return with_header({**header, "__metadata__": {"order": text}}, body)

    def first(**changes: object) -> bytes:
        return with_header({**header, "a": {**entry, **changes}}, body)

    return {
        "empty": b"",
        "short": b"abc",
        "no header": (2**62).to_bytes(8, "little"),
        "not JSON": with_header(b"{", body),
        "nested": with_header(b"[" * 100_000, body),
        "a list": with_header([], body),
        "no metadata": with_header({k: v for k, v in header.items() if k != "__metadata__"}, body),
        "no order": with_header({**header, "__metadata__": {}}, body),
        "order is no JSON": order("["),
        "order is a text": order('"ab"'),
        "order of numbers": order("[1, 2]"),
        "order is nested": order("[" * 100_000),
        "a name too few": order('["a"]'),
        "a name too many": order('["a", "b", "c"]'),
        "a name twice": order('["a", "a"]'),
        "another name": order('["a", "c"]'),
        "negative shape": first(shape=[-3]),
        "huge shape": first(shape=[2**62, 2**62]),
        "other shape": first(shape=[4]),
        "unknown type": first(dtype="Q7"),
        "type of no tensor": first(dtype="F8_E8M0", shape=[12]),
        "overlap": first(data_offsets=[8, 20]),
        "beyond the end": first(data_offsets=[0, 10**9]),
        "a byte more": with_header(header, body + b"x"),
        "a byte less": with_header(header, body[:-1]),
    }


@pytest.mark.parametrize("name", malformed())
def test_bytes_that_nobody_packed_are_rejected(name: str) -> None:
    with pytest.raises(MalformedTensors) as error:
        unpack(malformed()[name])
    assert str(error.value).startswith("it") and len(str(error.value)) < 200
