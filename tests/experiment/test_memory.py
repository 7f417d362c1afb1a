"""Training with a folder needs no more memory after many rounds than after a few."""

import gc
import sys
import tracemalloc
from pathlib import Path

import pytest

from fedloom.experiment.callbacks import Callback
from fedloom.experiment.execute import execute
from fedloom.metrics.records import RoundRecord
from fedloom.settings.config import load

EARLY, LATE = 60, 260
# keeping the records of these 200 rounds takes 200,000; sqlite3 forgets its old cursors only after
# every 200, which is 16,000 bytes more or less
FEW_BYTES = 30_000


class TracedMemory(Callback):
    """Bytes that Python objects take after the two rounds."""

    def __init__(self) -> None:
        self.bytes: dict[int, int] = {}

    def on_round(self, record: RoundRecord) -> None:
        if record.round in (EARLY, LATE):
            # what CPython keeps of freed tuples and looked-up names, up to a few hundred KB
            gc.collect()
            sys._clear_type_cache()
            self.bytes[record.round] = tracemalloc.get_traced_memory()[0]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_python_objects_do_not_add_up_over_the_rounds(method: str, tmp_path: Path) -> None:
    config = load(
        {
            "rounds": LATE,
            "engine": "inprocess",
            "method": method,
            "model": "mlp(width=4, layers=1)",
            "data": {"name": "crowd-8", "clients": 0, "partition": "user"},
            "train": {"batch": 12},
            "sample": {"per_round": 2},
            "evaluate": {"every": 2},
            "checkpoint_every": 5,
        }
    )
    traced = TracedMemory()
    tracemalloc.start()
    try:
        execute(config, tmp_path / "run", callbacks=[traced])
    finally:
        tracemalloc.stop()
    assert abs(traced.bytes[LATE] - traced.bytes[EARLY]) < FEW_BYTES, traced.bytes
