"""What is known of valid replies before any client is asked."""

from __future__ import annotations

import numpy as np

from fedloom.core.valid_replies import client_sizes


class Crowd(list[None]):
    """Clients that know their sizes, and of which no single one may be looked at."""

    sizes = np.array([3, 1, 300])

    def __iter__(self) -> None:  # type: ignore[override]
        raise AssertionError("a view of every client was made")


def test_the_sizes_of_clients_need_no_view_of_every_client() -> None:
    sizes = client_sizes(Crowd([None] * 3))  # type: ignore[arg-type]
    assert sizes == [3, 1, 300] and all(type(size) is int for size in sizes)
    assert client_sizes([range(4), range(2)]) == [4, 2]  # type: ignore[list-item]
