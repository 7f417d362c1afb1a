"""Client ids given per row: refused if (nearly) every row has its own."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from fedloom.data.sources.errors import data_error, shortened

MAX_CLIENTS_PER_ROW = 0.9


def check_ids_repeat(
    ids: np.ndarray, where: str, columns: Mapping[str, np.ndarray] = MappingProxyType({})
) -> None:
    """Refuse ids that hardly ever repeat: they number the rows, and name no clients.

    columns: what else could name the clients, for the message.
    """
    distinct = len(np.unique(ids))
    if distinct < 2 or distinct <= MAX_CLIENTS_PER_ROW * len(ids):
        return
    found = f"{distinct} different values in {len(ids)} rows, so {distinct} clients of one sample"
    repeating = [name for name, values in columns.items() if _could_name_clients(values)]
    remedy = "give ids that repeat"
    if repeating:
        remedy = f"name another column, such as {shortened(map(repr, repeating), 5)}"
    raise data_error(where, found, "several rows of each client", remedy)


def _could_name_clients(column: np.ndarray) -> bool:
    return 2 <= len(np.unique(column)) <= len(column) // 2
