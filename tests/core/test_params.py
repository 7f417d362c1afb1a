"""Arithmetic on named tensors by hand, and a digest that depends on every bit."""

import pytest
import torch
from torch import Tensor

from fedloom.core.params import (
    Params,
    add,
    clone,
    nbytes,
    select,
    sha256,
    subtract,
    zeros,
    zeros_view,
)


def sample() -> Params:
    return {
        "a.weight": torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        "a.bias": torch.tensor([0.5, -0.5]),
        "count": torch.tensor(3, dtype=torch.int64),
    }


CHANGED = {
    "a value": {"a.bias": torch.tensor([0.5, -0.25])},
    "the last bit": {"a.bias": torch.nextafter(torch.tensor([0.5, -0.5]), torch.tensor(1.0))},
    "the type": {"a.bias": torch.tensor([0.5, -0.5], dtype=torch.float64)},
    "the shape": {"a.weight": torch.tensor([[1.0, 2.0, 3.0, 4.0]])},
    "a transposed tensor": {"a.weight": torch.tensor([[1.0, 3.0], [2.0, 4.0]])},
    "a counter": {"count": torch.tensor(4)},
    "another name": {"b": torch.zeros(0)},
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_sha256_depends_on(change: dict[str, Tensor]) -> None:
    assert sha256({**sample(), **change}) != sha256(sample())


def test_sha256_depends_on_which_tensor_has_which_name() -> None:
    swapped = sample()
    swapped["x"] = swapped.pop("count")
    assert sha256(swapped) != sha256(sample())


def test_sha256_ignores_order_and_layout() -> None:
    params = sample()
    turned = {n: params[n] for n in reversed(params)}
    turned["a.weight"] = params["a.weight"].t().contiguous().t()
    assert not turned["a.weight"].is_contiguous()
    assert sha256(turned) == sha256(params)


def test_sha256_is_frozen() -> None:
    assert sha256(sample()) == "a4b0b9c4da2ca47578ba1a3b19732681359749ae698b701727c96d85f822b34f"


def test_arithmetic_by_hand() -> None:
    a, b = (
        {"x": torch.tensor([1.0, 2.0]), "y": torch.tensor([5.0])},
        {"x": torch.tensor([10.0, 20.0])},
    )
    assert subtract(b, a)["x"].tolist() == [9.0, 18.0]
    assert add(a, b, scale=0.5)["x"].tolist() == [6.0, 12.0]
    assert add(a, b)["y"].tolist() == [5.0]
    assert zeros(a)["x"].tolist() == [0.0, 0.0]
    assert list(select(a, ["y", "absent"])) == ["y"]
    assert nbytes(sample()) == 4 * 4 + 2 * 4 + 8


def test_nothing_is_modified_in_place() -> None:
    a, b = sample(), sample()
    add(a, b)
    subtract(a, b)
    assert sha256(a) == sha256(b) == sha256(sample())


def test_a_clone_shares_no_memory() -> None:
    params = {"x": torch.ones(2, requires_grad=True)}
    copy = clone(params)
    copy["x"][0] = 7
    assert params["x"].tolist() == [1.0, 1.0]
    assert not copy["x"].requires_grad


def test_zeros_view_takes_no_memory() -> None:
    assert sha256(zeros_view(sample())) == sha256(zeros(sample()))
    assert all(
        t.untyped_storage().nbytes() == t.element_size() for t in zeros_view(sample()).values()
    )
