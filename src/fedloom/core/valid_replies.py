"""Checks every reply before the server uses it, and the server's state after it has used them.

A reply may come from anywhere: another process, another machine, a client that is broken or lies.
Nothing about its types, names, shapes, values or counts is taken for granted here. A reply that
fails a check is left out, and the reason is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.errors import shortened, shown
from fedloom.core.federation import Federation
from fedloom.core.guard import Guard
from fedloom.core.job import Data
from fedloom.core.method import Method
from fedloom.core.params import Params
from fedloom.core.roles import Roles
from fedloom.core.server import Absent, Reply
from fedloom.core.state import ServerState
from fedloom.core.tensor_checks import (
    NOT_FINITE,
    first_not_finite,
    form_problems,
    norm_of,
    norm_problem,
    type_problems,
)

MAX_STEPS = 10**9  # local steps that a client may claim to have made in a round


@dataclass(frozen=True)
class ValidReplies:
    """What is known of valid replies before any client is asked.

    uploads    tensors of the expected names, shapes and types, by upload.
    slots      tensors like those that a client remembers in a slot, for the slots that hold
               weights; memories in other slots only have to be finite tensors.
    sizes      samples per client.
    weights    names of the model's weights. Statistics, which are not among them, may be as large
               as the square of the bound: a variance is the square of an activation.
    max_norm   bound on the norm of the weights in an upload.
    """

    uploads: Mapping[str, Mapping[str, Tensor]]
    slots: Mapping[str, Mapping[str, Tensor]]
    sizes: Sequence[int]
    weights: Collection[str]
    max_norm: float

    def split(
        self,
        answers: Iterable[tuple[int, Any]],
        asked: Iterable[int],
        keep: Callable[[Reply], Reply] = lambda reply: reply,
    ) -> tuple[list[Reply], dict[int, str]]:
        """The valid replies in client order, and for every other client why it has none.

        answers: by the client that was asked. asked: all clients that were. keep: the reply in the
        form in which it waits for the others; called as soon as it has come and was found valid.
        """
        valid, rejected, waiting = list[Reply](), dict[int, str](), set(asked)
        for client, answer in answers:
            if client in waiting:
                problem = self.problem(client, answer)
            else:
                problem = "it was not asked, or has answered already"
            waiting.discard(client)
            if problem is None:
                valid.append(keep(answer))
            else:
                rejected[client] = shortened(problem)
            del answer  # or it would be in memory while the next client is running
        in_order = {client: rejected[client] for client in sorted(rejected)}
        valid.sort(key=lambda reply: reply.client)
        return valid, {**in_order, **dict.fromkeys(sorted(waiting), "it gave no answer")}

    def problem(self, client: int, reply: Any) -> str | None:
        """Why the answer of this client cannot be used, or None."""
        if isinstance(reply, Absent):
            return reply.reason
        if not isinstance(reply, Reply):
            return f"it sent a {type(reply).__name__}, not a reply"
        return next(self._problems(client, reply), None)

    def _problems(self, client: int, reply: Reply) -> Iterator[str]:
        if not _is_whole(reply.client) or reply.client != client:
            yield f"it claims to be client {shown(reply.client)}"
        for count in ("samples", "seen"):
            value, held = getattr(reply, count), self.sizes[client]
            if not (_is_whole(value) and 0 < value <= held):
                yield f"{count}={shown(value)} must be from 1 to {held}, the samples it holds"
        if not (_is_whole(reply.steps) and 0 <= reply.steps <= MAX_STEPS):
            yield f"steps={shown(reply.steps)} must be from 0 to {MAX_STEPS}"
        if not isinstance(reply.loss, float):  # which may be NaN
            yield f"loss={shown(reply.loss)} is not a floating-point number"
        yield from self._upload_problems(reply.uploads)
        yield from self._memory_problems(reply.memories)

    def _upload_problems(self, uploads: Any) -> Iterator[str]:
        if not isinstance(uploads, Mapping) or set(uploads) != set(self.uploads):
            names = sorted(map(str, uploads)) if isinstance(uploads, Mapping) else shown(uploads)
            yield f"uploads are {names}, expected {sorted(self.uploads)}"
            return
        for name, like in self.uploads.items():
            for problem in self._tensor_problems(uploads[name], like):
                yield f"upload '{name}': {problem}"

    def _memory_problems(self, memories: Any) -> Iterator[str]:
        if not isinstance(memories, Mapping):
            yield f"memories are {shown(memories)}, not a mapping of slots"
            return
        for slot, memory in memories.items():
            like = self.slots.get(slot)
            problems = form_problems(memory, like) if like is not None else type_problems(memory)
            for problem in problems:
                yield f"memory '{slot}': {problem}"
            if (name := first_not_finite(memory)) is not None:
                yield f"memory '{slot}': tensor '{name}' {NOT_FINITE}"

    def _tensor_problems(self, params: Any, like: Mapping[str, Tensor]) -> Iterator[str]:
        yield from form_problems(params, like)
        problem = norm_problem(params, self.weights.__contains__, self.max_norm)
        if problem is not None:
            yield problem

    def state_problem(self, state: ServerState) -> str | None:
        """Why the server's new state must not be used, or None.

        All of it must be finite, and the model within the same bound as an update.
        """
        problem = norm_problem(state.params, self.weights.__contains__, self.max_norm)
        if problem is not None:
            return f"the aggregated model: {problem}"
        groups = {f"'{name}', which is sent to clients": g for name, g in state.shared.items()}
        for stage, memory in state.memory.items():
            groups |= {f"memory '{name}' of stage '{stage}'": g for name, g in memory.items()}
        for what, group in groups.items():
            if (name := first_not_finite(group)) is not None:
                return f"{what}: tensor '{name}' {NOT_FINITE}"
        return None


def valid_replies(
    federation: Federation, guard: Guard, chain: Chain, state: ServerState
) -> ValidReplies:
    """What valid replies look like in every round of a run.

    chain: the federation's model with its initial weights.
    """
    method, roles = federation.method, Roles.of(chain)
    private = method.private(chain)
    named = {slot for phase in method.phases for slot in (phase.slot, *phase.makes)}
    trained = {n: t for n, t in state.params.items() if n not in roles.frozen}
    slots = dict.fromkeys(named - {"model"}, trained)
    if private:
        slots["private"] = {n: t for n, t in trained.items() if n in private}
    return ValidReplies(
        uploads=expected_uploads(method, chain, state),
        slots=slots,
        sizes=client_sizes(federation.clients),
        weights=roles.weights,
        max_norm=guard.max_norm * max(1.0, norm_of(chain.state_dict(), roles.weights)),
    )


def client_sizes(clients: Sequence[Data]) -> list[int]:
    """Samples per client, without making a million views of clients that know their sizes."""
    sizes = getattr(clients, "sizes", None)
    return [len(c) for c in clients] if sizes is None else sizes.tolist()


def expected_uploads(method: Method, chain: Chain, state: ServerState) -> dict[str, Params]:
    """Tensors of the names, shapes and types that uploads must have.

    "model" has all tensors that are neither private nor frozen; the other uploads have the weights
    among them.
    """
    roles = Roles.of(chain)
    kept = method.private(chain) | roles.frozen
    shown = {n: t for n, t in state.params.items() if n not in kept}
    other = {n: t for n, t in shown.items() if n in roles.weights}
    return {"model": shown, **{name: other for name in method.sends}}


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
