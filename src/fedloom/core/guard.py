"""Checks every reply before the server uses it, and the server's state after it has used them.

A reply may come from anywhere: another process, another machine, a client that is broken or lies.
Nothing about its types, names, shapes, values or counts is taken for granted here. A reply that
fails a check is left out, and the reason is recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedloom.core.errors import shortened, shown
from fedloom.core.params import Params
from fedloom.core.server import Absent, Reply
from fedloom.core.state import ServerState

MAX_STEPS = 10**9  # local steps that a client may claim to have made in a round


@dataclass(frozen=True)
class Guard:
    """Which replies are valid, and what happens to a round with too few of them.

    min_replies   valid replies that a round needs; a round with fewer is skipped.
    max_skipped   rounds in a row that may be skipped; with one more, the run stops.
    max_norm      bound on the norm of an update and of the model, in units of the norm of the
                  initial weights (or of 1, if that is larger).
    timeout       seconds that a client may take; None: no limit.
    strict        stop the run at the first reply that is not valid.
    """

    min_replies: int = 1
    max_skipped: int = 5
    max_norm: float = 1e4
    timeout: float | None = None
    strict: bool = False


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
        self, answers: Iterable[tuple[int, Any]], asked: Iterable[int]
    ) -> tuple[list[Reply], dict[int, str]]:
        """The valid replies in client order, and for every other client why it has none.

        answers: by the client that was asked. asked: all clients that were.
        """
        valid, rejected, waiting = [], dict[int, str](), set(asked)
        for client, answer in sorted(answers, key=lambda pair: pair[0]):
            if client in waiting:
                problem = self.problem(client, answer)
            else:
                problem = "it was not asked, or has answered already"
            waiting.discard(client)
            if problem is None:
                valid.append(answer)
            else:
                rejected[client] = shortened(problem)
        return valid, {**rejected, **dict.fromkeys(sorted(waiting), "it gave no answer")}

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
        if not isinstance(reply.loss, float | int) or isinstance(reply.loss, bool):
            yield f"loss={shown(reply.loss)} is not a number"
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
            problems = _form_problems(memory, like) if like is not None else _type_problems(memory)
            for problem in problems:
                yield f"memory '{slot}': {problem}"
            if (name := first_not_finite(memory)) is not None:
                yield f"memory '{slot}': tensor '{name}' is not finite"

    def _tensor_problems(self, params: Any, like: Mapping[str, Tensor]) -> Iterator[str]:
        yield from _form_problems(params, like)
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
            groups |= {f"the memory of stage '{stage}'": g for g in memory.values()}
        for what, group in groups.items():
            if (name := first_not_finite(group)) is not None:
                return f"{what}: tensor '{name}' is not finite"
        return None


def too_few(valid: int, needed: int, rejected: Mapping[int, str]) -> str:
    """Why a round with this many valid replies is skipped."""
    total = valid + len(rejected)
    if rejected and valid == 0 and all(why.endswith("is not finite") for why in rejected.values()):
        return (
            f"training diverged: every update contains NaN or Inf ({_reasons(rejected)}); "
            "lower train.lr or set train.clip"
        )
    return (
        f"only {valid} of {total} replies are valid, and guard.min_replies={needed} "
        f"({_reasons(rejected)})"
    )


def _reasons(rejected: Mapping[int, str], most: int = 3) -> str:
    reasons = [f"client {client}: {why}" for client, why in rejected.items()]
    more = [f"and {len(reasons) - most} more"] if len(reasons) > most else []
    return "; ".join([*reasons[:most], *more])


# ------------------------------------------------------------------ tensors


def _type_problems(params: Any) -> Iterator[str]:
    """What is not a mapping of names to plain tensors."""
    if not isinstance(params, Mapping):
        yield f"it is a {type(params).__name__}, not a mapping of tensors"
        return
    for name, t in params.items():
        if not isinstance(name, str):
            yield f"the name {shown(name)} is not text"
        if not isinstance(t, Tensor):
            yield f"'{name}' is a {type(t).__name__}, not a tensor"
        elif t.layout != torch.strided or t.is_quantized or t.is_meta:
            yield f"tensor '{name}' is not a dense tensor"


def type_problem(params: Any) -> str | None:
    """Why this is not a mapping of names to plain tensors, or None."""
    return next(_type_problems(params), None)


def _form_problems(params: Any, like: Mapping[str, Tensor]) -> Iterator[str]:
    """What differs from the expected names, shapes and types."""
    yield from _type_problems(params)
    if set(params) != set(like):
        differing = sorted(map(str, set(params) ^ set(like)))
        yield f"tensor names differ from the model's at {differing[:3]}"
        return
    for name, expected in like.items():
        t = params[name]
        if t.shape != expected.shape or t.dtype != expected.dtype:
            yield (
                f"tensor '{name}' is {t.dtype} {tuple(t.shape)}, "
                f"expected {expected.dtype} {tuple(expected.shape)}"
            )


def norm_problem(
    params: Mapping[str, Tensor], is_weight: Callable[[str], bool], bound: float
) -> str | None:
    """Why tensors are not finite or too large, or None."""
    norms = _norms(params)
    squares = {True: 0.0, False: 0.0}
    for name, norm in norms.items():
        if not math.isfinite(norm) and not bool(torch.isfinite(params[name]).all()):
            return f"tensor '{name}' is not finite"
        squares[is_weight(name)] += norm * norm
    weights, statistics = math.sqrt(squares[True]), math.sqrt(squares[False])
    if not weights <= bound:
        return f"its norm is {weights:.3g}, and at most {bound:.3g} is accepted (guard.max_norm)"
    if not statistics <= bound * bound:
        return (
            f"the norm of its statistics is {statistics:.3g}, "
            f"and at most {bound * bound:.3g} is accepted (the square of guard.max_norm)"
        )
    return None


def first_not_finite(params: Mapping[str, Tensor]) -> str | None:
    """The first tensor that contains NaN or Inf, or None."""
    suspects = (name for name, norm in _norms(params).items() if not math.isfinite(norm))
    return next((n for n in suspects if not bool(torch.isfinite(params[n]).all())), None)


def norm_of(params: Params, names: Collection[str]) -> float:
    """The norm of these tensors together."""
    return math.sqrt(sum(n * n for name, n in _norms(params).items() if name in names))


def _norms(params: Mapping[str, Tensor]) -> dict[str, float]:
    """The norm of every floating-point tensor, in float64, with one transfer from the device.

    A norm is not finite if one of the values is not, and if the squares overflow.
    """
    names = [name for name, t in params.items() if t.is_floating_point() and t.numel()]
    if not names:
        return {}
    norms = torch.stack([n.double() for n in torch._foreach_norm([params[n] for n in names])])
    return dict(zip(names, norms.tolist(), strict=True))


# ------------------------------------------------------------------ values


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
