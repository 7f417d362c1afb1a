"""Lost workers: when one counts as lost, and how many a client may cost."""

import math
import time

import pytest

from fedloom.engines.lost_workers import LostWorkers, hangs_after, seconds_until_first


def test_the_third_death_makes_a_client_absent() -> None:
    lost = LostWorkers(timeout=None)
    assert [lost.after_death(7, "exit code -9") for _ in range(2)] == [None, None]
    assert lost.after_death(8, "exit code -9") is None
    absent = lost.after_death(7, "exit code -9")
    assert absent is not None and absent.client == 7
    assert absent.reason.startswith("it killed 3 workers (exit code -9); there may be too little")


def test_the_second_timeout_makes_a_client_absent() -> None:
    lost = LostWorkers(timeout=1.5)
    assert lost.after_timeout(7) is None and lost.after_timeout(8) is None
    absent = lost.after_timeout(7)
    assert absent is not None and absent.client == 7
    assert absent.reason == "it was not done after 1.5 s (guard.timeout)"


def test_deaths_and_timeouts_are_counted_apart() -> None:
    lost = LostWorkers(timeout=1.0)
    assert [lost.after_death(7, "") for _ in range(2)] == [None, None]
    assert lost.after_timeout(7) is None


@pytest.mark.parametrize(
    ("is_ready", "timeout", "expected"),
    [(False, None, 220.0), (False, 3.0, 220.0), (True, 3.0, 103.5), (True, None, math.inf)],
)
def test_a_worker_has_time_to_start_and_then_as_long_as_its_client(
    is_ready: bool, timeout: float | None, expected: float
) -> None:
    assert hangs_after(100.0, is_ready, timeout) == expected


def test_the_first_deadline_decides_how_long_to_wait() -> None:
    now = time.monotonic()
    assert 50.0 < (seconds_until_first([math.inf, now + 60.0, now + 90.0]) or 0.0) <= 60.0
    assert seconds_until_first([now - 1.0, now + 60.0]) == 0.0
    assert seconds_until_first([math.inf, math.inf]) is None
