"""A federation: what a process needs to run any of its clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.evaluate import Metrics
from fedloom.core.job import Data
from fedloom.core.keeper import CarriedMemories, MemoryKeeper
from fedloom.core.key import Key
from fedloom.core.learning_task import CLASSIFICATION, LearningTask
from fedloom.core.method import Method
from fedloom.core.params import Params, without
from fedloom.core.solver import Solver

# Pieces into which the test data are split; constant, so that all engines add in the same order.
TEST_PIECES = 16

Batches = Sequence[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Federation:
    """What a worker needs to simulate any client.

    build     builds the model that is trained.
    clients   the clients' training data.
    solver    the run's solver; a phase may use another.
    test      test batches, on which models are scored.
    classes   number of classes; of outputs, for tasks without classes.
    task      what is learned.
    own_test  every client's own test batches, if models are scored on them instead.
    metrics   what is computed from predictions on test data, by name.
    frozen    the weights that the model froze, by name. Every process has them from `build`, so
              they are not sent; base is their checksum, which is.
    keeper    where the clients' memories are between rounds.
    secret    known to this process only; noise that protects data is drawn with it.
    """

    method: Method
    build: Callable[[], Chain]
    clients: Sequence[Data]
    solver: Solver
    key: Key
    test: Batches = ()
    classes: int = 0
    task: LearningTask = CLASSIFICATION
    own_test: Sequence[Batches] | None = None
    frozen: frozenset[str] = frozenset()
    base: Params = field(default_factory=dict)
    keeper: MemoryKeeper = field(default_factory=CarriedMemories)
    secret: str = ""
    metrics: Metrics = field(default_factory=dict)

    def sent(self, params: Mapping[str, Tensor]) -> Params:
        """The tensors of a model that travel: all but the frozen ones."""
        return without(params, self.frozen)

    @property
    def test_pieces(self) -> int:
        """The number of pieces in which the server's model is evaluated."""
        return TEST_PIECES if self.own_test is None else len(self.clients)

    def test_piece(self, piece: int) -> Batches:
        """One piece of the test data: a share of all of them, or those of one client."""
        if self.own_test is not None:
            return self.own_test[piece]
        count = len(self.test)
        return self.test[piece * count // TEST_PIECES : (piece + 1) * count // TEST_PIECES]
