"""Methods as their papers write them: float64, plain loops, whole models instead of changes.

Nothing here uses fedloom's stages, solver or round. Only the random draws (which clients, which
batches) come from the same key paths.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedloom.core.key import Key
from fedloom.core.sampler import Sampler
from support.clients import TensorClient
from support.models import Build

State = dict[str, Tensor]
Pull = Callable[[str, Tensor], Tensor | float]  # what a method adds to the gradient of the loss
Server = Callable[[State, State], State]  # (sent, mean) -> next


def model_cross_entropy(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy."""
    logits = model(x)
    return (torch.logsumexp(logits, 1) - logits[range(len(y)), y]).mean()


@dataclass(frozen=True)
class World:
    """The settings of a run, and the random draws that fedloom and the oracle share."""

    build: Build
    clients: list[TensorClient]
    key: Key
    sampler: Sampler
    lr: float = 0.1
    batch: int = 4
    epochs: int = 2
    drop_last: bool = False
    loss: Callable[[nn.Module, Tensor, Tensor], Tensor] = model_cross_entropy

    def cohort(self, t: int) -> list[int]:
        return self.sampler(t, self.key.fold("cohort", t), [len(c) for c in self.clients])

    def batches(self, t: int, client: int, branch: str = "round") -> Iterator[list[int]]:
        size = len(self.clients[client])
        smallest = 2 if any(isinstance(m, nn.BatchNorm1d) for m in self.build().modules()) else 1
        for epoch in range(self.epochs):
            path = self.key.fold(branch, t, "client", client, "phase", 0, "epoch", epoch)
            order = torch.randperm(size, generator=path.generator()).tolist()
            for first in range(0, size, self.batch):
                batch = order[first : first + self.batch]
                if len(batch) >= (self.batch if self.drop_last else smallest):
                    yield batch

    def weights(self) -> list[str]:
        return [name for name, _ in self.build().named_parameters()]


def train(
    world: World,
    t: int,
    client: int,
    start: State,
    pull: Pull = lambda name, w: 0.0,
    loss: Callable[[nn.Module, Tensor, Tensor], Tensor] | None = None,
    branch: str = "round",
) -> tuple[State, int]:
    """One client's SGD: the final model and the number of steps."""
    model, data, steps = world.build(), world.clients[client], 0
    model.load_state_dict(start)
    for batch in world.batches(t, client, branch):
        model.zero_grad()
        (loss or world.loss)(model, data.x[batch], data.y[batch]).backward()
        with torch.no_grad():
            for name, w in model.named_parameters():
                w -= world.lr * (w.grad + pull(name, w))
        steps += 1
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}, steps


def mean(states: list[State], weights: list[int]) -> State:
    """The weighted mean of whole models; counters are truncated, in exact arithmetic."""
    total, result = sum(weights), {}
    for name, like in states[0].items():
        if like.is_floating_point():
            result[name] = sum(w * s[name] for w, s in zip(weights, states, strict=True)) / total
        else:
            result[name] = torch.full_like(
                like, sum(w * int(s[name]) for w, s in zip(weights, states, strict=True)) // total
            )
    return result


def size_of(world: World, client: int, by: str) -> int:
    size = len(world.clients[client])
    return {"samples": size, "clients": 1, "seen": size // world.batch * world.batch}[by]


def fedavg(
    world: World,
    first: State,
    rounds: int,
    by: str = "samples",
    mu: float = 0.0,
    server: Server | None = None,
) -> State:
    """FedAvg (McMahan, algorithm 1), with FedProx's proximal term (Li, eq. 2) and a server rule."""
    sent = first
    for t in range(rounds):
        finals, weights = [], []
        for client in world.cohort(t):
            anchor = sent
            final, _ = train(
                world, t, client, sent, lambda name, w, anchor=anchor: mu * (w - anchor[name])
            )
            finals.append(final)
            weights.append(size_of(world, client, by))
        average = mean(finals, weights)
        sent = server(sent, average) if server else average
    return sent


def momentum(world: World, beta: float, lr: float = 1.0) -> Server:
    """FedAvgM (Hsu): m = beta m + D, w = w + lr m, on weights; statistics are averaged."""
    m: State = {}

    def step(sent: State, average: State) -> State:
        after = dict(average)
        for name in world.weights():
            m[name] = beta * m.get(name, 0.0) + (average[name] - sent[name])
            after[name] = sent[name] + lr * m[name]
        return after

    return step


def adaptive(world: World, kind: str, lr: float, beta1: float, beta2: float, tau: float) -> Server:
    """FedAdam and FedYogi (Reddi, algorithm 2), v_0 = tau^2."""
    m: State = {}
    v: State = {}

    def step(sent: State, average: State) -> State:
        after = dict(average)
        for name in world.weights():
            delta = average[name] - sent[name]
            square, old = delta * delta, v.get(name, torch.full_like(delta, tau * tau))
            m[name] = beta1 * m.get(name, torch.zeros_like(delta)) + (1 - beta1) * delta
            grown = beta2 * old + (1 - beta2) * square
            v[name] = (
                grown if kind == "adam" else old - (1 - beta2) * square * torch.sign(old - square)
            )
            after[name] = sent[name] + lr * m[name] / (torch.sqrt(v[name]) + tau)
        return after

    return step


def scaffold(
    world: World, first: State, rounds: int, server: Server | None = None, lr: float = 1.0
) -> State:
    """SCAFFOLD (Karimireddy, algorithm 1, option II)."""
    names, population, sent = world.weights(), len(world.clients), first
    c: State = {n: torch.zeros_like(first[n]) for n in names}
    own = [dict(c) for _ in range(population)]
    for t in range(rounds):
        finals, change = [], {n: torch.zeros_like(first[n]) for n in names}
        for client in world.cohort(t):
            memories, common = own[client], c
            final, k = train(
                world,
                t,
                client,
                sent,
                lambda name, w, memories=memories, common=common: common[name] - memories[name],
            )
            fresh = {n: memories[n] - c[n] + (sent[n] - final[n]) / (k * world.lr) for n in names}
            change = {n: change[n] + fresh[n] - memories[n] for n in names}
            own[client] = fresh
            finals.append(final)
        average = mean(finals, [1] * len(finals))
        scaled = average | {n: sent[n] + lr * (average[n] - sent[n]) for n in names}
        sent = server(sent, average) if server else scaled
        c = {n: c[n] + change[n] / population for n in names}
    return sent


Objective = Callable[
    ["World", int, int, State, State], Callable[[nn.Module, Tensor, Tensor], Tensor]
]


def feddyn(
    world: World,
    first: State,
    rounds: int,
    alpha: float,
    mu: float = 0.0,
    objective: Objective = lambda world, *scene: world.loss,
) -> State:
    """FedDyn in its authors' second form, with drift sums of ALL clients instead of h.

    w = mean_S w_k + mean_N sums_k, g_k = -alpha sums_k.
    """
    names, sent = world.weights(), first
    sums = [{n: torch.zeros_like(first[n]) for n in names} for _ in world.clients]
    for t in range(rounds):
        finals = []
        for client in world.cohort(t):
            memories, anchor = sums[client], sent

            def pull(
                n: str, w: Tensor, memories: State = memories, anchor: State = anchor
            ) -> Tensor:
                return alpha * memories[n] + (alpha + mu) * (w - anchor[n])

            final, _ = train(world, t, client, sent, pull, objective(world, t, client, sent, sent))
            sums[client] = {n: memories[n] + final[n] - sent[n] for n in names}
            finals.append(final)
        average = mean(finals, [1] * len(finals))
        sent = average | {n: average[n] + sum(s[n] for s in sums) / len(sums) for n in names}
    return sent


def fedavg_with_private(
    world: World, first: State, rounds: int, private: frozenset[str]
) -> tuple[State, list[State]]:
    """FedAvg on all but the private tensors, which stay with each client (FedBN, LG-FedAvg).

    Returns the server's model and each client's.
    """
    sent, own = first, [{n: first[n] for n in private} for _ in world.clients]
    for t in range(rounds):
        finals, cohort = [], world.cohort(t)
        for client in cohort:
            final, _ = train(world, t, client, sent | own[client])
            own[client] = {n: final[n] for n in private}
            finals.append(final)
        average = mean(finals, [len(world.clients[c]) for c in cohort])
        sent = {n: sent[n] if n in private else average[n] for n in sent}
    return sent, [sent | memories for memories in own]
