"""The Ray engine gives the bits of the in-process engine, also when workers and whole nodes die.

Ray listens on the network card and asks an outside host for its address, so it is only started in
a network namespace that has nothing but loopback. To pay for its start once, one process there runs
many scenes and prints what it saw; the tests check that.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from fedloom.core.errors import RunError, UserError
from fedloom.core.request import ClientTask
from fedloom.core.server import Absent
from fedloom.engines.ray import RayCluster, TaskQueue
from fedloom.engines.ray_worker import check_versions, versions
from support.ray_scenarios import SOME_METHODS
from support.small_run import EVERY_METHOD

TESTS = Path(__file__).parents[1]
SOURCE = TESTS.parent / "src"
LOOPBACK = TESTS.parent / "scripts" / "loopback.sh"

pytestmark = pytest.mark.xdist_group("ray")  # else every worker of pytest would start its own Ray


def run_scene(scene: str) -> dict[str, Any]:
    """What a process in its own network saw of the scene, and what Ray `said` on its stdout."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed")
    if subprocess.run([LOOPBACK, "true"], capture_output=True).returncode == 125:
        pytest.skip("no network namespace is available here, and Ray is not started without one")
    with tempfile.TemporaryDirectory(
        prefix="ray-"
    ) as folder:  # a short name: sockets are created in it
        env = {
            **os.environ,
            "HOME": folder,
            "RAY_TMPDIR": folder,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(SOURCE), str(TESTS)]),
        }
        env |= {"RAY_worker_niceness": "0"}  # 15 by default: it would starve next to other tests
        env.pop("RAY_ADDRESS", None)
        command = [LOOPBACK, sys.executable, "-m", "support.ray_scenarios", scene, folder]
        ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=900)
    assert ended.returncode == 0, ended.stderr[-4000:]
    *said, last = ended.stdout.splitlines()
    return {**json.loads(last), "said": said}


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return run_scene("one_machine")


@pytest.fixture(scope="module")
def seen_of_every_method() -> dict[str, Any]:
    return run_scene("every_method")


@pytest.mark.parametrize("method", SOME_METHODS)
def test_every_round_has_the_same_bits(method: str, seen: dict[str, Any]) -> None:
    alone, clustered = seen["bits"][method]
    assert len(set(alone)) == 3
    assert clustered == alone


@pytest.mark.long
@pytest.mark.parametrize("method", EVERY_METHOD)
def test_every_round_of_every_method_has_the_same_bits(
    method: str, seen_of_every_method: dict[str, Any]
) -> None:
    alone, clustered = seen_of_every_method["bits"][method]
    assert len(set(alone)) == 3
    assert clustered == alone


def test_exchange_private_tensors_slots_finale_and_scores_work_too(seen: dict[str, Any]) -> None:
    alone, clustered = (
        {k: v for k, v in result.items() if k != "seconds"} for result in seen["everything"]
    )
    assert "personal_models" in alone
    assert clustered == alone


def test_killed_workers_change_nothing(seen: dict[str, Any]) -> None:
    alone, clustered = seen["killed"]
    assert seen["lives"] == 0, "both kills took place"
    assert clustered == alone


def test_a_client_that_kills_every_worker_ends_a_strict_run(seen: dict[str, Any]) -> None:
    said = seen["patience"]["said"]
    assert (
        "it killed 3 workers (The actor died unexpectedly" in said and "too little memory" in said
    )


def test_a_failing_client_is_told_apart_from_a_dead_worker(seen: dict[str, Any]) -> None:
    alone, clustered = seen["broken"]
    assert (
        clustered["kind"] == "ClientError"
        and clustered["facts"]["cause"] == "ArithmeticError: broken on purpose"
    )
    assert clustered == alone


def test_a_failure_and_unread_answers_leave_no_trace(seen: dict[str, Any]) -> None:
    alone, clustered = seen["after"]
    assert clustered == alone
    assert seen["left"] == [20, 21, 22, 23, 24]


def test_a_recipe_that_a_worker_cannot_follow_is_an_error_with_its_cause(
    seen: dict[str, Any],
) -> None:
    assert seen["nowhere"]["kind"] == "RunError"
    assert "'nowhere:federation', which is not part of fedloom" in seen["nowhere"]["said"]


def test_waiting_for_a_full_cluster_times_out(seen: dict[str, Any]) -> None:
    assert "no worker of the Ray cluster started within" in seen["crowded"]["said"]


def test_ray_is_shut_down_only_by_the_engine_that_opened_it(seen: dict[str, Any]) -> None:
    assert seen["open"] == [True, False]


def test_an_unreachable_cluster_is_a_user_error(seen: dict[str, Any]) -> None:
    for address, error in seen["addresses"].items():
        assert error["kind"] == "UserError"
        assert f"no Ray cluster to join at '{address}'" in error["said"]


def test_ray_prints_nothing_on_stdout_even_when_workers_die(seen: dict[str, Any]) -> None:
    assert seen["said"] == []


def test_no_usage_statistics_are_sent(seen: dict[str, Any]) -> None:
    assert seen["statistics"] is False


@pytest.mark.long
def test_a_lost_node_changes_nothing() -> None:
    seen = run_scene("lost_node")
    alone, clustered = seen["bits"]
    assert (seen["workers"], seen["replaced"]) == (2, 1)
    assert clustered == alone


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"fedloom\[ray\]"):
        RayCluster(1)


@pytest.mark.parametrize("what", ["fedloom", "torch", "CPU capability"])
def test_a_node_with_other_versions_is_rejected(what: str) -> None:
    check_versions(versions())
    with pytest.raises(RunError, match=f"has {what} other, and this one"):
        check_versions({**versions(), what: "other"})


def test_the_queue_is_lazy_and_takes_clients_back() -> None:
    asked: list[int] = []
    tasks = (asked.append(c) or ClientTask(c) for c in range(3))  # type: ignore[func-returns-value]
    queue = TaskQueue(tasks, timeout=None)
    first = queue.next()
    assert first is not None and asked == [0]
    assert list(queue.after_loss(first, None)) == []
    assert queue.next() is first and asked == [0]
    assert [getattr(queue.next(), "client", None) for _ in range(3)] == [1, 2, None]
    absent = Absent(0, "lost")
    assert list(queue.after_loss(first, absent)) == [(0, absent)]
    assert queue.next() is None


def test_workers_that_do_not_start_end_the_run_at_the_third() -> None:
    queue = TaskQueue([], timeout=None)
    queue.count_failed_start("first")
    queue.count_failed_start("second")
    with pytest.raises(RunError, match=r"3 workers of the Ray cluster died while starting.* third"):
        queue.count_failed_start("third")


def test_the_namespace_has_only_loopback_and_passes_the_exit_code_on() -> None:
    ended = subprocess.run(
        [LOOPBACK, "sh", "-c", "cat /proc/net/dev; exit 7"], capture_output=True, text=True
    )
    if ended.returncode == 125:
        pytest.skip("no network namespace is available here")
    assert ended.returncode == 7
    assert [line.split(":")[0].strip() for line in ended.stdout.splitlines()[2:]] == ["lo"]


def test_without_a_namespace_nothing_is_run(tmp_path: Path) -> None:
    ended = subprocess.run(
        ["/bin/sh", LOOPBACK, "/bin/echo", "ran"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout) == (125, "")
    assert "the command was not run" in ended.stderr
