"""FedAlign and GradAug, written out layer by layer for the nested model; see oracles."""

import itertools

import numpy as np
import torch
from torch import Tensor, nn

from support.models import WIDTH
from support.objective_oracles import Loss, Objective
from support.oracles import State, World


def normed(layer: nn.Module, z: Tensor) -> Tensor:
    """Batch norm of the given channels by batch statistics; the input if there is no norm."""
    if isinstance(layer, nn.Identity):
        return z
    kept = z.shape[1]
    variance = ((z - z.mean(0)) ** 2).mean(0)
    return (z - z.mean(0)) / torch.sqrt(variance + layer.eps) * layer.weight[:kept] + layer.bias[
        :kept
    ]


def stem(model: nn.Module, x: Tensor, kept: int) -> Tensor:
    return torch.tanh(x @ model.stem[0].weight[:kept].T + model.stem[0].bias[:kept])


def body(model: nn.Module, h: Tensor, kept: int) -> Tensor:
    unit, beside = model.body[0].unit, model.body[0].downsample
    branch = torch.tanh(normed(unit[1], h @ unit[0].weight[:kept, :kept].T + unit[0].bias[:kept]))
    return torch.tanh(branch + normed(beside[1], h @ beside[0].weight[:kept, :kept].T))


def nll(logits: Tensor, y: Tensor) -> Tensor:
    return torch.logsumexp(logits, 1).mean() - logits[range(len(y)), y].mean()


def bounded(total: Tensor, model: nn.Module, clip: float) -> Tensor:
    """The loss, scaled so that its gradient norm is at most `clip`."""
    grads = torch.autograd.grad(total, list(model.parameters()), retain_graph=True)
    length = torch.sqrt(sum((g**2).sum() for g in grads))
    return total * min(1.0, clip / float(length + 1e-6))


def fedalign(
    mu: float, kept: int, scaled: bool = True, clip: float = torch.inf, blend: float = 0.0
) -> Objective:
    """FedAlign (Mendieta, eq. 5 to 7).

    Without spatial positions the feature matrix has rank one, so its norm is |before| |after|.
    """

    def objective(world: World, t: int, client: int, sent: State, last: State) -> Loss:
        steps, phase = itertools.count(1), world.key.fold("round", t, "client", client, "phase", 0)

        def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            share, other = 1.0, list(range(len(y)))
            if blend:
                draws = np.random.default_rng(phase.fold("mix", next(steps), 0).seed)
                share, other = draws.beta(blend, blend), draws.permutation(len(y)).tolist()
                x = share * x + (1 - share) * x[other]
            before = model.stem(x)
            behind = model.body(before)
            logits = model.head(behind)
            ce = share * nll(logits, y) + (1 - share) * nll(logits, y[other])
            thin = before.detach()[:, :kept]
            narrow = thin.norm(dim=1) * body(model, thin, kept).norm(dim=1)
            gap = ((narrow - (before.norm(dim=1) * behind.norm(dim=1)).detach()) ** 2).mean()
            return bounded(
                ce + mu * (float((ce / gap).detach()) if scaled else 1.0) * gap, model, clip
            )

        return loss

    return objective


def gradaug(n: int, mu: float, width: float, floor: bool = True) -> Objective:
    """GradAug (Yang, eq. 3) without transforming the samples."""

    def objective(world: World, t: int, client: int, sent: State, last: State) -> Loss:
        steps, phase = itertools.count(1), world.key.fold("round", t, "client", client, "phase", 0)

        def shares() -> list[float]:
            noise = phase.fold("step", next(steps), "narrow").generator()
            drawn = torch.rand(n - 1 if floor else n, generator=noise, dtype=torch.float64).tolist()
            return [width + (1 - width) * d for d in drawn] + [width] * floor

        def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            logits = model(x)
            teacher, total = torch.softmax(logits, 1).detach(), nll(logits, y)
            for share in shares():
                kept = round(WIDTH * share)
                made = (
                    body(model, stem(model, x, kept), kept) @ model.head.weight[:, :kept].T
                    + model.head.bias
                )
                total = total + mu * (
                    teacher * (torch.log(teacher) - torch.log_softmax(made, 1))
                ).sum() / len(y)
            return total

        return loss

    return objective
