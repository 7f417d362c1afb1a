"""The worker that runs clients on a node of a Ray cluster, and what its bits depend on."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Any

import torch

import fedloom
from fedloom.core.errors import RunError
from fedloom.core.request import Broadcast, task_for
from fedloom.core.server import Absent
from fedloom.engines.inprocess import InProcess
from fedloom.engines.malloc import keep_freed_memory
from fedloom.engines.ray_arrays import Arrays, as_arrays, as_tensors, nested_tensors
from fedloom.engines.wire import Facts, pack
from fedloom.engines.workload import build_federation


class RayWorker:
    """The actor that runs clients, on one thread."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        keep_freed_memory()

    def start(self) -> Facts:
        """What the bits of a result depend on, on this node, and which process this is."""
        import ray

        node = ray.get_runtime_context().get_node_id()
        return {**versions(), "process": os.getpid(), "node": node}

    def load(self, recipe: Facts, data: Arrays) -> None:
        """Build the federation of a recipe. It replaces an earlier one."""
        self.engine = InProcess(build_federation(recipe, as_tensors(data)))

    def run_client(
        self,
        sent: tuple[Any, ...],
        client: int,
        memories: dict[str, Arrays],
    ) -> tuple[Facts, Arrays]:
        """One client's answer."""
        work, round, params, shared, timeout = sent
        broadcast = Broadcast(work, round, as_tensors(params), nested_tensors(shared), timeout)
        task = task_for(work, client, nested_tensors(memories))
        answer = self.engine.run_client(broadcast, task)
        try:
            packed = pack(answer)
            return packed.facts, as_arrays(packed.tensors)
        except Exception as error:  # what the user's method made of its answer
            reason = f"its answer cannot be sent: {type(error).__name__}: {error}"
            return pack(Absent(client, reason)).facts, {}


def versions() -> Facts:
    """What the bits of a result depend on, in this process."""
    return {
        "fedloom": fedloom.__version__,
        "torch": torch.__version__,
        "CPU capability": torch.backends.cpu.get_cpu_capability(),
    }


def check_versions(theirs: Facts) -> None:
    """Reject a node with other bits: the result would depend on where a client runs."""
    for what, here in versions().items():
        if theirs[what] != here:
            raise RunError(
                f"a node of the Ray cluster has {what} {theirs[what]}, and this one has {here}; "
                "make them the same (ATEN_CPU_CAPABILITY sets the last)"
            )


def kill_process(process: int) -> None:
    """End a process of this node at once."""
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
