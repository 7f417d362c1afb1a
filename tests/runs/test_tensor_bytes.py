"""Tensors come back bit for bit, in their order, whatever they are made of."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedloom.runs.tensor_bytes import pack, unpack
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
