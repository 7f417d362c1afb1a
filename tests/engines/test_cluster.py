"""The Ray engine gives the bits of the in-process engine, also when workers and whole nodes die.

Ray listens on the network card and asks an outside host for its address, so it is only ever started in a network that has
loopback alone. To pay for its start once, one process there plays every scene and prints what it saw; the tests judge that.
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

from fedloom.core.client import Broadcast, Task
from fedloom.core.errors import RunError, UserError
from fedloom.core.params import sha256
from fedloom.core.round import begin, rounds
from fedloom.core.state import MemoryStore
from fedloom.engines import cluster as module
from fedloom.engines.cluster import Cluster, Queue
from fedloom.study.assemble import Study, assemble
from fedloom.study.config import load
from fedloom.study.session import run

LOOPBACK = Path(__file__).parents[2] / "scripts" / "loopback.sh"
METHODS = ["fedavg", "scaffold", "feddyn", "fedprox+fedavgm"]
SMALL = {
    "rounds": 3,
    "seed": 3,
    "model": "resnet8(width=4)",  # batch norm, so that statistics and counters travel too
    "data": {"clients": 60, "partition": "dirichlet(alpha=0.3)", "augment": ["flip", "pad-crop"]},
    "train": {"steps": 2, "batch": 8, "momentum": 0.9, "reset": False},
    "sample": {"per_round": 5},
    "evaluate": {"batch": 250},
}
OWN = '''
import os
import signal
import torch
from pathlib import Path

from fedloom.core.method import Exchange, Method, Phase
from fedloom.core.select import norms

def average(job, key):
    x, _ = job.data.batch(torch.arange(len(job.data)))
    return {"x": x.mean(0)}

def pooled(answers, key):
    return {"x": sum(a["x"] for a in answers) / len(answers)}

def blend(x, y, job, key):
    return 0.9 * x + 0.1 * job.shared["mashed"]["x"], y

def everything() -> Method:
    """An exchange, a mix, private norms, a second slot and a finale in one."""
    return Method("everything", (Phase(mix=blend), Phase(slot="personal")), private=norms,
                  prologue=(Exchange("mashed", average, pooled),), finale=(Phase(slot="personal"),), evaluates="personal")

def broken() -> Method:
    def loss(step):
        if step.number == 2:
            raise ArithmeticError("broken on purpose")
        return step.ce
    return Method("broken", (Phase(loss=loss),))

def mortal() -> Method:
    """Kills the process it runs in, between two steps, as often as the file beside this one has bytes."""
    left = Path(__file__).with_name("lives")
    def loss(step):
        if step.number == 2 and left.stat().st_size:
            os.truncate(left, left.stat().st_size - 1)
            os.kill(os.getpid(), signal.SIGKILL)
        return step.ce
    return Method("mortal", (Phase(loss=loss),))
'''


def study_of(method: str, cluster: Cluster | None = None, **changes: Any) -> Study:
    engine = {"engine": "ray" if cluster else "inprocess"}
    return assemble(load({**SMALL, "method": method, **engine, **changes}), pool=cluster)


def shas(study: Study) -> list[str]:
    """The identity of the weights after every round."""
    state = begin(study.loom, study.model)
    return [sha256(s.params) for s, _ in rounds(study.loom, state, MemoryStore(), study.config.rounds)]


def both(method: str, cluster: Cluster, **changes: Any) -> list[list[str]]:
    return [shas(study_of(method, engine, **changes)) for engine in (None, cluster)]


def refusal(work: Any, *given: Any) -> dict[str, Any]:
    """The error that must come, as facts."""
    try:
        work(*given)
    except (RunError, UserError) as error:
        return {"kind": type(error).__name__, "said": str(error), "facts": getattr(error, "facts", None)}
    return {"kind": "none"}


def scenes(folder: Path) -> dict[str, Any]:
    """All that happens on one machine."""
    import ray
    from ray._common.usage.usage_lib import usage_stats_enabled

    own, lives, cluster = folder / "own.py", folder / "lives", Cluster(2)
    seen: dict[str, Any] = {"bits": {m: both(m, cluster) for m in METHODS}, "statistics": usage_stats_enabled()}
    few = {"rounds": 1, "data": {"clients": 4}, "sample": {"per_round": 2}}
    seen["everything"] = [run(study_of(f"{own}:everything", engine, **few)) for engine in (None, cluster)]
    one = {"sample": {"per_round": 1}}  # so that it is the same one that fails first
    seen["broken"] = [refusal(shas, study_of(f"{own}:broken", engine, **one)) for engine in (None, cluster)]
    seen["after"] = both("feddyn", cluster)
    seen["left"] = left_unread(cluster)
    lives.write_bytes(b"")
    alone = shas(study_of(f"{own}:mortal"))
    lives.write_bytes(b"xx")
    seen["killed"] = [alone, shas(study_of(f"{own}:mortal", cluster))]
    seen["lives"] = lives.stat().st_size
    lives.write_bytes(b"x" * 9)
    seen["patience"] = refusal(shas, study_of(f"{own}:mortal", cluster, **one))
    cluster.start({"build": "nowhere:federation"})
    seen["nowhere"] = refusal(list, cluster.map(Broadcast("train", 0, {}), [Task(0)]))
    seen["crowded"] = crowded()
    open_still = ray.is_initialized()
    cluster.close()
    seen["open"] = [open_still, ray.is_initialized()]
    seen["addresses"] = {a: refusal(Cluster, 1, a) for a in ("nowhere", "127.0.0.1:1")}
    return seen


def left_unread(cluster: Cluster) -> list[int]:
    """Who answers to a map after one of which only the first answer was read."""
    study = study_of("fedavg", cluster)
    sent = Broadcast("train", 0, begin(study.loom, study.model).params)
    next(cluster.map(sent, (Task(c) for c in range(20))))
    return sorted(client for client, _ in cluster.map(sent, (Task(c) for c in range(20, 25))))


def crowded() -> dict[str, Any]:
    """A second engine in a cluster that has no core left."""
    module.ARRIVAL = 0.5
    late = Cluster(1)
    late.share({})
    late.start({"build": "nowhere:federation"})
    try:
        return refusal(list, late.map(Broadcast("train", 0, {}), [Task(0)]))
    finally:
        late.close()


def lost_node(folder: Path) -> dict[str, Any]:
    """Two nodes of one core each, one of which is gone in the middle of a round."""
    from ray.cluster_utils import Cluster as Nodes

    nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    far = nodes.add_node(num_cpus=1)
    cluster, turns = Cluster(address=nodes.address), iter(range(1000))
    first, real = list(cluster.members), cluster._hand_out

    def lose_it_once(*given: Any) -> bool:
        more = real(*given)
        if next(turns) == 9:
            nodes.remove_node(far, allow_graceful=False)
        return more

    cluster._hand_out = lose_it_once  # type: ignore[method-assign]
    seen = {"bits": both("scaffold", cluster, train={"steps": 20}), "workers": len(first)}
    seen["replaced"] = sum(m not in cluster.members for m in first)
    cluster.close()
    nodes.shutdown()
    return seen


def played(scene: str) -> dict[str, Any]:
    """What a process in a network of its own saw of the scene."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed")
    if subprocess.run([LOOPBACK, "true"], capture_output=True).returncode == 125:
        pytest.skip("there is no network namespace to be had here, and Ray is not started without one")
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:  # a short name: sockets lie under it
        (Path(folder) / "own.py").write_text(OWN)
        env = {**os.environ, "HOME": folder, "RAY_TMPDIR": folder, "OMP_NUM_THREADS": "1"}
        env.pop("RAY_ADDRESS", None)
        command = [LOOPBACK, sys.executable, __file__, scene, folder]
        ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr[-4000:]
    seen: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return seen


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return played("scenes")


@pytest.mark.parametrize("method", METHODS)
def test_every_round_has_the_same_bits(method: str, seen: dict[str, Any]) -> None:
    alone, clustered = seen["bits"][method]
    assert len(set(alone)) == 3
    assert clustered == alone


def test_exchange_private_tensors_slots_finale_and_scores_travel_too(seen: dict[str, Any]) -> None:
    alone, clustered = ({k: v for k, v in result.items() if k != "seconds"} for result in seen["everything"])
    assert "personal" in alone
    assert clustered == alone


def test_killed_workers_change_nothing(seen: dict[str, Any]) -> None:
    alone, clustered = seen["killed"]
    assert seen["lives"] == 0, "both kills took place"
    assert clustered == alone


def test_a_client_that_kills_every_worker_ends_the_run(seen: dict[str, Any]) -> None:
    said = seen["patience"]["said"]
    assert said.startswith("3 workers of the Ray cluster died over client ") and "too little memory" in said


def test_a_failing_client_is_told_apart_from_a_dead_worker(seen: dict[str, Any]) -> None:
    alone, clustered = seen["broken"]
    assert clustered["kind"] == "ClientError" and clustered["facts"]["cause"] == "ArithmeticError: broken on purpose"
    assert clustered == alone


def test_a_failure_and_unread_answers_leave_no_trace(seen: dict[str, Any]) -> None:
    alone, clustered = seen["after"]
    assert clustered == alone
    assert seen["left"] == [20, 21, 22, 23, 24]


def test_what_does_not_build_on_a_worker_is_said_in_a_sentence(seen: dict[str, Any]) -> None:
    assert seen["nowhere"]["kind"] == "RunError"
    assert "module 'nowhere' does not import" in seen["nowhere"]["said"]


def test_a_full_cluster_is_not_waited_for_without_end(seen: dict[str, Any]) -> None:
    assert "no worker of the Ray cluster came within" in seen["crowded"]["said"]


def test_only_who_opened_ray_closes_it(seen: dict[str, Any]) -> None:
    assert seen["open"] == [True, False]


def test_a_cluster_that_is_not_there_is_said_in_a_sentence(seen: dict[str, Any]) -> None:
    for address, error in seen["addresses"].items():
        assert error["kind"] == "UserError"
        assert f"no Ray cluster to join at '{address}'" in error["said"]


def test_no_usage_statistics_are_sent(seen: dict[str, Any]) -> None:
    assert seen["statistics"] is False


@pytest.mark.long
def test_a_lost_node_changes_nothing() -> None:
    seen = played("lost_node")
    alone, clustered = seen["bits"]
    assert (seen["workers"], seen["replaced"]) == (2, 1)
    assert clustered == alone


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"fedloom\[ray\]"):
        Cluster(1)


@pytest.mark.parametrize("what", ["fedloom", "torch", "CPU capability"])
def test_a_node_that_would_give_other_bits_is_refused(what: str) -> None:
    module._check(module._bits())
    with pytest.raises(RunError, match=f"has {what} other, and this one"):
        module._check({**module._bits(), what: "other"})


def test_the_queue_reads_ahead_of_nobody_and_takes_clients_back() -> None:
    asked: list[int] = []
    queue = Queue(asked.append(c) or Task(c) for c in range(3))  # type: ignore[func-returns-value]
    first = queue.next()
    assert first is not None and asked == [0]
    queue.back(first, EOFError())
    assert queue.next() is first and asked == [0]
    assert [getattr(queue.next(), "client", None) for _ in range(3)] == [1, 2, None]
    queue.back(first, EOFError())
    assert queue.next() is first
    with pytest.raises(RunError, match="client 0"):
        queue.back(first, EOFError())


def test_the_namespace_has_loopback_alone_and_passes_the_exit_code_on() -> None:
    ended = subprocess.run([LOOPBACK, "sh", "-c", "cat /proc/net/dev; exit 7"], capture_output=True, text=True)
    if ended.returncode == 125:
        pytest.skip("there is no network namespace to be had here")
    assert ended.returncode == 7
    assert [line.split(":")[0].strip() for line in ended.stdout.splitlines()[2:]] == ["lo"]


def test_without_a_namespace_nothing_is_run(tmp_path: Path) -> None:
    ended = subprocess.run(["/bin/sh", LOOPBACK, "/bin/echo", "ran"], env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (125, "")
    assert "nothing was run" in ended.stderr


if __name__ == "__main__":
    print(json.dumps({"scenes": scenes, "lost_node": lost_node}[sys.argv[1]](Path(sys.argv[2]))))
