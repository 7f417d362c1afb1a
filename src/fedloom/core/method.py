"""A method: phases at the client, stages at the server, and what each side keeps. State goes in and comes out; nothing hides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any, NamedTuple

from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.errors import raise_all
from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.params import Params
from fedloom.core.select import Selector, everything, nothing
from fedloom.core.server import KINDS, Stage, apply_mean, mean
from fedloom.core.solver import DescentResult, Mix, Order, Solver, Tuning, shuffled
from fedloom.core.spec import Spec
from fedloom.core.step import Loss, Step, ce
from fedloom.core.user_code import GIVEN


@dataclass(frozen=True)
class Phase:
    """Train these tensors of this slot on this loss.

    loss     the ground of the objective; terms are added to it. Two methods join if at most one of them replaces the ground.
    mix      what a batch becomes before the forward pass (mixup and its kin).
    slot     whose weights: "model" is uploaded, any other slot is the client's own and persists.
    start    where the slot's weights come from: "received", another slot, or None for its own last ones (received, the first time).
    trains   the tensors that move. order: which samples an epoch visits.
    solver   of the phase's own; None takes what `tunes` makes of the run's, or the run's as it is.
    makes    further slots that the solver leaves in its trace (pFedMe's theta).
    clip     a bound on the norm of the gradient that belongs to the method; the run's own holds where it is tighter.
    """

    loss: Loss = ce
    terms: tuple[Loss, ...] = ()  # one function by itself will do
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
    """A client after its phases: the weights of every slot, and slot and trace of every phase."""

    job: Job
    weights: Mapping[str, Params]
    descents: tuple[tuple[str, DescentResult], ...]

    def descent(self, slot: str = "model") -> DescentResult:
        """The phases of a slot as one descent."""
        return reduce(DescentResult.then, (t for s, t in self.descents if s == slot))

    @cached_property
    def delta(self) -> Params:
        """The change of the trained weights of the model; statistics and counters are not part of it."""
        return {n: self.weights["model"][n] - t for n, t in self.job.weights.items()}


@dataclass(frozen=True)
class Extra:
    """What a client sends beside the model, and what it remembers."""

    uploads: Mapping[str, Params] = field(default_factory=dict)
    memories: Mapping[str, Params] = field(default_factory=dict)


After = Callable[[Outcome], Extra]


def nothing_wrong(client: int, answer: Params) -> str | None:
    """Takes every answer."""
    return None


def nothing_to_say(sizes: Sequence[int], releases: int) -> str | None:
    """For questions that reveal nothing."""
    return None


class Exchange(NamedTuple):
    """A question to all clients before round 0, whose pooled answer is sent along under `name` (FedMix's averaged data).

    client   the answer, from the client's data and the key alone: asked again with both as they were, it is the same. Where the
             question is put anew every round, from the weights of the round too.
    server   what becomes of the sound answers, in client order.
    check    why an answer of a client is not sound, or None, where its names, shapes and numbers are in order.
    notice   what the user has to know before anything is sent, from the clients' sizes and how often they answer; a limit that
             the user has set and that is broken is an error.
    every_round  whether it is repeated before every round, at the weights of that round.
    """

    name: str
    client: Callable[[Job, Key], Params]
    server: Callable[[Sequence[Params], Key], Params]
    check: Callable[[int, Params], str | None] = nothing_wrong
    notice: Callable[[Sequence[int], int], str | None] = nothing_to_say
    every_round: bool = False


class Need(NamedTuple):
    """What a method asks of a model, in words and as a test."""

    text: str
    met: Callable[[Chain], bool]


Reshape = Callable[[Chain, Key], Chain]


def blocks_needed(count: int) -> Need:
    """A chain of at least so many blocks."""
    return Need(f"a model of at least {count} blocks", lambda chain: len(chain.names) >= count)


def inner_block(name: str) -> Need:
    """A block of that name with others behind it."""
    return Need(f"a block '{name}' that is not its last", lambda chain: name in chain.names[:-1])


class Part(NamedTuple):
    """One of the methods that a method is combined from.

    spec: its name and arguments. value: the method itself where no name leads to it, because it was
    defined in a notebook or a script; None where `spec` is enough to build it in any process.
    """

    spec: Spec
    value: Method | None = None


def _as_tuple(value: Any) -> tuple[Any, ...]:
    """A bare phase, stage or function as a tuple of one; a stage is a tuple too, of another type."""
    return tuple(value) if type(value) in (tuple, list) else (value,)


@dataclass(frozen=True)
class Method:
    """Frozen, and complete: an engine, a checkpoint and a deployment need to know nothing else.

    private    tensors that never leave the client. prologue: questions before round 0, or before every round.
    finale     phases each client runs on the final model, once, to get its own (fine-tuning and its kin); nothing is sent.
    evaluates  the slot whose weights are a client's result.
    sends      names of the uploads beside "model"; check() demands a combiner for each.
    needs      what it asks of the plain model, in words and as tests.
    reshape    what it makes of that model before anything else: a projection behind the features, branches that can be dropped.
               Each takes the chain over and draws from the key only, under a label of its own: so the weights are the same in
               every process and every join.
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
    origin: tuple[Part, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("phases", "after", "server", "prologue", "finale", "needs", "reshape"):
            object.__setattr__(self, name, _as_tuple(getattr(self, name)))

    def __add__(self, other: Method) -> Method:
        """Both methods combined; raises if they do not go together."""
        from fedloom.core.compose import join  # here, since compose builds on this module

        return join([self, other])

    @property
    def parts(self) -> tuple[Part, ...]:
        """The methods this one is combined from."""
        return self.origin or (Part(Spec(f"{GIVEN}{self.name}"), self),)

    def reshaped(self, chain: Chain, key: Key) -> Chain:
        """The model that is trained, made of the plain one; raises if that is not what the method needs."""
        if self.reshape:
            raise_all(self._unmet(chain), f"method '{self.name}'")
        return reduce(lambda made, reshape: reshape(made, key), self.reshape, chain)

    def check(self, chain: Chain) -> None:
        """Raise every complaint about the method on the model that is trained at once, before round 0."""
        raise_all(
            [*self._server_complaints(), *self._client_complaints(chain)], f"method '{self.name}'"
        )

    def _server_complaints(self) -> list[str]:
        order = [KINDS.index(s.kind) for s in self.server]
        said = [f"stage '{s.name}' stands behind a later kind; the order is {', '.join(KINDS)}"
                for i, s in enumerate(self.server) if order[:i] and order[i] < max(order[:i])]  # fmt: skip
        for upload in ("model", *self.sends):
            combiners = [s.name for s in self.server if s.kind == "combine" and s.handles == upload]
            if not combiners:
                said.append(f"upload '{upload}' has no combiner; add mean(of='{upload}')")
            if len(combiners) > 1:
                said.append(
                    f"upload '{upload}' has {len(combiners)} combiners ({', '.join(combiners)}); keep one"
                )
        if (appliers := sum(s.kind == "apply" and s.handles == "model" for s in self.server)) != 1:
            said.append(
                f"{appliers} stages apply the change to the model, and one must; end the server with one apply_mean()"
            )
        if twice := {
            s.name for s in self.server if sum(s.name == other.name for other in self.server) > 1
        }:
            said.append(
                f"two stages are called '{min(twice)}' and would share a memory; rename one"
            )
        said += [
            f"stage name '{s.name}' holds a '/'; rename it" for s in self.server if "/" in s.name
        ]
        for what, names in (
            ("uploads", self.sends),
            ("exchanges", [e.name for e in self.prologue]),
        ):
            if twice := {n for n in names if list(names).count(n) > 1}:
                said.append(f"two {what} are called '{min(twice)}'; only one can be")
        optimisers = [s.name for s in self.server if s.kind == "optimise"]
        if len(optimisers) > 1:
            said.append(f"two server optimisers ({', '.join(optimisers)}) do not join; keep one")
        return said

    def _client_complaints(self, chain: Chain) -> list[str]:
        slots = {slot for p in self.finale or self.phases for slot in (p.slot, *p.makes)}
        said = [] if self.reshape else self._unmet(chain)  # else they were asked of the plain chain
        weights = {n for n, _ in chain.named_parameters()}
        said += [f"phase {i} of slot '{p.slot}' trains no weight of this model; choose other tensors or another model"
                 for i, p in enumerate((*self.phases, *self.finale)) if not weights & p.trains(chain)]  # fmt: skip
        if "model" not in {p.slot for p in self.phases}:
            said.append("no phase trains the slot 'model'; add Phase()")
        if self.evaluates not in slots:
            last = "phase of the finale" if self.finale else "phase"
            said.append(
                f"evaluates '{self.evaluates}', which no {last} trains; the slots are {', '.join(sorted(slots))}"
            )
        return said

    def _unmet(self, chain: Chain) -> list[str]:
        blocks = ", ".join(chain.names)
        return [
            f"needs {need.text}, and the model has the blocks {blocks}"
            for need in self.needs
            if not need.met(chain)
        ]

    @property
    def personal(self) -> bool:
        """Whether every client ends with a model of its own."""
        return self.evaluates != "model" or bool(self.finale) or self.private is not nothing
