"""The pauses of Flower that are shortened are where they are expected, in the pinned version."""

import inspect
import time
from types import SimpleNamespace

import pytest

from fedloom.deploy import supernode


def test_pauses_depend_on_what_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    loop = SimpleNamespace(time=time, pull_objects=lambda names, **options: (names, options))
    supernode.shorten_pauses(loop)
    for seconds in (3, 0.5, 0.01):
        loop.time.sleep(seconds)
    assert slept == [0.25, 0.05, 0.01]
    assert loop.time.monotonic is time.monotonic
    assert loop.pull_objects(["a"]) == (["a"], {"initial_backoff": 0.05, "backoff_cap": 0.5})


@pytest.mark.deploy
def test_flower_has_these_pauses() -> None:
    from flwr.supernode import start_client_internal as loop

    source = inspect.getsource(loop)
    assert "time.sleep(3)" in source and "time.sleep(0.5)" in source
    assert "pull_objects(" in source
    assert set(supernode.SOONER) <= set(inspect.signature(loop.pull_objects).parameters)
