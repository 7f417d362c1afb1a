"""The server's state as a flat dictionary of tensors, and back."""

import torch

from fedloom.core.state import ServerState
from fedloom.runs.state_layout import flattened, layout_of, paths, unflattened


def test_a_state_is_restored_from_its_tensors() -> None:
    state = ServerState(
        7,
        {"a.w": torch.tensor(1.0), "a/b.w": torch.tensor(2.0), "count": torch.tensor(3)},
        {
            "momentum(beta=0.5, lr=1)": {"velocity": {"a.w": torch.tensor(4.0)}},
            "adam": {"first": {"a/b.w": torch.tensor(5.0)}},
            "begins without a memory": {},
        },
        {"control": {"a.w": torch.tensor(6.0)}},
    )
    flat, layout = flattened(state), layout_of(state)
    assert sorted(flat) == sorted(paths(layout))
    assert unflattened(7, layout, flat) == state
