"""Methods that change the local objective, as their papers write them; see oracles."""

import itertools
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from support.oracles import Server, State, World, mean, model_cross_entropy, train

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]
Objective = Callable[
    [World, int, int, State, State], Loss
]  # of a round and a client, given the sent model and the client's last model


def fedavg_with_objective(
    world: World,
    first: State,
    rounds: int,
    objective: Objective,
    mu: float = 0.0,
    server: Server | None = None,
) -> State:
    """FedAvg weighted by samples, with this objective and FedProx's proximal term.

    The first time, a client's last model is the sent one.
    """
    sent, last = first, dict[int, State]()
    for t in range(rounds):
        cohort = world.cohort(t)
        for client in cohort:
            loss, anchor = objective(world, t, client, sent, last.get(client, sent)), sent
            last[client], _ = train(
                world, t, client, sent, lambda name, w, anchor=anchor: mu * (w - anchor[name]), loss
            )
        average = mean([last[c] for c in cohort], [len(world.clients[c]) for c in cohort])
        sent = server(sent, average) if server else average
    return sent


def moon(weight: float, tau: float) -> Objective:
    """MOON (Li, eq. 4); both other models are in training mode, as in the authors' code."""

    def objective(world: World, t: int, client: int, sent: State, last: State) -> Loss:
        others = [world.build(), world.build()]
        for other, state in zip(others, (sent, last), strict=True):
            other.load_state_dict(state)

        def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            logits, z = logits_and_features(model, x)
            near, far = (
                torch.exp(cosine(z, logits_and_features(other, x)[1].detach()) / tau)
                for other in others
            )
            own = (torch.logsumexp(logits, 1) - logits[range(len(y)), y]).mean()
            return own + weight * -torch.log(near / (near + far)).mean()

        return loss

    return objective


def logits_and_features(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """The logits and the input of the last linear layer."""
    given: list[Tensor] = []
    last = [m for m in model.modules() if isinstance(m, nn.Linear)][-1]
    handle = last.register_forward_pre_hook(lambda module, inputs: given.append(inputs[0]))
    logits = model(x)
    handle.remove()
    return logits, given[0]


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))


def mixup(alpha: float) -> Objective:
    """Mixup (Zhang, section 2): weighted loss of both labels, one permutation per batch."""

    def objective(world: World, t: int, client: int, sent: State, last: State) -> Loss:
        steps = itertools.count(1)
        phase = world.key.fold("round", t, "client", client, "phase", 0)

        def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            draws = np.random.default_rng(phase.fold("mix", next(steps), 0).seed)
            share, other = draws.beta(alpha, alpha), draws.permutation(len(y)).tolist()
            logits = model(share * x + (1 - share) * x[other])
            both = torch.logsumexp(logits, 1).mean()
            return (
                both
                - (
                    share * logits[range(len(y)), y] + (1 - share) * logits[range(len(y)), y[other]]
                ).mean()
            )

        return loss

    return objective


def stochdepth(keep: float) -> Objective:
    """Stochastic depth (Huang, eq. 2) with FedAlign's rule, on three residual blocks.

    The first block is never dropped.
    """

    def objective(world: World, t: int, client: int, sent: State, last: State) -> Loss:
        draws = world.key.fold("round", t, "client", client, "phase", 0, "layers").generator()

        def forward(model: nn.Module, x: Tensor) -> Tensor:
            h = torch.relu(model.stem[0](x))
            for number, block in enumerate(model.body):
                kept = number == 0 or float(torch.rand((), generator=draws)) >= number / 2 * (
                    1 - keep
                )
                h = torch.relu((block.body(h) if kept else 0.0) + block.shortcut(h))
            return model.head(h)

        def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            nothing = 0.0 * sum(
                w.sum() for w in model.parameters()
            )  # gives the weights of a dropped branch a gradient of 0
            return model_cross_entropy(lambda x: forward(model, x), x, y) + nothing

        return loss

    return objective
