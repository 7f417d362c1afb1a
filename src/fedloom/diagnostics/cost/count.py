"""What a method costs: the work of a local step, what a client stores meanwhile, and what travels in a round.

Two ways of counting, both in multiply-accumulates (MACs) for one sample, both counted while real steps of the method run:

    torch   every convolution and matrix product, as torch's FLOP counter sees them (two flops are one MAC), those inside a loss
            included. Going forward, and forward and back as the gradient is really taken. Stored: every parameter.
    paper   only layers going forward: convolutions, linear (and recurrent) layers, and one MAC for each input of an adaptive
            average pool. Norms, activations, max-pools, sums and products inside a loss are free. Stored: the weights and biases
            of these layers, so no scale or shift of a norm. The tables of FedAlign are counted like this.

Stored are the model in training and whatever else the objective reads in a step that the step has not made itself: teachers,
centres of springs, directions. The largest phase counts. In the papers' way it is that many copies of the layers' weights.

Where a method draws (which branches to drop, which widths to run) the expectation is meant: the mean over many draws, spread
evenly by a Latin hypercube, with its standard error. The whole step then grows as its layers do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch

from fedloom.core.key import Key
from fedloom.core.round_report import RoundReport
from fedloom.diagnostics.cost.counting_solver import Book
from fedloom.diagnostics.cost.dispatch import LAYERS, Meter
from fedloom.diagnostics.cost.toy_federation import Scene, noted, play

Convention = Literal["torch", "paper"]
FEWEST = 2  # samples: batch norm takes no fewer


@dataclass(frozen=True)
class Cost:
    """MACs for one sample in both ways of counting, and what is stored and sent.

    error: standard error of the mean over draws, as a share of it; 0 where nothing is drawn. copies: of the model, stored.
    """

    forward: float
    training: float
    layers: float
    error: float
    parameters: int
    layer_parameters: int
    copies: float
    bytes_up: int
    bytes_down: int

    def macs(self, convention: Convention) -> float:
        """Of the way forward."""
        return self.layers if convention == "paper" else self.forward

    def stored(self, convention: Convention) -> float:
        """Parameters at a client while it trains."""
        return self.copies * (self.layer_parameters if convention == "paper" else self.parameters)


def cost(scene: Scene, draws: int = 64) -> Cost:
    """The cost of a method on a model, counted on tensors without numbers unless the method or the model needs them."""
    small = replace(scene, batch=FEWEST)
    try:
        return _counted(small, torch.device("meta"), draws)
    except Exception:  # whatever a loss or a layer says that looks at numbers; what is wrong with numbers too is said again
        return _counted(small, torch.device("cpu"), draws)


def _counted(scene: Scene, device: torch.device, draws: int) -> Cost:
    books: list[Book] = []
    meter = Meter()
    with meter, meter.layerwise():
        report = play(scene, device, noted(books, lambda solver: Book(solver, meter, draws)))
    return _summed(scene, books, report)


def _summed(scene: Scene, books: list[Book], report: RoundReport) -> Cost:
    """A step is a batch through every phase."""
    chain = scene.method.reshaped(scene.build(torch.device("meta")), Key.root(0))
    forward, layers = (
        sum(getattr(b, what) for b in books) / scene.batch for what in ("forward", "layers")
    )
    parameters = sum(p.numel() for p in chain.parameters())
    return Cost(
        forward=forward,
        training=sum(b.training for b in books) / scene.batch,
        layers=layers,
        error=max(b.error for b in books),
        parameters=parameters,
        layer_parameters=sum(
            p.numel() for m in chain.modules() if isinstance(m, LAYERS) for p in m.parameters()
        ),
        copies=1 + max(b.beside for b in books) / parameters,
        bytes_up=report.bytes_up // len(report.clients),
        bytes_down=report.bytes_down // len(report.clients),
    )
