"""What the averages that a run exchanged show of its clients' data (diagnostics/leakage.py), from the run's own checkpoint.

Half of the test data are the attacker's own, the other half are the samples that are in no average. Averages of hidden states,
which a run sends every round and does not keep, are asked for once more, at the weights it ended with. They are held against the
hidden states of samples, by the same weights: whoever gets the averages has these too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.exchange import ask_every_round
from fedloom.core.job import build_isolated
from fedloom.core.key import Key
from fedloom.core.params import Params
from fedloom.data.averages_plot import denormalised
from fedloom.data.client import ClientData, place
from fedloom.diagnostics.leakage import AttackResult, TracingAttacker, attack, leakage_figures
from fedloom.exchange.averaged_data import NAME, clipped
from fedloom.exchange.averaged_features import TransformedData
from fedloom.experiment.reopen import ReopenedRun

MOST = 2000  # members of a client that are looked at, and as many others
COORDINATES = 4096  # of hidden states that have more; which ones is drawn


def known(run: ReopenedRun) -> bool:
    """Whether the run has averages to look at: kept, or such that clients give them again."""
    return NAME in run.state.shared or any(
        e.every_round and e.name == NAME for e in run.prepared.simulation.federation.method.prologue
    )


def leaked(run: ReopenedRun, key: Key) -> dict[str, Any]:
    """The figures over all clients that sent averages; what the server has mixed is held against the data of all."""
    inquiry = _Inquiry(run, key)
    if run.prepared.dataset.kind == "text" and not inquiry.hidden:
        raise UserError("what averages of text show is not measured; leave out the part 'leak'")
    found = leakage_figures(
        [inquiry.into(owner) for owner in sorted(set(inquiry.sent["owner"].tolist()))]
    )
    return {"block": inquiry.block if inquiry.hidden else None, **found}


@dataclass(frozen=True)
class _Inquiry:
    run: ReopenedRun
    key: Key

    @property
    def hidden(self) -> bool:
        """Whether the averages are of hidden states."""
        return NAME not in self.run.state.shared

    @cached_property
    def sent(self) -> Params:
        if not self.hidden:
            return self.run.state.shared[NAME]
        simulation, state = (
            self.run.prepared.simulation,
            replace(self.run.state, round=self.run.round),
        )
        answers = ask_every_round(
            simulation.federation, simulation.engine.map, state, self.run.store, ()
        ).shared[NAME]
        return {**answers, "x": self.some(answers["x"])}

    @cached_property
    def every(self) -> ClientData:
        """The data of all clients."""
        clients = self.run.prepared.clients
        return ClientData(clients.split, clients.rows, clients.normalise)

    @cached_property
    def halves(self) -> tuple[ClientData, ClientData]:
        """The test data that the attacker has, and those that are candidates."""
        device, normalise = self.every.rows.device, self.every.normalise
        test = place(self.run.prepared.dataset.test, device)
        order = torch.randperm(len(test), generator=self.key.fold("halves").generator()).to(device)
        half = len(order) // 2
        return ClientData(test, order[:half], normalise), ClientData(test, order[half:], normalise)

    @cached_property
    def attacker(self) -> TracingAttacker:
        """One for all clients, who knows how the averages were made."""
        size = len(self.every) / len(self.sent["owner"])
        return TracingAttacker.fit(
            clipped(self.samples(self.halves[0]), self.clip).cpu(),
            size * (self.setting("noise") or 0.0) ** 2,
        )

    @property
    def clip(self) -> float | None:
        bound: float | None = self.setting("clip")
        return bound

    @property
    def block(self) -> str:
        """The last block of the encoder."""
        return str(self.setting("at"))

    def setting(self, name: str) -> Any:
        """A parameter of the exchange, where the run has set it."""
        return next(
            (
                word.args[name]
                for word in self.run.prepared.config.method_specs
                if name in word.args
            ),
            None,
        )

    @cached_property
    def chain(self) -> Chain:
        return (
            build_isolated(self.run.prepared.simulation.federation.build)
            .requires_grad_(False)
            .eval()
        )

    def encoder(self, owner: int) -> Chain:
        """The model as the client has it, or as the server has."""
        own = self.run.store.recall(owner).get("private", {}) if owner >= 0 else {}
        self.chain.load_state_dict({**self.run.state.params, **own})
        return self.chain

    def some(self, states: Tensor) -> Tensor:
        """Rows of the coordinates that are looked at."""
        flat = states.flatten(1)
        order = torch.randperm(flat.shape[1], generator=self.key.fold("coordinates").generator())[
            :COORDINATES
        ]
        return flat[:, order.sort().values.to(flat.device)]

    def samples(self, data: ClientData, positions: Tensor | None = None, owner: int = -1) -> Tensor:
        """As the client averages them: what the network sees, or what its encoder makes of that."""
        positions = torch.arange(len(data)) if positions is None else positions
        if not self.hidden:
            return data.batch(positions, train=False)[0]
        encoder = self.encoder(owner)
        view = TransformedData(
            data, lambda x: self.some(clipped(encoder.run(x, until=self.block), self.clip))
        )
        return view.batch(positions, train=False)[0]

    def into(self, owner: int) -> tuple[AttackResult, AttackResult]:
        """The averages of a client beside members and others."""
        members = self.run.prepared.clients[owner] if owner >= 0 else self.every
        ours, theirs = matched(members.labels, self.halves[1].labels, self.key.fold(owner))
        averages = self.sent["x"][self.sent["owner"] == owner].cpu()
        size = len(members) / len(averages)
        both = [
            self.samples(members, ours, owner).cpu(),
            self.samples(self.halves[1], theirs, owner).cpu(),
        ]
        traced = [self.attacker.scores(averages, clipped(x, self.clip), size) for x in both]
        images = self.run.prepared.dataset.kind == "image" and not self.hidden
        peak = 1.0 if images else float(both[1].max() - both[1].min())
        shown = [self.shown(x) for x in (averages, *both)]
        first, second = (
            attack(shown[0], x, score, peak) for x, score in zip(shown[1:], traced, strict=True)
        )
        return first, second

    def shown(self, x: Tensor) -> Tensor:
        """As eyes would see it."""
        return (
            x
            if self.hidden
            else denormalised(self.every.normalise, x.to(self.every.rows.device)).cpu()
        )


def matched(ours: Tensor, theirs: Tensor, key: Key) -> tuple[Tensor, Tensor]:
    """Positions of as many members as others, of each class the same number, drawn from the key."""
    order = [
        torch.randperm(len(labels), generator=key.fold(n).generator())
        for n, labels in enumerate((ours, theirs))
    ]
    share = min(1.0, MOST / len(ours))
    memories, other = [], []
    for c in sorted(set(ours.tolist()) & set(theirs.tolist())):
        members, others = (
            o[labels[o] == c] for o, labels in zip(order, (ours, theirs), strict=True)
        )
        count = min(len(others), max(1, int(share * len(members))))
        memories.append(members[:count])
        other.append(others[:count])
    if not memories:
        raise UserError(
            "the test data have no sample of a client's classes, so nothing can be compared; leave out the part 'leak'"
        )
    return torch.cat(memories), torch.cat(other)
