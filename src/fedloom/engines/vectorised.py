"""The vectorised engine: many clients in one call, through vmap; the same numbers up to rounding.

It pays for small models, where the overhead of a client exceeds its arithmetic. It runs methods of
one phase on plain SGD, after a check at the start (engines/vmap_check.py) that the numbers are
those of clients run alone. Everything else goes to another engine, and `why_not` says why.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from fedloom.core.chain import Chain
from fedloom.core.federation import Federation
from fedloom.core.job import build_isolated
from fedloom.core.learning_task import LearningTask
from fedloom.core.method import Method
from fedloom.core.optimisers import SGDRule
from fedloom.core.params import nbytes
from fedloom.core.request import Broadcast, Task
from fedloom.core.select import has_batch_statistics
from fedloom.core.simulation import Engine
from fedloom.core.solver import Sgd, Solver
from fedloom.engines.inprocess import InProcess
from fedloom.engines.vmap_check import difference_from_exact
from fedloom.engines.vmap_round import VmapRound
from fedloom.engines.workload import Workload

MEMORY_BYTES = 512 * 2**20  # that the clients of one call may take on a CPU, roughly
GPU_SHARE = 0.5  # of the free memory of a GPU
# with more channels or larger batches, batched convolutions take 1.2 to 2.7 times as long
MAX_CONV_CHANNELS = 16
MAX_CONV_BATCH = 10


class Vectorised:
    """lanes: the largest number of clients in one call, as far as memory allows.

    fallback: the engine for everything else. It also repeats a call that fails, so that the error
    names the client.
    """

    def __init__(self, federation: Federation, fallback: Engine, lanes: int = 128) -> None:
        self.fallback = fallback
        model = build_isolated(federation.build)
        self.why_not = why_unsupported(federation, model) or difference_from_exact(federation)
        self.vmap_round: VmapRound | None = None
        self.width = 0
        if self.why_not is None:
            self.vmap_round = VmapRound(federation)
            affordable = usable_bytes(model) // bytes_per_lane(self.vmap_round, model)
            self.width = max(1, min(lanes, affordable))

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        if self.vmap_round is None or sent.work != "train":
            yield from self.fallback.map(sent, tasks)
            return
        waiting = iter(tasks)
        while chunk := list(itertools.islice(waiting, self.width)):
            try:
                replies = self.vmap_round.run(sent, chunk)
            except Exception:
                yield from self.fallback.map(sent, chunk)
            else:
                yield from ((reply.client, reply) for reply in replies)

    def close(self) -> None:
        """Close the fallback."""
        self.fallback.close()


def open(workload: Workload) -> tuple[Federation, Vectorised]:
    """The vectorised engine, with the in-process engine for what cannot be batched.

    Stacked weights have to be contiguous, whatever the layout of the settings.
    """
    stackable = workload.rebuild("contiguous")
    return workload.federation, Vectorised(stackable, InProcess(workload.federation))


def why_unsupported(federation: Federation, model: Chain) -> str | None:
    """Why this method, solver or model cannot be vectorised, as far as can be seen without a run.

    None if nothing speaks against it.
    """
    solver = federation.method.phases[0].solver_for(federation.solver)
    reasons = itertools.chain(
        _method_reasons(federation.method, model),
        _task_reasons(federation.task),
        _solver_reasons(solver),
        _precision_reasons(solver),
        _model_reasons(model),
    )
    first = next(reasons, None)
    if first is None and _is_slow(model, solver):
        return (
            "on a CPU the vectorised engine is slower for convolutions of more than "
            f"{MAX_CONV_CHANNELS} channels or batches of more than {MAX_CONV_BATCH}"
        )
    return first


def _method_reasons(method: Method, model: Chain) -> Iterator[str]:
    phase, name = method.phases[0], f"method '{method.name}'"
    if len(method.phases) > 1:
        yield f"{name} has {len(method.phases)} phases, and the vectorised engine runs one"
    if phase.mix is not None:
        yield f"{name} mixes batches, and the vectorised engine takes samples as they are"
    if method.private(model):
        yield f"{name} keeps tensors private, and vectorised clients start from the same weights"
    if phase.start not in (None, "received", "model"):
        yield (
            f"{name} starts from slot '{phase.start}', "
            "and vectorised clients start from the same weights"
        )


def _task_reasons(task: LearningTask) -> Iterator[str]:
    """A padded row can only be left out of a loss whose single samples are known."""
    if task.sample_losses is None:
        yield (
            "the vectorised engine needs the loss of every sample, which neither a loss of your "
            "own nor task=next-token has"
        )


def _solver_reasons(solver: Solver) -> Iterator[str]:
    if not isinstance(solver, Sgd) or not isinstance(solver.rule, SGDRule):
        yield (
            "the vectorised engine makes plain SGD steps only: no adam, no sam, "
            "no decay_norms=false, and no steps of a method's own"
        )
    elif not solver.reset:
        yield (
            "train.reset=false keeps each client's momentum, "
            "and vectorised clients start without momentum"
        )


def _precision_reasons(solver: Solver) -> Iterator[str]:
    if isinstance(solver, Sgd) and solver.precision != "full":
        yield f"precision='{solver.precision}' is for clients one after the other"


def _model_reasons(model: Chain) -> Iterator[str]:
    if has_batch_statistics(model):
        yield "the model has batch norm, and the vectorised engine pads batches"
    if any("forward" in vars(module) for module in model.modules()):
        yield "compile=true does not work with vmap, which traces the model itself"
    if any(isinstance(layer, nn.modules.dropout._DropoutNd) for layer in model.modules()):
        yield "the model has dropout, and vectorised clients draw nothing in a forward pass"


def _is_slow(model: Chain, solver: Solver) -> bool:
    """Whether benchmarks found the model's convolutions faster one client after the other."""
    convolutions = [
        layer
        for layer in model.modules()
        if isinstance(layer, nn.modules.conv._ConvNd) and layer.weight.device.type == "cpu"
    ]
    if convolutions and isinstance(solver, Sgd) and solver.batch > MAX_CONV_BATCH:
        return True
    return any(layer.out_channels > MAX_CONV_CHANNELS for layer in convolutions)


def usable_bytes(model: Chain) -> int:
    """The memory that the clients of one call may take on the model's device."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    if device.type != "cuda":
        return MEMORY_BYTES
    free, _ = torch.cuda.mem_get_info(device)
    return int(GPU_SHARE * free)


def bytes_per_lane(vmap_round: VmapRound, model: Chain) -> int:
    """The memory of one client in a call.

    Weights, gradient, momentum and update, and what a batch leaves for the backward pass.
    """
    largest = max(vmap_round.federation.clients, key=len)
    one, two = (
        _saved_bytes(model, largest.batch(torch.zeros(count, dtype=torch.int64))[0])
        for count in (1, 2)
    )
    per_sample = max(0, two - one)
    return 4 * nbytes(model.state_dict()) + min(vmap_round.solver.batch, len(largest)) * per_sample


def _saved_bytes(model: Chain, x: torch.Tensor) -> int:
    """What a forward pass keeps for the backward pass; includes weights, whatever the batch."""
    sizes: list[int] = []

    def record(t: torch.Tensor) -> torch.Tensor:
        sizes.append(t.nbytes)
        return t

    with torch.autograd.graph.saved_tensors_hooks(record, lambda t: t):
        model(x)
    return sum(sizes)
