"""What the averages that a run exchanged show of its clients' data (diagnostics/leak.py), from the run's own checkpoint.

Half of the test data are the attacker's own, the other half are the samples that are in no average.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.params import Params
from fedloom.data.client import ClientData, place
from fedloom.data.gallery import pixels
from fedloom.diagnostics.leak import Attacker, Seen, leak, seen
from fedloom.exchange.mash import NAME, clipped
from fedloom.study.assemble import Study
from fedloom.study.replay import Reopened

MOST = 2000  # members of a client that are looked at, and as many others


def leaked(run: Reopened, key: Key) -> dict[str, Any]:
    """The figures over all clients that sent averages; what the server has mixed is held against the data of all."""
    if run.study.dataset.kind == "text":
        raise UserError("what averages of text show is not measured; leave out the part 'leak'")
    inquiry = _Inquiry(run.study, run.state.shared[NAME], key)
    return leak([inquiry.into(owner) for owner in sorted(set(inquiry.sent["owner"].tolist()))])


@dataclass(frozen=True)
class _Inquiry:
    study: Study
    sent: Params
    key: Key

    @cached_property
    def every(self) -> ClientData:
        """The data of all clients."""
        clients = self.study.clients
        return ClientData(clients.split, clients.rows, clients.normalise)

    @cached_property
    def halves(self) -> tuple[ClientData, ClientData]:
        """The test data that the attacker has, and those that are candidates."""
        device, normalise = self.every.rows.device, self.every.normalise
        test = place(self.study.dataset.test, device)
        order = torch.randperm(len(test), generator=self.key.fold("halves").generator()).to(device)
        half = len(order) // 2
        return ClientData(test, order[:half], normalise), ClientData(test, order[half:], normalise)

    @cached_property
    def attacker(self) -> Attacker:
        """One for all clients, who knows how the averages were made."""
        own = self.halves[0]
        size = len(self.every) / len(self.sent["owner"])
        return Attacker.of(clipped(_samples(own), self.setting("clip")).cpu(), size * (self.setting("noise") or 0.0) ** 2)

    def setting(self, name: str) -> float | None:
        """A parameter of the exchange, where the run has set it."""
        return next((word.args[name] for word in self.study.config.words if name in word.args), None)

    def into(self, owner: int) -> tuple[Seen, Seen]:
        """The averages of a client beside members and others."""
        members = self.study.clients[owner] if owner >= 0 else self.every
        ours, theirs = matched(members.labels, self.halves[1].labels, self.key.fold(owner))
        averages = self.sent["x"][self.sent["owner"] == owner].cpu()
        size = len(members) / len(averages)
        both = [_samples(members, ours).cpu(), _samples(self.halves[1], theirs).cpu()]
        traced = [self.attacker.scores(averages, clipped(x, self.setting("clip")), size) for x in both]
        shown = [pixels(self.every.normalise, x.to(self.every.rows.device)).cpu() for x in (averages, *both)]
        peak = 1.0 if self.study.dataset.kind == "image" else float(both[1].max() - both[1].min())
        first, second = (seen(shown[0], x, score, peak) for x, score in zip(shown[1:], traced, strict=True))
        return first, second


def _samples(data: ClientData, positions: Tensor | None = None) -> Tensor:
    return data.batch(torch.arange(len(data)) if positions is None else positions, train=False)[0]


def matched(ours: Tensor, theirs: Tensor, key: Key) -> tuple[Tensor, Tensor]:
    """Positions of as many members as others, of each class the same number, drawn from the key."""
    order = [torch.randperm(len(labels), generator=key.fold(n).generator()) for n, labels in enumerate((ours, theirs))]
    share = min(1.0, MOST / len(ours))
    mine, other = [], []
    for c in sorted(set(ours.tolist()) & set(theirs.tolist())):
        members, others = (o[labels[o] == c] for o, labels in zip(order, (ours, theirs), strict=True))
        count = min(len(others), max(1, int(share * len(members))))
        mine.append(members[:count])
        other.append(others[:count])
    if not mine:
        raise UserError("the test data have no sample of a client's classes, so nothing can be compared; leave out the part 'leak'")
    return torch.cat(mine), torch.cat(other)
