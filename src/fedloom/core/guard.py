"""Checks every reply before the server uses it: names, shapes, types, values, sample counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedloom.core.errors import RunError
from fedloom.core.server import Reply

_NOT_FINITE = "is not finite"
_MAX_REASONS_SHOWN = 5


@dataclass(frozen=True)
class Guard:
    """What a reply must look like.

    min_replies   valid replies that a round needs; with fewer, the run stops.
    max_samples   samples that a client may claim to hold.
    """

    min_replies: int = 1
    max_samples: float = 1e8

    def validate(
        self,
        replies: Iterable[Reply],
        like: Mapping[str, Mapping[str, Tensor]],
        asked: Iterable[int],
    ) -> tuple[list[Reply], dict[int, str]]:
        """The valid replies in client order, and for each other client why its reply is rejected.

        like: tensors of the expected names, shapes and types, by upload. asked: the clients that
        were asked. Raises RunError if fewer than min_replies replies are valid.
        """
        valid, rejected, waiting = [], {}, set(asked)
        for reply in sorted(replies, key=lambda r: r.client):
            if reply.client in waiting:
                problem = self.problem(reply, like)
            else:
                problem = "was not asked, or has answered already"
            waiting.discard(reply.client)
            if problem is None:
                valid.append(reply)
            else:
                rejected[reply.client] = problem
        if len(valid) < self.min_replies:
            raise RunError(_too_few(len(valid), self.min_replies, rejected))
        return valid, rejected

    def problem(self, reply: Reply, like: Mapping[str, Mapping[str, Tensor]]) -> str | None:
        """Why the reply cannot be used, or None."""
        for count in ("samples", "seen"):
            value = getattr(reply, count)
            if not (math.isfinite(value) and 0 < value <= self.max_samples):
                return f"{count}={value} must be above 0 and at most {self.max_samples:g}"
        if set(reply.uploads) != set(like):
            return f"uploads are {sorted(reply.uploads)}, expected {sorted(like)}"
        for name, upload in reply.uploads.items():
            if (problem := _upload_problem(upload, like[name])) is not None:
                return f"upload '{name}': {problem}"
        for slot, memory in reply.memories.items():
            if (not_finite := _first_not_finite(memory)) is not None:
                return f"memory '{slot}': tensor '{not_finite}' {_NOT_FINITE}"
        return None


def _too_few(valid: int, needed: int, rejected: Mapping[int, str]) -> str:
    """The message of a round with too few valid replies."""
    reasons = [f"client {client}: {why}" for client, why in rejected.items()]
    shown = "; ".join(reasons[:_MAX_REASONS_SHOWN])
    if rejected and valid == 0 and all(why.endswith(_NOT_FINITE) for why in rejected.values()):
        return (
            f"training diverged: every update contains NaN or Inf ({shown}); "
            "lower train.lr or set train.clip"
        )
    return (
        f"only {valid} of {valid + len(rejected)} replies in this round are valid, but "
        f"guard.min_replies={needed} ({shown}); "
        "lower train.lr, set train.clip, or check these clients' data"
    )


def _upload_problem(upload: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> str | None:
    if set(upload) != set(like):
        differing = sorted(set(upload) ^ set(like))
        return f"tensor names differ from the model's at {differing[:3]}"
    for name, t in upload.items():
        expected = like[name]
        if t.shape != expected.shape or t.dtype != expected.dtype:
            return (
                f"tensor '{name}' is {t.dtype} {tuple(t.shape)}, "
                f"expected {expected.dtype} {tuple(expected.shape)}"
            )
    not_finite = _first_not_finite(upload)
    return None if not_finite is None else f"tensor '{not_finite}' {_NOT_FINITE}"


def _first_not_finite(params: Mapping[str, Tensor]) -> str | None:
    """The first tensor that contains NaN or Inf, or None."""
    names = [n for n, t in params.items() if t.is_floating_point()]
    # a sum is not finite if one of its terms is not, so one number usually clears all tensors
    if not names or math.isfinite(torch.stack([params[n].sum() for n in names]).sum().item()):
        return None
    return next((n for n in names if not bool(torch.isfinite(params[n]).all())), None)
