"""Every reply is looked at before it may touch the model: finite, of the right names, shapes and types, with a sane weight."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedloom.core.errors import RunError
from fedloom.core.server import Reply


@dataclass(frozen=True)
class Guard:
    """What a reply must look like. min_replies: how many sound replies a round needs. max_samples: samples a client may claim."""

    min_replies: int = 1
    max_samples: float = 1e8

    def validate(
        self,
        replies: Iterable[Reply],
        like: Mapping[str, Mapping[str, Tensor]],
        asked: Iterable[int],
    ) -> tuple[list[Reply], dict[int, str]]:
        """The sound replies in client order, and for each of the others why it was left out."""
        sound, refused, waiting = [], {}, set(asked)
        for reply in sorted(replies, key=lambda r: r.client):
            expected = reply.client in waiting
            why = (
                self.complaint(reply, like)
                if expected
                else "was not asked, or has answered already"
            )
            waiting.discard(reply.client)
            if why is None:
                sound.append(reply)
            else:
                refused[reply.client] = why
        if len(sound) < self.min_replies:
            reasons = "; ".join(f"client {c}: {why}" for c, why in list(refused.items())[:5])
            raise RunError(f"only {len(sound)} sound replies in this round, and at min_replies {self.min_replies} are needed ({reasons}); "
                           "lower the learning rate, set a gradient clip (train.clip), or look at these clients' data")  # fmt: skip
        return sound, refused

    def complaint(self, reply: Reply, like: Mapping[str, Mapping[str, Tensor]]) -> str | None:
        """Why the reply cannot be used, or None."""
        for what in ("samples", "seen"):
            weight = getattr(reply, what)
            if not (math.isfinite(weight) and 0 < weight <= self.max_samples):
                return f"{what} is {weight}, and must lie above 0 and at most {self.max_samples:g}"
        if set(reply.uploads) != set(like):
            return f"uploads are {sorted(reply.uploads)}, expected {sorted(like)}"
        for name, upload in reply.uploads.items():
            if (why := _mismatch(upload, like[name])) is not None:
                return f"upload '{name}': {why}"
        for slot, memory in reply.memories.items():
            if (odd := _not_finite(memory)) is not None:
                return f"memory '{slot}': tensor '{odd}' is not finite"
        return None


def _mismatch(upload: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> str | None:
    if set(upload) != set(like):
        odd = sorted(set(upload) ^ set(like))
        return f"tensor names differ from the model's at {odd[:3]}"
    for name, t in upload.items():
        if t.shape != like[name].shape or t.dtype != like[name].dtype:
            return f"tensor '{name}' is {t.dtype} {tuple(t.shape)}, expected {like[name].dtype} {tuple(like[name].shape)}"
    odd_one = _not_finite(upload)
    return None if odd_one is None else f"tensor '{odd_one}' is not finite"


def _not_finite(params: Mapping[str, Tensor]) -> str | None:
    """The first tensor with a value that is not finite. A sum is not finite if a term is not, so one number clears them all."""
    names = [n for n, t in params.items() if t.is_floating_point()]
    if not names or math.isfinite(torch.stack([params[n].sum() for n in names]).sum().item()):
        return None
    return next((n for n in names if not bool(torch.isfinite(params[n]).all())), None)
