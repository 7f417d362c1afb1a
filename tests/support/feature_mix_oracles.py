"""FedMix and NaiveMix on hidden features (Yoon, appendix E), and FedRep: training in phases."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedloom.core.key import Key
from support.mixup_oracles import one_hot, soft_cross_entropy
from support.oracles import Server, State, World, mean, model_cross_entropy

Loss = Callable[[nn.Module, Tensor, Tensor, int], Tensor]  # the last is the step number
LocalPhase = tuple[Loss, Callable[[str], bool]]  # and which weights it trains
LocalPhases = Callable[
    [World, int, int, State], list[LocalPhase]
]  # of a round, a client and what it was sent
Entry = tuple[Tensor, Tensor]  # a mean hidden state and its label


def train_in_phases(
    world: World,
    first: State,
    rounds: int,
    turns: LocalPhases,
    mu: float = 0.0,
    server: Server | None = None,
    kept: str | None = None,
) -> State:
    """FedAvg whose clients train in several phases, each with FedProx's proximal term.

    kept: prefix of the tensors that stay with a client.
    """
    sent, memories = first, dict[int, State]()
    for t in range(rounds):
        cohort, finals = world.cohort(t), []
        for c in cohort:
            received = {**sent, **memories.get(c, {})}
            finals.append(descents(world, t, c, received, turns(world, t, c, received), mu))
            memories[c] = {n: w for n, w in finals[-1].items() if kept and n.startswith(kept)}
        average = mean(finals, [len(world.clients[c]) for c in cohort])
        after = server(sent, average) if server else average
        sent = {n: first[n] if kept and n.startswith(kept) else w for n, w in after.items()}
    return sent


def descents(
    world: World, t: int, client: int, start: State, turns: list[LocalPhase], mu: float
) -> State:
    model, data = world.build(), world.clients[client]
    model.load_state_dict(start)
    for number, (loss, trains) in enumerate(turns):
        key = world.key.fold("round", t, "client", client, "phase", number)
        trained = {n: w for n, w in model.named_parameters() if trains(n)}
        for name, layer in model.named_modules():
            layer.train(not isinstance(layer, nn.BatchNorm1d) or f"{name}.weight" in trained)
        for step, batch in enumerate(batches(world, key, len(data)), 1):
            value = loss(model, data.x[batch], data.y[batch], step)
            grads = torch.autograd.grad(value, list(trained.values()))
            with torch.no_grad():
                for (name, w), grad in zip(trained.items(), grads, strict=True):
                    w -= world.lr * (grad + mu * (w - start[name]))
    return {n: w.clone() for n, w in model.state_dict().items()}


def batches(world: World, key: Key, size: int) -> list[list[int]]:
    smallest = 2 if any(isinstance(m, nn.BatchNorm1d) for m in world.build().modules()) else 1
    orders = [
        torch.randperm(size, generator=key.fold("epoch", e).generator()).tolist()
        for e in range(world.epochs)
    ]
    cut = [order[i : i + world.batch] for order in orders for i in range(0, size, world.batch)]
    return [batch for batch in cut if len(batch) >= smallest]


def plain(model: nn.Module, x: Tensor, y: Tensor, step: int) -> Tensor:
    return model_cross_entropy(model, x, y)


def through(model: nn.Module, x: Tensor, names: list[str]) -> Tensor:
    for name in names:
        x = model.get_submodule(name)(x)
    return x


def feature_mix(
    at: str, lam: float, weight: float | None, size: int = 0, *, every_round: bool = True
) -> LocalPhases:
    """FedMix, or NaiveMix without a weight, on features.

    First epochs with a frozen encoder on mixtures with averages of its features; then plain epochs
    of the whole model. every_round: whether the groups are drawn again each round.
    """

    def turns(world: World, t: int, client: int, sent: State) -> list[LocalPhase]:
        pool = [
            entry
            for c in range(len(world.clients))
            for entry in means(world, t if every_round else None, c, sent, at, size)
        ]
        encoder = names(world, at)

        def mixed(model: nn.Module, x: Tensor, y: Tensor, step: int) -> Tensor:
            key = world.key.fold("round", t, "client", client, "phase", 0, "step", step, "mashed")
            own, (h_g, y_g) = through(model, x, encoder[0]).detach(), pool[key.seed % len(pool)]
            return loss_of(lambda h: through(model, h, encoder[1]), own, y, h_g, y_g, lam, weight)

        return [(mixed, lambda name: name.split(".")[0] in encoder[1]), (plain, lambda name: True)]

    return turns


def names(world: World, at: str) -> tuple[list[str], list[str]]:
    """The blocks up to `at`, and those after it."""
    every = [name for name, _ in world.build().named_children()]
    cut = every.index(at) + 1
    return every[:cut], every[cut:]


def means(world: World, t: int | None, client: int, sent: State, at: str, size: int) -> list[Entry]:
    """A client's averaged features, sample by sample; norms use running statistics."""
    model, data = world.build(), world.clients[client]
    model.load_state_dict(sent)
    model.eval()
    path = ("exchange", 0) if t is None else ("again", t)
    key = world.key.fold(*path, "client", client, "mashed", "split")
    order = torch.randperm(len(data), generator=key.generator()).tolist()
    groups = [order[i : i + (size or len(order))] for i in range(0, len(order), size or len(order))]
    encoder, _ = names(world, at)
    with torch.no_grad():
        hidden = [through(model, x[None], encoder)[0] for x in data.x]
    return [
        (sum(hidden[i] for i in g) / len(g), sum(one_hot(data.y[i]) for i in g) / len(g))
        for g in groups
    ]


def loss_of(
    decode: Callable[[Tensor], Tensor],
    own: Tensor,
    y: Tensor,
    h_g: Tensor,
    y_g: Tensor,
    lam: float,
    weight: float | None,
) -> Tensor:
    if weight is None:
        logits = decode((1 - lam) * own + lam * h_g)
        return (1 - lam) * soft_cross_entropy(logits, one_hot(y)) + lam * soft_cross_entropy(
            logits, y_g
        )
    u = ((1 - lam) * own).requires_grad_()
    logits = decode(u)
    (slope,) = torch.autograd.grad(soft_cross_entropy(logits, one_hot(y)), u, create_graph=True)
    return (
        (1 - lam) * soft_cross_entropy(logits, one_hot(y))
        + lam * soft_cross_entropy(logits, y_g)
        + weight * (slope * h_g).sum()
    )


def fedrep(passes: int) -> LocalPhases:
    """Collins, algorithm 1: `passes` phases of the head, then one of the representation."""
    head: LocalPhase = (plain, lambda name: name.startswith("head"))
    return lambda world, t, client, sent: [
        *[head] * passes,
        (plain, lambda name: not name.startswith("head")),
    ]
