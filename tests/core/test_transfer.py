"""Copies to a device, float64, and the random state, as far as a CPU can tell."""

from __future__ import annotations

import torch

from fedloom.core.determinism import fork_rng
from fedloom.core.transfer import in_float64, to_device
from fedloom.losses.adversarial import replaced


def test_a_tensor_that_is_there_is_not_copied() -> None:
    t = torch.arange(3)
    assert to_device(t, torch.device("cpu")) is t
    assert to_device(t, torch.device("meta")).device.type == "meta"


def test_counters_become_float64_where_they_are() -> None:
    assert in_float64(torch.tensor(2**53 - 1)).item() == 2**53 - 1
    assert in_float64(torch.empty(2, dtype=torch.int64, device="meta")).is_meta


def test_the_random_state_is_restored() -> None:
    before = torch.get_rng_state()
    with fork_rng(torch.device("cpu")):
        torch.manual_seed(5)
        torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)


def test_only_accepted_rows_are_replaced() -> None:
    """As if the accepted rows had been selected; a row that is not finite does no harm."""
    batch, rows = torch.arange(12.0).view(4, 3), torch.full((3, 3), torch.nan)
    rows[1] = 100.0
    positions, accepted = torch.tensor([3, 0, 2]), torch.tensor([False, True, False])
    expected = batch.index_copy(0, positions[accepted], rows[accepted])
    assert torch.equal(replaced(batch, positions, rows, accepted), expected)
    nothing = torch.zeros(3, dtype=torch.bool)
    assert torch.equal(replaced(batch, positions, rows, nothing), batch)
