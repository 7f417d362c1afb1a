"""The cost of a method: the work of a local step, what a client stores, and what a round sends.

There are two conventions. Both count multiply-accumulates (MACs) per sample while real steps of the
method run:

    torch   Every convolution and matrix product, by torch's FLOP counter (two FLOPs are one MAC),
            including those inside a loss. Counted for the forward pass, and for forward and
            backward as the gradient is really taken. Stored: every parameter.
    paper   Only the forward pass of layers: convolutions, linear and recurrent layers, and one MAC
            per input of an adaptive average pool. Norms, activations, max-pools, and sums and
            products inside a loss are free. Stored: the weights and biases of these layers, so no
            scale or shift of a norm. FedAlign's tables use this convention.

A client stores the trained model and everything else that the objective reads in a step but that
the step has not made itself: teachers, centres of proximal terms, control variates. The phase that
stores most counts. In the paper convention this is expressed in copies of the layers' weights.

If a method draws random choices (which branches to drop, which widths to run), the expectation is
reported: a mean over many draws, spread evenly by a Latin hypercube, with its standard error. The
MACs of the whole training step are scaled by the same factor as those of its layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.core.round_report import RoundReport
from fedloom.diagnostics.cost.counting_solver import CountingSolver
from fedloom.diagnostics.cost.dispatch import COUNTED_LAYERS, MacCounter
from fedloom.diagnostics.cost.toy_federation import Workload, collecting, run_two_rounds

Convention = Literal["torch", "paper"]
MIN_BATCH = 2  # samples; batch norm accepts no fewer in training


@dataclass(frozen=True)
class Cost:
    """MACs per sample in both conventions, parameters stored, and bytes sent per round.

    forward_macs, training_macs: convention torch. layer_macs: convention paper. error: relative
    standard error of the mean over draws, 0 if nothing is drawn. copies: of the model, stored.
    training_by_phase: training_macs, for each phase of the method.
    """

    forward_macs: float
    training_macs: float
    layer_macs: float
    error: float
    parameters: int
    layer_parameters: int
    copies: float
    bytes_up: int
    bytes_down: int
    training_by_phase: tuple[float, ...]

    def macs(self, convention: Convention) -> float:
        """MACs per sample of the forward pass."""
        return self.layer_macs if convention == "paper" else self.forward_macs

    def stored(self, convention: Convention) -> float:
        """Parameters that a client stores while it trains."""
        return self.copies * (self.layer_parameters if convention == "paper" else self.parameters)


def count_cost(workload: Workload, draws: int = 64) -> Cost:
    """Count the cost of a method on a model. draws: steps to average over if the method draws.

    It runs on the meta device, or on the CPU if the method or the model needs values. The
    workload's batch size has no influence.
    """
    smallest = replace(workload, batch=MIN_BATCH)
    try:
        return _count_on(torch.device("meta"), smallest, draws)
    except Exception:  # whatever code that needs values raises; real errors occur again on the CPU
        return _count_on(torch.device("cpu"), smallest, draws)


def _count_on(device: torch.device, workload: Workload, draws: int) -> Cost:
    solvers: list[CountingSolver] = []
    counter = MacCounter()
    observe = collecting(solvers, lambda solver: CountingSolver(solver, counter, draws))
    with counter, counter.per_layer():
        report = run_two_rounds(workload, device, observe)
    return _total(workload, solvers, report)


def _total(workload: Workload, solvers: list[CountingSolver], report: RoundReport) -> Cost:
    """The cost of one step, which is a batch through every phase."""
    chain = workload.method.reshaped(workload.build(torch.device("meta")), Key.root(0))
    parameters = sum(p.numel() for p in chain.parameters())
    return Cost(
        forward_macs=sum(s.forward for s in solvers) / workload.batch,
        training_macs=sum(s.training for s in solvers) / workload.batch,
        layer_macs=sum(s.layers for s in solvers) / workload.batch,
        error=max(s.error for s in solvers),
        parameters=parameters,
        layer_parameters=_layer_parameters(chain),
        copies=1 + max(s.extra_parameters for s in solvers) / parameters,
        bytes_up=report.bytes_up // len(report.clients),
        bytes_down=report.bytes_down // len(report.clients),
        training_by_phase=tuple(s.training / workload.batch for s in solvers),
    )


def _layer_parameters(chain: Chain) -> int:
    """The weights and biases of the layers that the paper convention counts."""
    layers = [module for module in chain.modules() if isinstance(module, COUNTED_LAYERS)]
    return sum(p.numel() for layer in layers for p in layer.parameters())
