"""Workers that a run cannot use are not started, and the user is told."""

import numpy as np
import pytest

from fedloom.engines import registry
from fedloom.engines.forkserver import ForkServer
from fedloom.engines.pool import Pool
from fedloom.engines.workload import usable_cores
from fedloom.experiment import open_engine
from fedloom.experiment.open_engine import WORKERS_PER_CORE, useful_workers
from fedloom.experiment.prepare import prepare
from fedloom.settings.config import load
from support.small_run import SMALL_CONFIG


@pytest.mark.parametrize(
    ("engine", "asked", "cores", "used"),
    [
        ("pool", 0, 2, 0),  # left to the engine
        ("pool", 3, 2, 3),
        ("pool", 100_000, 2, 5),  # clients per round
        ("pool", 100_000, 1, 4),  # four for each core
        ("ray", 100_000, 1, 5),  # other machines have cores too
        ("inprocess", 100_000, 1, 100_000),  # starts none
    ],
)
def test_workers_are_limited_by_clients_and_cores(
    engine: str, asked: int, cores: int, used: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_engine, "usable_cores", lambda: cores)
    config = load({**SMALL_CONFIG, "workers": asked})
    clients = np.zeros(60)  # only their number matters
    assert useful_workers(registry.entry(engine), config, clients) == used  # type: ignore[arg-type]


def test_a_run_that_asks_for_a_hundred_thousand_workers_gets_a_few_and_a_note(
    fork_server: ForkServer,
) -> None:
    config = load({**SMALL_CONFIG, "rounds": 1, "engine": "pool", "workers": 100_000})
    with prepare(config, fork_server=fork_server) as prepared:
        pool = prepared.simulation.engine
        assert isinstance(pool, Pool)
        assert len(pool.workers) == min(5, WORKERS_PER_CORE * usable_cores())
        assert prepared.engine_choice.warning == (
            "workers=100000 is more than a round of this run can use on this machine; "
            f"running with {len(pool.workers)}."
        )
