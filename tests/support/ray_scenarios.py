"""Scenarios on Ray, each run in its own process; prints what happened as JSON.

python -m support.ray_scenarios SCENE FOLDER
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedloom.core.errors import RunError, UserError
from fedloom.core.request import Broadcast, ClientTask
from fedloom.core.simulation import init_state
from fedloom.engines import lost_workers
from fedloom.engines.ray import RayCluster
from fedloom.experiment.train import train
from support.small_run import EVERY_METHOD, FEW_CLIENTS, USER_METHODS, prepare_small, sha_per_round

SOME_METHODS = ["fedavg", "scaffold", "feddyn", "fedprox+fedavgm"]

Seen = dict[str, Any]


def both(method: str, cluster: RayCluster, **changes: Any) -> list[list[str]]:
    return [sha_per_round(prepare_small(method, engine, **changes)) for engine in (None, cluster)]


def error_of(work: Callable[..., Any], *given: Any) -> Seen:
    """The error that the call raises, as facts."""
    try:
        work(*given)
    except (RunError, UserError) as error:
        return {
            "kind": type(error).__name__,
            "said": str(error),
            "facts": getattr(error, "facts", None),
        }
    return {"kind": "none"}


def one_machine(folder: Path) -> Seen:
    """Everything on one machine."""
    import ray
    from ray._common.usage.usage_lib import usage_stats_enabled

    cluster = RayCluster(2)
    seen: Seen = {
        "bits": {m: both(m, cluster) for m in SOME_METHODS},
        "statistics": usage_stats_enabled(),
    }
    seen["everything"] = [
        train(prepare_small(f"{USER_METHODS}:everything", engine, **FEW_CLIENTS)).result.to_json()
        for engine in (None, cluster)
    ]
    one = {"sample": {"per_round": 1}}  # so that the same client fails first everywhere
    seen["broken"] = [
        error_of(sha_per_round, prepare_small(f"{USER_METHODS}:broken", engine, **one))
        for engine in (None, cluster)
    ]
    seen["after"] = both("feddyn", cluster)
    seen["left"] = left_unread(cluster)
    seen |= deaths(cluster, folder / "lives")
    cluster.start({"build": "nowhere:federation"})
    seen["nowhere"] = error_of(list, cluster.map(Broadcast("train", 0, {}), [ClientTask(0)]))
    seen["crowded"] = crowded()
    open_still = ray.is_initialized()
    cluster.close()
    seen["open"] = [open_still, ray.is_initialized()]
    seen["addresses"] = {a: error_of(RayCluster, 1, a) for a in ("nowhere", "127.0.0.1:1")}
    return seen


def left_unread(cluster: RayCluster) -> list[int]:
    """The clients that answer a map after another map was abandoned at its first answer."""
    prepared = prepare_small("fedavg", cluster)
    sent = Broadcast("train", 0, init_state(prepared.simulation, prepared.model).params)
    next(cluster.map(sent, (ClientTask(c) for c in range(20))))
    return sorted(client for client, _ in cluster.map(sent, (ClientTask(c) for c in range(20, 25))))


def deaths(cluster: RayCluster, lives: Path) -> Seen:
    """Two killed workers, then more than an engine tolerates."""
    method = f"{USER_METHODS}:mortal(lives={lives})"
    lives.write_bytes(b"")
    alone = sha_per_round(prepare_small(method))
    lives.write_bytes(b"xx")
    seen: Seen = {
        "killed": [alone, sha_per_round(prepare_small(method, cluster))],
        "lives": lives.stat().st_size,
    }
    lives.write_bytes(b"x" * 9)
    return seen | {
        "patience": error_of(sha_per_round, prepare_small(method, cluster, sample={"per_round": 1}))
    }


def crowded() -> Seen:
    """A second engine in a cluster that has no core left."""
    lost_workers.STARTUP_SECONDS = 0.5
    late = RayCluster(1)
    late.share({})
    late.start({"build": "nowhere:federation"})
    try:
        return error_of(list, late.map(Broadcast("train", 0, {}), [ClientTask(0)]))
    finally:
        late.close()


def every_method(folder: Path) -> Seen:
    """Every method, in-process and on Ray."""
    cluster = RayCluster(2)
    seen = {m: both(m, cluster) for m in EVERY_METHOD}
    cluster.close()
    return {"bits": seen}


def lost_node(folder: Path) -> Seen:
    """Two nodes of one core each; one disappears in the middle of a round."""
    from ray.cluster_utils import Cluster as Nodes

    nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    far = nodes.add_node(num_cpus=1)
    cluster, turns = RayCluster(address=nodes.address), iter(range(1000))
    first, real = list(cluster.workers), cluster._submit

    def lose_it_once(*given: Any) -> bool:
        more = real(*given)
        if next(turns) == 9:
            nodes.remove_node(far, allow_graceful=False)
        return more

    cluster._submit = lose_it_once  # type: ignore[method-assign]
    seen: Seen = {"bits": both("scaffold", cluster, train={"steps": 20}), "workers": len(first)}
    seen["replaced"] = sum(m not in cluster.workers for m in first)
    cluster.close()
    nodes.shutdown()
    return seen


SCENES = {scene.__name__: scene for scene in (one_machine, every_method, lost_node)}

if __name__ == "__main__":
    print(json.dumps(SCENES[sys.argv[1]](Path(sys.argv[2]))))
