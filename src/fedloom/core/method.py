"""A method: phases at the client, stages at the server, and what each side remembers.

A Method is data: frozen, with explicit state. Reading order: Phase (what a client trains), Outcome
and Extra (what it sends and remembers), Exchange (questions to all clients), Need (what it requires
of a model), Method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any, NamedTuple

from torch import Tensor

from fedloom.core import method_checks
from fedloom.core.chain import Chain
from fedloom.core.chain_from_module import cut
from fedloom.core.errors import UserError, raise_all
from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.params import Params
from fedloom.core.select import Selector, everything, nothing
from fedloom.core.server import Stage, apply_mean, mean
from fedloom.core.solver import DescentResult, Mix, Order, Solver, Tuning, shuffled
from fedloom.core.spec import Spec
from fedloom.core.step import Loss, Step, task_loss
from fedloom.core.user_code import VALUE_PREFIX


@dataclass(frozen=True)
class Phase:
    """One descent of a client: train these tensors of this slot on this loss.

    loss     the base of the objective, the loss of the task; the terms are added to it. Methods can
             be combined if at most one of them replaces the base.
    mix      changes a batch before the forward pass (mixup and similar).
    slot     which weights: "model" is uploaded; any other slot stays with the client and persists.
    start    initial weights of the slot: "received", another slot, or None for the slot's own last
             weights (the received ones, the first time).
    trains   the tensors that are trained.
    order    which samples an epoch visits, in which order.
    solver   the phase's solver; None takes the run's solver, adapted by `tunes` if given.
    makes    further slots that the solver returns (pFedMe's theta).
    clip     the method's bound on the gradient norm; the run's bound applies if it is smaller.
    """

    loss: Loss = task_loss
    terms: tuple[Loss, ...] = ()  # a single function is accepted too
    mix: Mix | None = None
    slot: str = "model"
    start: str | None = None
    trains: Selector = everything
    order: Order = shuffled
    solver: Solver | None = None
    tunes: Tuning | None = None
    makes: tuple[str, ...] = ()
    clip: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "terms", _as_tuple(self.terms))

    def total(self, step: Step) -> Tensor:
        """The objective on one mini-batch."""
        value = self.loss(step)
        for term in self.terms:
            value = value + term(step)
        return value

    def solver_for(self, run: Solver) -> Solver:
        """The solver of this phase, given the run's."""
        return self.solver or (run if self.tunes is None else self.tunes(run))


@dataclass(frozen=True)
class Outcome:
    """A client after its phases: weights by slot, and the slot and descent of every phase."""

    job: Job
    weights: Mapping[str, Params]
    descents: tuple[tuple[str, DescentResult], ...]

    def descent(self, slot: str = "model") -> DescentResult:
        """All phases of the slot as one descent."""
        of_slot = (descent for name, descent in self.descents if name == slot)
        return reduce(DescentResult.then, of_slot)

    @cached_property
    def delta(self) -> Params:
        """The change of the model's weights, without statistics and counters."""
        return {n: self.weights["model"][n] - t for n, t in self.job.weights.items()}


@dataclass(frozen=True)
class Extra:
    """What a client sends in addition to the model, and what it remembers."""

    uploads: Mapping[str, Params] = field(default_factory=dict)
    memories: Mapping[str, Params] = field(default_factory=dict)


After = Callable[[Outcome], Extra]


def accept_any(client: int, answer: Params) -> str | None:
    """The check of an exchange that accepts every answer."""
    return None


def no_notice(sizes: Sequence[int], releases: int) -> str | None:
    """The notice of an exchange that reveals nothing."""
    return None


class Exchange(NamedTuple):
    """A question to all clients before round 0 (FedMix's averaged data, for example).

    The pooled answer is sent to the clients along with the weights, under `name`.

    client   a client's answer, a function of its data and the key alone, so that asking again gives
             the same answer; with every_round, also of the round's weights.
    server   pools the valid answers, in client order.
    check    why a client's answer is invalid, or None. It is called only with answers of the usual
             names, types and shapes and finite values.
    notice   what the user has to know before anything is sent, given the clients' sizes and how
             often they answer; raises if a limit set by the user is exceeded.
    every_round  whether it is repeated before every round, with the weights of that round.
    """

    name: str
    client: Callable[[Job, Key], Params]
    server: Callable[[Sequence[Params], Key], Params]
    check: Callable[[int, Params], str | None] = accept_any
    notice: Callable[[Sequence[int], int], str | None] = no_notice
    every_round: bool = False


class Need(NamedTuple):
    """A requirement on the model, as text and as a predicate.

    by_cutting: whether a model of one block can meet it once it is cut into several. by_sample:
    whether the method takes outputs of blocks apart into samples, which are then to be along the
    first axis of each. of_numbers: whether the samples have to be numbers; tokens cannot be mixed.
    """

    text: str
    met: Callable[[Chain], bool]
    by_cutting: bool = False
    by_sample: bool = False
    of_numbers: bool = False


def with_needed_blocks(chain: Chain, needs: Sequence[Need]) -> Chain:
    """The chain; a model of one block is cut automatically if that is what the needs lack."""
    if len(chain.names) > 1 or all(need.met(chain) for need in needs):
        return chain
    try:
        blocks = cut(chain)
    except UserError:
        return chain  # the unmet needs are reported with the line to write
    return blocks if all(need.met(blocks) for need in needs) else chain


Reshape = Callable[[Chain, Key], Chain]


def blocks_needed(count: int, by_sample: bool = False) -> Need:
    """Requires a chain of at least `count` blocks."""
    text = f"a model of at least {count} blocks"
    return Need(text, lambda chain: len(chain.names) >= count, True, by_sample)


def inner_block(name: str) -> Need:
    """Requires a block with this name that is not the last one; its output is used by sample."""
    text = f"a block '{name}' that is not its last"
    return Need(text, lambda chain: name in chain.names[:-1], by_cutting=True, by_sample=True)


class Part(NamedTuple):
    """One of the methods that a method is combined from.

    spec: its name and arguments. value: the method itself where no name leads to it, because it was
    defined in a notebook or a script; None where `spec` is enough to build it in any process.
    """

    spec: Spec
    value: Method | None = None


def _as_tuple(value: Any) -> tuple[Any, ...]:
    """A single phase, stage or function as a tuple of one."""
    # not isinstance: a Stage is a NamedTuple, and so a tuple itself
    return tuple(value) if type(value) in (tuple, list) else (value,)


@dataclass(frozen=True)
class Method:
    """A complete federated method: engines, checkpoints and deployments need nothing else.

    phases     what a client trains in a round.
    after      functions of a client's Outcome: further uploads and memories.
    server     stages that turn the replies into new weights.
    private    tensors that never leave the client.
    prologue   exchanges before round 0, or before every round.
    finale     phases that each client runs once on the final model to get its own (fine-tuning and
               similar); nothing is sent.
    evaluates  the slot whose weights are a client's result.
    sends      names of the uploads besides "model"; each needs a combiner.
    needs      requirements on the model, before it is reshaped.
    reshape    changes the model before anything else: adds a projection after the features, or
               branches that can be dropped. Each takes over the chain and draws only from the key,
               under its own label, so the weights are the same in every process and combination.
    tasks      the tasks it is meant for, by name (core/learning_task.py); None: any.
    uses_lr_sum  whether `after` divides by DescentResult.lr_sum, which Adam does not have.
    fixed_loss  whether a phase minimises a formula with cross-entropy in place of the task's loss;
               a user-defined loss is then rejected.
    loss_floor  a training loss below it means that training has gone wrong; the user is told once.
               For losses without a lower bound whose healthy values are known; None for others.
    origin     the methods that this one is combined from; see `parts`.
    """

    name: str
    phases: tuple[Phase, ...] = (Phase(),)
    after: tuple[After, ...] = ()
    server: tuple[Stage, ...] = (mean(), apply_mean())
    private: Selector = nothing
    prologue: tuple[Exchange, ...] = ()
    finale: tuple[Phase, ...] = ()
    evaluates: str = "model"
    sends: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    reshape: tuple[Reshape, ...] = ()
    tasks: frozenset[str] | None = None
    uses_lr_sum: bool = False
    fixed_loss: bool = False
    loss_floor: float | None = None
    origin: tuple[Part, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("phases", "after", "server", "prologue", "finale", "needs", "reshape"):
            object.__setattr__(self, name, _as_tuple(getattr(self, name)))

    def __add__(self, other: Method) -> Method:
        """Both methods combined; raises UserError if they do not go together."""
        from fedloom.core.compose import join  # compose imports this module

        return join([self, other])

    @property
    def parts(self) -> tuple[Part, ...]:
        """The methods that this one is combined from; itself if it is not a combination."""
        return self.origin or (Part(Spec(f"{VALUE_PREFIX}{self.name}"), self),)

    def reshaped(self, chain: Chain, key: Key) -> Chain:
        """The model that is trained, cut into blocks if the method needs them and there are none.

        Raises UserError if the model does not meet the needs.
        """
        chain = with_needed_blocks(chain, self.needs)
        if self.reshape:
            raise_all(method_checks.unmet_needs(self, chain), f"method '{self.name}'")
        for reshape in self.reshape:
            chain = reshape(chain, key)
        return chain

    def check(self, chain: Chain) -> None:
        """Raise UserError with every problem of the method on the model that is trained."""
        raise_all(method_checks.problems(self, chain), f"method '{self.name}'")

    @property
    def personal(self) -> bool:
        """Whether every client ends up with its own model."""
        return self.evaluates != "model" or bool(self.finale) or self.private is not nothing
