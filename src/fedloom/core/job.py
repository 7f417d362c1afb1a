"""What a client knows in one round (Job), and the scratch models it trains with (ModelPool)."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.determinism import fork_rng
from fedloom.core.frozen_base import base_checksum
from fedloom.core.key import Key
from fedloom.core.learning_task import CLASSIFICATION, LearningTask
from fedloom.core.params import Params, zeros_view
from fedloom.core.precision import full_precision
from fedloom.core.roles import Roles
from fedloom.core.select import BATCH_NORMS, Selector, has_batch_statistics

T = TypeVar("T")
P = ParamSpec("P")


class Data(Protocol):
    """A client's samples, addressed by positions 0 ... len - 1."""

    def __len__(self) -> int: ...

    @property
    def labels(self) -> Tensor: ...

    def batch(
        self, positions: Tensor, generator: torch.Generator | None = None, train: bool = True
    ) -> tuple[Tensor, Tensor]: ...

    def checksum(self) -> int:
        """Of the samples; another one if they have changed (core/checksum.py)."""
        ...


def build_isolated(build: Callable[[], Chain]) -> Chain:
    """Build a model and restore the global random state, so that it cannot affect later draws.

    In full precision: a teacher is first built in a forward pass, which may be of a lower one.
    """
    with fork_rng(), full_precision():
        return build()


class ModelPool:
    """A worker's scratch models, one per label, built once and overwritten for every client.

    Weights that the model froze are never overwritten, and all scratch models share them.
    """

    def __init__(self, build: Callable[[], Chain]) -> None:
        self._build = build
        self._models: dict[str, tuple[Chain, Params]] = {}
        self._buffers: dict[str, list[tuple[str, nn.Module, str]]] = {}
        self._frozen: dict[str, dict[str, weakref.ref[Tensor]]] = {}
        self._selected: dict[Selector, frozenset[str]] = {}
        self._trainable: frozenset[str] | None = None
        self.frozen_weights: Params = {}
        first, _ = self._scratch("model")
        self.roles = Roles.of(first)  # now, because training changes requires_grad
        self.batch_statistics = has_batch_statistics(first)

    @cached_property
    def base(self) -> Params:
        """The checksum of the frozen weights."""
        return base_checksum(self.frozen_weights)

    def _scratch(self, label: str) -> tuple[Chain, Params]:
        if label not in self._models:
            chain = build_isolated(self._build)
            tensors = chain.state_dict(keep_vars=True)
            for name in Roles.of(chain).frozen:
                frozen = tensors.pop(name)
                frozen.data = self.frozen_weights.setdefault(name, frozen.detach())
            self._models[label] = chain, tensors
            self._buffers[label] = _buffers_among(chain, tensors)
        return self._models[label]

    def _rebound(self, label: str) -> Params:
        """Buffers that a forward pass has replaced, as self.mean = 0.9 * self.mean + ... does.

        The model gets its own tensors back, with their old values.
        """
        tensors, replaced = self._models[label][1], Params()
        for name, module, attribute in self._buffers[label]:
            own, current = tensors[name], getattr(module, attribute)
            if current is not own:
                replaced[name] = current.detach().to(own.dtype)
                setattr(module, attribute, own)
        return replaced

    def load(self, label: str, weights: Mapping[str, Tensor]) -> Chain:
        """Copy these weights into the scratch model with this label and return it."""
        chain, tensors = self._scratch(label)
        self._rebound(label)
        with torch.no_grad():
            torch._foreach_copy_(list(tensors.values()), [weights[n] for n in tensors])
        return chain

    def load_frozen(self, label: str, weights: Mapping[str, Tensor]) -> Chain:
        """Like `load`, for a model that is not trained.

        It is copied once for all clients of a round, who receive the same tensor objects.
        """
        chain, tensors = self._scratch(label)
        loaded = self._frozen.get(label, {})
        if any(n not in loaded or loaded[n]() is not weights[n] for n in tensors):
            self.load(label, weights)
            self._frozen[label] = {n: weakref.ref(weights[n]) for n in tensors}
        return chain

    def take(self, label: str) -> Params:
        """Take the tensors out of the scratch model without a copy; it gets new, empty memory.

        Contiguous, because the rounding of a sum depends on the memory layout.
        """
        _, tensors = self._scratch(label)
        latest = {**tensors, **self._rebound(label)}
        taken = {n: t.detach().contiguous() for n, t in latest.items()}
        for t in tensors.values():
            t.data = torch.empty_like(t)
        return taken

    def names(self, selector: Selector) -> frozenset[str]:
        """The tensors that a selector chooses; computed once per selector."""
        if selector not in self._selected:
            self._selected[selector] = selector(self._scratch("model")[0])
        return self._selected[selector]

    def kept(self, private: Selector) -> frozenset[str]:
        """The tensors that never leave a client: private ones, and weights the model froze."""
        return self.names(private) | self.roles.frozen

    def set_trainable(self, selector: Selector) -> None:
        """Make these tensors of the model trainable and freeze the rest.

        What the builder of the model froze stays frozen. A batch norm whose statistics are not
        trained normalises by them and does not update them.
        """
        trained, (chain, _) = self.names(selector), self._scratch("model")
        if trained == self._trainable:
            return
        chain.train()
        for name, p in chain.named_parameters():
            p.requires_grad_(name in trained and name not in self.roles.frozen)
        for name, layer in chain.named_modules():
            if isinstance(layer, BATCH_NORMS) and f"{name}.running_mean" not in trained:
                layer.eval()
        self._trainable = trained


def _buffers_among(chain: Chain, tensors: Params) -> list[tuple[str, nn.Module, str]]:
    """The buffers among these tensors: full name, module, and attribute of the module."""
    places = []
    for name, _ in chain.named_buffers(remove_duplicate=False):
        module, _, attribute = name.rpartition(".")
        if name in tensors:
            places.append((name, chain.get_submodule(module), attribute))
    return places


@dataclass
class Progress:
    """Where a client is in its training, for error messages."""

    phase: int = 0
    step: int = 0
    shapes: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Job:
    """One client in one round.

    received   the server's weights, with the client's private tensors in place of the server's.
    shared     what the server sends along with the weights, by name.
    memories   what this client remembers, by slot.
    classes    number of classes of the task, not of this client's data.
    task       what is learned: the loss, and the form of the targets.
    secret     known to the client's own process only; empty in a simulation.
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
    task: LearningTask = CLASSIFICATION
    secret: str = ""
    progress: Progress = field(default_factory=Progress, compare=False)
    _made: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def noise_key(self, key: Key) -> Key:
        """The key for noise that hides data: the client's secret keeps the server, which knows
        the seed of the run, from computing the noise and subtracting it."""
        return key.fold("secret", self.secret) if self.secret else key

    def once(self, make: Callable[Concatenate[Job, P], T], *args: P.args, **none: P.kwargs) -> T:
        """make(job, *args), computed once: a teacher, a direction, anything that steps share."""
        call = (make, *args)
        if call not in self._made:
            self._made[call] = make(self, *args, **none)
        return cast(T, self._made[call])

    @property
    def weights(self) -> Params:
        """The received parameters, without statistics and counters."""
        return {n: t for n, t in self.received.items() if n in self.model_pool.roles.weights}

    def memory(
        self, slot: str, default: Callable[[Mapping[str, Tensor]], Params] = zeros_view
    ) -> Params:
        """What this client remembers in the slot, or default(received weights) the first time."""
        return dict(self.memories[slot]) if slot in self.memories else default(self.weights)

    def from_server(
        self, name: str, default: Callable[[Mapping[str, Tensor]], Params] = zeros_view
    ) -> Params:
        """What the server sent for each weight under this name; the default for missing ones."""
        return {**default(self.weights), **self.shared.get(name, {})}

    def frozen(self, slot: str = "received", norm: Literal["batch", "running"] = "batch") -> Chain:
        """A teacher with frozen weights; gradients still flow to its inputs.

        slot: "received", a slot of the client's memories, or a name under which the server sent
        weights. norm: normalise by batch statistics or by the running ones. Call it through `once`.
        Dropout and similar layers are in evaluation mode, so a teacher leaves the draws of the
        trained model unchanged. With norm "batch" it updates the running statistics of its own
        scratch copy, which are never read. A batch norm that the model keeps in evaluation mode, by
        a `train` of its own, normalises by running ones here as well.
        """
        weights = self.received
        if slot != "received":
            weights = {**self.received, **self._weights_of(slot)}
        chain = self.model_pool.load_frozen(f"frozen {slot} {norm}", weights)
        chain.requires_grad_(False).train()
        by_batch = [m for m in chain.modules() if isinstance(m, BATCH_NORMS) and m.training]
        chain.eval()
        for layer in by_batch:
            layer.train(norm == "batch")
        return chain

    def _weights_of(self, slot: str) -> Mapping[str, Tensor]:
        return self.memories[slot] if slot in self.memories else self.shared[slot]
