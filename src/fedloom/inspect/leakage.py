"""Leakage of a finished run: what the averages that it exchanged reveal about its clients' samples.

The attacks are those of diagnostics/leakage.py, at the run's last checkpoint. Half of the test data
belong to the attacker; the other half are the samples that are in no average ("others").

A run does not store averages of hidden states, which it sends every round. They are computed once
more, at the last weights, and compared with the hidden states of samples under the same weights:
anyone who receives the averages has these weights too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.exchange_in_round import ask_every_round
from fedloom.core.job import build_isolated
from fedloom.core.key import Key
from fedloom.core.params import Params
from fedloom.data.averages_plot import denormalised
from fedloom.data.client import ClientData, place
from fedloom.diagnostics.leakage import AttackResult, TracingAttacker, attack, leakage_figures
from fedloom.exchange.averaged_data_exchange import NAME
from fedloom.exchange.averaged_features import TransformedData
from fedloom.exchange.group_means import clipped
from fedloom.experiment.reopen import ReopenedRun

MAX_MEMBERS = 2000  # attacked samples per client, and as many others
MAX_COORDINATES = 4096  # of hidden states; if they have more, a random choice
SERVER = -1  # the owner of averages that the server has mixed


def has_averages(run: ReopenedRun) -> bool:
    """Whether the run stores averages, or its clients can compute them again."""
    exchanges = run.prepared.simulation.federation.method.prologue
    return NAME in run.state.shared or any(e.every_round and e.name == NAME for e in exchanges)


def measure_leakage(run: ReopenedRun, key: Key) -> dict[str, Any]:
    """PSNR, SSIM and AUC over all clients that sent averages.

    block: the last block of the encoder if the averages are of hidden states, else None. Averages
    that the server has mixed are compared with the data of all clients.
    """
    target = _Target(run, key)
    if run.prepared.dataset.kind == "text" and not target.of_hidden_states:
        raise UserError("leakage of averaged text cannot be measured; leave out the part 'leak'")
    owners = sorted(set(target.averages["owner"].tolist()))
    figures: dict[str, Any] = leakage_figures([target.attack(owner) for owner in owners])
    figures["auc"] = {
        attack: {"value": auc["value"], "standard_error": auc["error"]}
        for attack, auc in figures["auc"].items()
    }
    return {"block": target.block if target.of_hidden_states else None, **figures}


@dataclass(frozen=True)
class _Target:
    """A run under attack. What the attacks on several clients share is computed once."""

    run: ReopenedRun
    key: Key

    @property
    def of_hidden_states(self) -> bool:
        """Whether the averages are of hidden states rather than of samples."""
        return NAME not in self.run.state.shared

    @property
    def of_images(self) -> bool:
        """Whether the averages are images."""
        return self.run.prepared.dataset.kind == "image" and not self.of_hidden_states

    @cached_property
    def averages(self) -> Params:
        """The averages "x" of all clients, and the client that sent each of them, "owner"."""
        if not self.of_hidden_states:
            return self.run.state.shared[NAME]
        simulation = self.run.prepared.simulation
        state = replace(self.run.state, round=self.run.round)
        asked = ask_every_round(simulation.federation, simulation.ask, state, self.run.store, ())
        answers = asked.shared[NAME]
        return {**answers, "x": self.select_coordinates(answers["x"])}

    @cached_property
    def all_data(self) -> ClientData:
        """The data of all clients together."""
        clients = self.run.prepared.clients
        return ClientData(clients.split, clients.rows, clients.normalise)

    @cached_property
    def test_halves(self) -> tuple[ClientData, ClientData]:
        """The test data that the attacker has, and those that are candidates for "others"."""
        device, normalise = self.all_data.rows.device, self.all_data.normalise
        test = place(self.run.prepared.dataset.test, device)
        order = torch.randperm(len(test), generator=self.key.fold("halves").generator()).to(device)
        half = len(order) // 2
        return ClientData(test, order[:half], normalise), ClientData(test, order[half:], normalise)

    @cached_property
    def attacker(self) -> TracingAttacker:
        """The same for all clients; knows how the averages were made."""
        samples_per_average = len(self.all_data) / len(self.averages["owner"])
        noise = self.setting("noise") or 0.0
        samples = clipped(self.inputs(self.test_halves[0]), self.clip).cpu()
        return TracingAttacker.fit(samples, samples_per_average * noise**2)

    @property
    def clip(self) -> float | None:
        bound: float | None = self.setting("clip")
        return bound

    @property
    def block(self) -> str:
        """The last block of the encoder."""
        return str(self.setting("at"))

    def setting(self, name: str) -> Any:
        """A parameter of the exchange; None if the run does not set it."""
        for spec in self.run.prepared.config.method_specs:
            if name in spec.args:
                return spec.args[name]
        return None

    @cached_property
    def chain(self) -> Chain:
        build = self.run.prepared.simulation.federation.build
        return build_isolated(build).requires_grad_(False).eval()

    def encoder(self, owner: int) -> Chain:
        """The model with the client's private weights, or with the server's weights only."""
        private = self.run.store.recall(owner).get("private", {}) if owner != SERVER else {}
        self.chain.load_state_dict({**self.run.state.params, **private})
        return self.chain

    def select_coordinates(self, states: Tensor) -> Tensor:
        """Hidden states as rows of at most MAX_COORDINATES numbers, the same ones for all."""
        flat = states.flatten(1)
        order = torch.randperm(flat.shape[1], generator=self.key.fold("coordinates").generator())
        selected = order[:MAX_COORDINATES].sort().values
        return flat[:, selected.to(flat.device)]

    def inputs(
        self, data: ClientData, positions: Tensor | None = None, owner: int = SERVER
    ) -> Tensor:
        """Samples in the form that clients average: normalised, or encoded to hidden states."""
        positions = torch.arange(len(data)) if positions is None else positions
        if not self.of_hidden_states:
            return data.batch(positions, train=False)[0]
        encoder = self.encoder(owner)

        def encode(x: Tensor) -> Tensor:
            states = encoder.run(x, until=self.block)
            return self.select_coordinates(clipped(states, self.clip))

        return TransformedData(data, encode).batch(positions, train=False)[0]

    def attack(self, owner: int) -> tuple[AttackResult, AttackResult]:
        """The averages of a client against its members, and against others."""
        members = self.all_data if owner == SERVER else self.run.prepared.clients[owner]
        others = self.test_halves[1]
        positions = matched(members.labels, others.labels, self.key.fold(owner))
        averages = self.averages["x"][self.averages["owner"] == owner].cpu()
        samples_per_average = len(members) / len(averages)
        both = [
            self.inputs(data, chosen, owner).cpu()
            for data, chosen in zip((members, others), positions, strict=True)
        ]
        peak = 1.0 if self.of_images else float(both[1].max() - both[1].min())
        visible = self.as_pixels(averages)
        of_members, of_others = (
            attack(
                visible,
                self.as_pixels(samples),
                self.attacker.scores(averages, clipped(samples, self.clip), samples_per_average),
                peak,
            )
            for samples in both
        )
        return of_members, of_others

    def as_pixels(self, x: Tensor) -> Tensor:
        """Images without normalisation, as one would look at them; everything else unchanged."""
        if not self.of_images:
            return x
        return denormalised(self.all_data.normalise, x.to(self.all_data.rows.device)).cpu()


def matched(members: Tensor, others: Tensor, key: Key) -> tuple[Tensor, Tensor]:
    """Positions of equally many members and others, with equal numbers of each class.

    members, others: labels. The choice is drawn from the key. Raises UserError if they have no
    class in common.
    """
    member_order, other_order = (
        torch.randperm(len(labels), generator=key.fold(number).generator())
        for number, labels in enumerate((members, others))
    )
    share = min(1.0, MAX_MEMBERS / len(members))
    chosen_members, chosen_others = [], []
    for c in sorted(set(members.tolist()) & set(others.tolist())):
        members_of_class = member_order[members[member_order] == c]
        others_of_class = other_order[others[other_order] == c]
        count = min(len(others_of_class), max(1, int(share * len(members_of_class))))
        chosen_members.append(members_of_class[:count])
        chosen_others.append(others_of_class[:count])
    if not chosen_members:
        raise UserError(
            "the test data have no sample of a client's classes, so there is nothing to compare "
            "with; leave out the part 'leak'"
        )
    return torch.cat(chosen_members), torch.cat(chosen_others)
