"""Distillation methods as their papers write them: plain exponentials, pathway by pathway."""

import torch
from torch import Tensor, nn

from support.objective_oracles import Loss, Objective
from support.oracles import State, World, mean, model_cross_entropy, train


def teacher(world: World, sent: State) -> nn.Module:
    model = world.build()
    model.load_state_dict(sent)
    return model.requires_grad_(False)


def divergence(target: Tensor, logits: Tensor, temperature: float = 1.0) -> Tensor:
    p, q = (
        torch.exp(z / temperature) / torch.exp(z / temperature).sum(1, keepdim=True)
        for z in (target, logits)
    )
    return (p * torch.log(p / q)).sum() / len(logits)


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    return model_cross_entropy(lambda x: x, logits, y)


def outputs(model: nn.Module, x: Tensor) -> list[Tensor]:
    """The output of every block."""
    found = []
    for name in model.names:
        x = getattr(model, name)(x)
        found.append(x)
    return found


def fedmlb(
    ce: float,
    kl: float,
    temperature: float,
    pathways: list[int],
    divisor: int,
    reverse: bool = False,
) -> Objective:
    """FedMLB (Kim, eqs. 4 to 8): blocks up to m of one model, then blocks after m of the other."""

    def objective(world: World, t: int, client: int, sent: State, last: State) -> Loss:
        frozen = teacher(world, sent)

        def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            own = outputs(model, x)
            heads, tail = (outputs(frozen, x), model) if reverse else (own, frozen)
            total = cross_entropy(own[-1], y)
            for m in pathways:
                hybrid = heads[m - 1]
                for name in model.names[m:]:
                    hybrid = getattr(tail, name)(hybrid)
                total = (
                    total
                    + ce / divisor * cross_entropy(hybrid, y)
                    + kl / divisor * divergence(hybrid, own[-1], temperature)
                )
            return total

        return loss

    return objective


def kd(weight: float, temperature: float) -> Objective:
    """Hinton's distillation from the received model."""

    def objective(world: World, t: int, client: int, sent: State, last: State) -> Loss:
        frozen = teacher(world, sent)

        def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            logits = model(x)
            return (1 - weight) * cross_entropy(logits, y) + weight * divergence(
                frozen(x), logits, temperature
            )

        return loss

    return objective


def fitnet(weight: float) -> Objective:
    """Mean squared distance of features to the received model's, for all blocks but the last."""

    def objective(world: World, t: int, client: int, sent: State, last: State) -> Loss:
        frozen = teacher(world, sent)

        def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            ours, theirs = outputs(model, x), outputs(frozen, x)
            apart = [((a - b) ** 2).mean() for a, b in zip(ours[:-1], theirs[:-1], strict=True)]
            return cross_entropy(ours[-1], y) + weight * sum(apart) / len(apart)

        return loss

    return objective


def fedntd(beta: float, temperature: float, first: bool) -> Objective:
    """FedNTD (Lee, eqs. 5 to 7), sample by sample over the classes other than the true one."""

    def objective(world: World, t: int, client: int, sent: State, last: State) -> Loss:
        frozen = teacher(world, sent)

        def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            logits, taught = model(x), frozen(x)
            others = [[c for c in range(logits.shape[1]) if c != label] for label in y.tolist()]
            ours, theirs = (
                torch.stack([row[o] for row, o in zip(z, others, strict=True)])
                for z in (logits, taught)
            )
            apart, own = divergence(theirs, ours, temperature), cross_entropy(logits, y)
            return (1 - beta) * own + beta * apart if first else own + beta * temperature**2 * apart

        return loss

    return objective


def fedgkd(gamma: float, history: int, temperature: float) -> Objective:
    """FedGKD (Yao, eq. 4): the teacher is the mean of the last models; newest statistics."""
    models: dict[int, State] = {}

    def objective(world: World, t: int, client: int, sent: State, last: State) -> Loss:
        models[t] = sent
        window = [models[s] for s in range(max(0, t - history + 1), t + 1)]
        weights = {n for n, _ in world.build().named_parameters()}
        frozen = teacher(
            world,
            {
                n: sum(m[n] for m in window) / len(window) if n in weights else v
                for n, v in sent.items()
            },
        )

        def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            logits = model(x)
            own = cross_entropy(logits, y)
            return (
                own + gamma * temperature**2 * divergence(frozen(x), logits, temperature)
                if t
                else own
            )

        return loss

    return objective


def scaffold(world: World, first: State, rounds: int, objective: Objective) -> State:
    """SCAFFOLD (Karimireddy, option II) on any objective.

    In its equivalent form: a control is the mean gradient along a client's path.
    """
    names, sent = world.weights(), first
    c: State = {n: torch.zeros_like(first[n]) for n in names}
    own = [dict(c) for _ in world.clients]
    for t in range(rounds):
        finals, change = [], {n: torch.zeros_like(first[n]) for n in names}
        for client in world.cohort(t):
            seen, memories, common = {n: torch.zeros_like(first[n]) for n in names}, own[client], c

            def pull(
                n: str,
                w: Tensor,
                seen: State = seen,
                memories: State = memories,
                common: State = common,
            ) -> Tensor:
                seen[n] += w.grad
                return common[n] - memories[n]

            final, steps = train(
                world, t, client, sent, pull, objective(world, t, client, sent, sent)
            )
            own[client] = {n: seen[n] / steps for n in names}
            change = {n: change[n] + own[client][n] - memories[n] for n in names}
            finals.append(final)
        sent, c = mean(finals, [1] * len(finals)), {n: c[n] + change[n] / len(own) for n in names}
    return sent
