"""Personalised methods as their papers write them: the server's model and every client's."""

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import nn

from fedloom.core.key import Key
from support.oracles import Pull, Server, State, World, fedavg, mean

FinalModels = tuple[State, list[State]]
Batch = list[int]


def phase(world: World, t: int, client: int, number: int = 0, branch: str = "round") -> Key:
    """The key of one descent."""
    return world.key.fold(branch, t, "client", client, "phase", number)


def shuffled(labels: list[int], draws: torch.Generator) -> Batch:
    """Every sample once."""
    return torch.randperm(len(labels), generator=draws).tolist()


def class_balanced(labels: list[int], draws: torch.Generator) -> Batch:
    """As many draws as samples; samples of a class with n samples have weight 1/n."""
    weights = [1 / labels.count(y) for y in labels]
    return torch.multinomial(
        torch.tensor(weights, dtype=torch.float64), len(labels), replacement=True, generator=draws
    ).tolist()


def epochs(
    world: World,
    client: int,
    key: Key,
    size: int,
    order: Callable[[list[int], torch.Generator], Batch] = shuffled,
) -> Iterator[list[Batch]]:
    """Endless epochs of batches; with batch norm, batches of one sample are skipped."""
    labels = world.clients[client].y.tolist()
    least = 2 if any(isinstance(m, nn.BatchNorm1d) for m in world.build().modules()) else 1
    for epoch in itertools.count():
        found = order(labels, key.fold("epoch", epoch).generator())
        cut = [found[i : i + size] for i in range(0, len(found), size)]
        yield [b for b in cut if len(b) >= least]


def first_batches(world: World, client: int, key: Key, count: int) -> list[Batch]:
    """The first `count` batches, over as many epochs as needed."""
    return list(
        itertools.islice(
            itertools.chain.from_iterable(epochs(world, client, key, world.batch)), count
        )
    )


def all_batches(world: World, client: int, key: Key) -> list[Batch]:
    """The batches of a round."""
    return list(
        itertools.chain.from_iterable(
            itertools.islice(epochs(world, client, key, world.batch), world.epochs)
        )
    )


class ClientModel:
    """A client's model in training.

    names: the trained tensors; the statistics of other norms are frozen.
    """

    def __init__(
        self, world: World, client: int, start: State, names: set[str] | None = None
    ) -> None:
        self.model, self.data, self.objective = world.build(), world.clients[client], world.loss
        self.model.load_state_dict(start)
        self.weights = {
            n: w for n, w in self.model.named_parameters() if names is None or n in names
        }
        for name, layer in self.model.named_modules():
            if (
                isinstance(layer, nn.BatchNorm1d)
                and names is not None
                and f"{name}.weight" not in names
            ):
                layer.eval()

    def gradient(self, batch: Batch) -> State:
        self.model.zero_grad()
        self.objective(self.model, self.data.x[batch], self.data.y[batch]).backward()
        return {n: w.grad.clone() for n, w in self.weights.items()}

    def here(self) -> State:
        return {n: w.detach().clone() for n, w in self.weights.items()}

    def go(self, to: State) -> None:
        with torch.no_grad():
            for n, w in self.weights.items():
                w.copy_(to[n])

    def state(self) -> State:
        return {n: t.clone() for n, t in self.model.state_dict().items()}

    def descend(self, batches: list[Batch], lr: float, pull: Pull = lambda name, w: 0.0) -> State:
        for batch in batches:
            g, w = self.gradient(batch), self.here()
            self.go({n: w[n] - lr * (g[n] + pull(n, w[n])) for n in w})
        return self.state()

    def nesterov(self, batches: list[Batch], lr: float, momentum: float, decay: float) -> State:
        velocity = {n: torch.zeros_like(w) for n, w in self.here().items()}
        for batch in batches:
            g, w = self.gradient(batch), self.here()
            g = {n: g[n] + decay * w[n] for n in w}
            velocity = {n: momentum * velocity[n] + g[n] for n in w}
            self.go({n: w[n] - lr * (g[n] + momentum * velocity[n]) for n in w})
        return self.state()


IsPrivate = Callable[[str], bool]  # by tensor name


def fedavg_with_private(
    world: World,
    first: State,
    rounds: int,
    home: IsPrivate,
    heads: int = 0,
    server: Server | None = None,
) -> FinalModels:
    """FedAvg on the tensors that are not private (FedBN, LG-FedAvg, FedPer, local training).

    heads: number of phases that train the private tensors before the rest is trained (FedRep:
    Collins, algorithm 1).
    """
    memories = {n for n in first if home(n)}
    parts = [memories] * heads + [first.keys() - memories] if heads else [set(first)]
    sent, own = first, [{n: first[n] for n in memories} for _ in world.clients]
    for t in range(rounds):
        finals, cohort = [], world.cohort(t)
        for client in cohort:
            state = sent | own[client]
            for number, moving in enumerate(parts):
                batches = all_batches(world, client, phase(world, t, client, number))
                state = ClientModel(world, client, state, moving).descend(batches, world.lr)
            own[client] = {n: state[n] for n in memories}
            finals.append(state)
        average = mean(finals, [len(world.clients[c]) for c in cohort])
        moved = server(sent, average) if server else average
        sent = {n: sent[n] if n in memories else moved[n] for n in sent}
    return sent, [sent | kept for kept in own]


def ditto(
    world: World,
    first: State,
    rounds: int,
    lam: float,
    mu: float = 0.0,
    server: Server | None = None,
) -> FinalModels:
    """Ditto (Li, algorithm 1) with FedAvg, or with FedProx and another server rule."""
    sent, own = first, dict[int, State]()
    for t in range(rounds):
        finals, cohort = [], world.cohort(t)
        for client in cohort:
            shared, personal = (
                all_batches(world, client, phase(world, t, client, number)) for number in (0, 1)
            )
            near: Pull = lambda n, w, sent=sent: mu * (w - sent[n])  # noqa: E731
            held: Pull = lambda n, v, sent=sent: lam * (v - sent[n])  # noqa: E731
            finals.append(ClientModel(world, client, sent).descend(shared, world.lr, near))
            own[client] = ClientModel(world, client, own.get(client, sent)).descend(
                personal, world.lr, held
            )
        average = mean(finals, [len(world.clients[c]) for c in cohort])
        sent = server(sent, average) if server else average
    return sent, [own.get(client, sent) for client in range(len(world.clients))]


def pfedme(
    world: World,
    first: State,
    rounds: int,
    lam: float,
    inner: int,
    pace: float,
    lr: float,
    beta: float,
    decay: float,
) -> FinalModels:
    """pFedMe (Dinh, algorithm 1)."""
    sent, own = first, dict[int, State]()
    for t in range(rounds):
        finals, cohort = [], world.cohort(t)
        for client in cohort:
            walker = ClientModel(world, client, sent)
            w = theta = walker.here()
            for batch in all_batches(world, client, phase(world, t, client)):
                for _ in range(inner):
                    walker.go(theta)
                    g = walker.gradient(batch)
                    theta = {
                        n: theta[n] - pace * (g[n] + lam * (theta[n] - w[n]) + decay * theta[n])
                        for n in w
                    }
                w = {n: w[n] - lr * lam * (w[n] - theta[n]) for n in w}
            own[client] = walker.state() | theta
            finals.append(walker.state() | w)
        average = mean(finals, [len(world.clients[c]) for c in cohort])
        sent = average | {n: (1 - beta) * sent[n] + beta * average[n] for n in world.weights()}
    return sent, [own.get(client, sent) for client in range(len(world.clients))]


def perfedavg(
    world: World,
    first: State,
    rounds: int,
    alpha: float,
    beta: float,
    delta: float | None,
    steps: int,
    adapt: int,
) -> FinalModels:
    """Per-FedAvg (Fallah, algorithm 1): first order, or Hessian by finite differences."""
    sent, each = first, 2 if delta is None else 3
    for t in range(rounds):
        finals, cohort = [], world.cohort(t)
        for client in cohort:
            walker, drawn = (
                ClientModel(world, client, sent),
                iter(first_batches(world, client, phase(world, t, client), steps * each)),
            )
            for batches in zip(*[drawn] * each, strict=True):
                w, g = walker.here(), walker.gradient(batches[0])
                walker.go({n: w[n] - alpha * g[n] for n in w})
                g = walker.gradient(batches[1])
                if delta is not None:
                    walker.go({n: w[n] + delta * g[n] for n in w})
                    ahead = walker.gradient(batches[2])
                    walker.go({n: w[n] - delta * g[n] for n in w})
                    behind = walker.gradient(batches[2])
                    g = {n: g[n] - alpha * (ahead[n] - behind[n]) / (2 * delta) for n in w}
                walker.go({n: w[n] - beta * g[n] for n in w})
            finals.append(walker.state())
        sent = mean(finals, [len(world.clients[c]) for c in cohort])
    own = [
        first_batches(world, c, phase(world, rounds, c, branch="finale"), adapt)
        for c in range(len(world.clients))
    ]
    return sent, [
        ClientModel(world, c, sent).descend(batches, alpha) for c, batches in enumerate(own)
    ]


def finetuned(
    world: World,
    first: State,
    rounds: int,
    passes: int,
    lr: float,
    size: int,
    order: Callable[[list[int], torch.Generator], Batch] = shuffled,
    block: str = "",
    mu: float = 0.0,
    server: Server | None = None,
) -> FinalModels:
    """FedAvg or FedProx, then fine-tuning at every client with momentum .9 and decay 5e-4.

    block: train this block only. order: shuffled or class-balanced.
    """
    sent = fedavg(world, first, rounds, mu=mu, server=server)
    own = []
    for client in range(len(world.clients)):
        found = epochs(world, client, phase(world, rounds, client, branch="finale"), size, order)
        batches = list(itertools.chain.from_iterable(itertools.islice(found, passes)))
        walker = ClientModel(world, client, sent, {n for n in first if n.startswith(block)})
        own.append(walker.nesterov(batches, lr, 0.9, 5e-4))
    return sent, own
