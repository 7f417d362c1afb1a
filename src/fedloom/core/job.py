"""All that a client knows in one round, and the bench on which it works."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, cast

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.core.params import Params, zeros_view
from fedloom.core.roles import Roles
from fedloom.core.select import BATCH_NORMS, Selector, has_batch_statistics

T = TypeVar("T")
P = ParamSpec("P")


class Data(Protocol):
    """A client's samples; positions count from 0 to len - 1."""

    def __len__(self) -> int: ...

    @property
    def labels(self) -> Tensor: ...

    def batch(
        self, positions: Tensor, generator: torch.Generator | None = None, train: bool = True
    ) -> tuple[Tensor, Tensor]: ...


def build_isolated(build: Callable[[], Chain]) -> Chain:
    """A model, built without a trace in the global random state, so that no draw depends on who built what before."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        return build()


class ModelPool:
    """A worker's scratch models, one for each label. They are built once and overwritten, never copied for a client."""

    def __init__(self, build: Callable[[], Chain]) -> None:
        self._build = build
        self._models: dict[str, tuple[Chain, Params]] = {}
        self._frozen: dict[str, dict[str, weakref.ref[Tensor]]] = {}
        self._selected: dict[Selector, frozenset[str]] = {}
        self._trainable: frozenset[str] | None = None
        first, _ = self._scratch("model")
        self.roles = Roles.of(first)
        self.batch_statistics = has_batch_statistics(first)

    def _scratch(self, label: str) -> tuple[Chain, Params]:
        if label not in self._models:
            chain = build_isolated(self._build)
            self._models[label] = chain, chain.state_dict(keep_vars=True)
        return self._models[label]

    def load(self, label: str, weights: Mapping[str, Tensor]) -> Chain:
        """The scratch model of that label, holding these weights."""
        chain, tensors = self._scratch(label)
        with torch.no_grad():
            torch._foreach_copy_(list(tensors.values()), [weights[n] for n in tensors])
        return chain

    def load_frozen(self, label: str, weights: Mapping[str, Tensor]) -> Chain:
        """The same for a model that nobody trains: loaded once for all clients of a round, who receive the very same tensors."""
        chain, tensors = self._scratch(label)
        held = self._frozen.get(label, {})
        if any(n not in held or held[n]() is not weights[n] for n in tensors):
            self.load(label, weights)
            self._frozen[label] = {n: weakref.ref(weights[n]) for n in tensors}
        return chain

    def take(self, label: str) -> Params:
        """What the scratch model of that label holds now. It is handed over; the model gets other memory, for the next load.

        Contiguous, since sums over a tensor depend on how it lies.
        """
        _, tensors = self._scratch(label)
        held = {n: t.detach().contiguous() for n, t in tensors.items()}
        for t in tensors.values():
            t.data = torch.empty_like(t)
        return held

    def names(self, selector: Selector) -> frozenset[str]:
        """The tensors a selector chooses, worked out once."""
        if selector not in self._selected:
            self._selected[selector] = selector(self._scratch("model")[0])
        return self._selected[selector]

    def set_trainable(self, selector: Selector) -> None:
        """Open these tensors of the model to training and close the rest.

        A norm whose statistics are closed uses them and leaves them alone.
        """
        trained, (chain, _) = self.names(selector), self._scratch("model")
        if trained == self._trainable:
            return
        chain.train()
        for name, p in chain.named_parameters():
            p.requires_grad_(name in trained)
        for name, layer in chain.named_modules():
            if isinstance(layer, BATCH_NORMS) and f"{name}.running_mean" not in trained:
                layer.eval()
        self._trainable = trained


@dataclass
class Progress:
    """How far a client has come, for the one who has to explain an error."""

    phase: int = 0
    step: int = 0
    shapes: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Job:
    """One client in one round. received: the server's weights, with the client's private tensors in their place.

    shared: what the server sends along with the weights. mine: what this client remembers, by slot. classes: of the task, not of
    this client's data.
    """

    client: int
    round: int
    key: Key
    data: Data
    model_pool: ModelPool
    received: Params
    shared: Mapping[str, Params]
    memories: Mapping[str, Params]
    classes: int = 0
    progress: Progress = field(default_factory=Progress, compare=False)
    _made: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def once(self, make: Callable[Concatenate[Job, P], T], *args: P.args, **none: P.kwargs) -> T:
        """What `make` makes of this job, made once: a teacher, a direction, anything that all steps share."""
        made = (make, *args)
        if made not in self._made:
            self._made[made] = make(self, *args, **none)
        return cast(T, self._made[made])

    @property
    def weights(self) -> Params:
        """The part of what was received that is trained by gradients."""
        return {n: t for n, t in self.received.items() if n in self.model_pool.roles.weights}

    def memory(
        self, slot: str, default: Callable[[Mapping[str, Tensor]], Params] = zeros_view
    ) -> Params:
        """What this client remembers under the slot, or the default made from the received weights."""
        return dict(self.memories[slot]) if slot in self.memories else default(self.weights)

    def from_server(
        self, name: str, default: Callable[[Mapping[str, Tensor]], Params] = zeros_view
    ) -> Params:
        """What the server sent under the name for each weight; the default for weights of which it knows nothing."""
        return {**default(self.weights), **self.shared.get(name, {})}

    def frozen(self, slot: str = "received", norm: Literal["batch", "running"] = "batch") -> Chain:
        """A teacher: weights closed, gradients still flow to its inputs. norm: batch statistics, or the running ones.

        slot is "received", a memory of the client's, or what the server sent under that name. A method calls it through `once`.
        A teacher draws nothing: dropout and its kin are in evaluation, so that the model's own draws go on as without it. With
        norm "batch" it moves the running statistics of its own scratch copy, which nobody reads.
        """
        weights = (
            self.received if slot == "received" else {**self.received, **self._weights_of(slot)}
        )
        chain = (
            self.model_pool.load_frozen(f"frozen {slot} {norm}", weights)
            .requires_grad_(False)
            .eval()
        )
        for layer in chain.modules():
            if isinstance(layer, BATCH_NORMS):
                layer.train(norm == "batch")
        return chain

    def _weights_of(self, slot: str) -> Mapping[str, Tensor]:
        return self.memories[slot] if slot in self.memories else self.shared[slot]
