"""FedAFA and M2m as the papers and authors' codes write them: sample by sample, float64."""

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from support.oracles import State, World, fedavg
from support.personal_oracles import Batch, ClientModel, FinalModels, class_balanced, epochs, phase

Weight = Callable[
    [float, float, list[int]], float
]  # (n_s, n_t, samples of all classes) -> weight of a source class
LossOfOne = Callable[[int, Tensor], Tensor]  # of the n-th sample, alone
Pair = tuple[int, int, float]  # place, source, weight
Tuned = tuple[int, float, int]

paper: Weight = lambda s, t, n: max(s - t, 0) / sum(n)  # noqa: E731
authors: Weight = lambda s, t, n: 1 - max(s - t, 0) / max(n)  # noqa: E731


def by_surplus(beta: float) -> Weight:
    return lambda s, t, n: 1 - beta ** max(s - t, 0)


def sample_cross_entropy(logits: Tensor, y: int) -> Tensor:
    return torch.logsumexp(logits, 0) - logits[y]


def cross_entropy(logits: Tensor, y: list[int]) -> Tensor:
    return torch.stack([sample_cross_entropy(z, c) for z, c in zip(logits, y, strict=True)]).mean()


def forward_through(model: Chain, x: Tensor, first: int = 0, last: int | None = None) -> Tensor:
    for block in list(model.children())[first:last]:
        x = block(x)
    return x


def frozen_copy(model: Chain, state: State) -> Chain:
    """A frozen copy with this state, in evaluation mode."""
    twin = copy.deepcopy(model)
    twin.load_state_dict(state)
    return twin.requires_grad_(False).eval()


def perturbed(
    starts: Tensor, loss: LossOfOne, step: float, times: int, low: float, high: float
) -> Tensor:
    """Move each sample along its normalised negative gradient of the mean loss."""
    ends = []
    for i, h in enumerate(starts):
        for _ in range(times):
            h = h.detach().clone().requires_grad_()
            (g,) = torch.autograd.grad(loss(i, h) / len(starts), h)
            h = torch.clip(h - step * g / (g.square().sum().sqrt() + 1e-10), low, high)
        ends.append(h.detach())
    return torch.stack(ends)


def noisy(h: Tensor, key: Key, centre: float, longest: float) -> Tensor:
    """h plus noise whose norm per channel, over all samples, is bounded as by torch.renorm."""
    noise = (
        torch.rand(h.shape, generator=key.fold("noise").generator(), dtype=torch.float64) - centre
    )
    for channel in range(h.shape[1]):
        length = float(noise[:, channel].square().sum().sqrt())
        if length > longest:
            noise[:, channel] *= longest / (length + 1e-7)
    return h + noise


@dataclass(frozen=True)
class GenerationSettings:
    """Settings of both methods; cut: number of blocks in the feature extractor u."""

    lam: float
    accept: float
    step: float
    times: int = 10
    noise: bool = True
    cut: int = 0
    weight: Weight = paper
    local: bool = False
    clamp: bool = True
    drift: bool = False


class GeneratingClient(ClientModel):
    """A client that replaces samples of its batches by samples generated from others.

    taken: for each generated sample, whether it was used.
    """

    def __init__(
        self, world: World, client: int, sent: State, key: Key, how: GenerationSettings
    ) -> None:
        later = list(world.build().named_children())[how.cut :]
        super().__init__(
            world,
            client,
            sent,
            {f"{block}.{n}" for block, module in later for n in module.state_dict()},
        )
        if how.drift:
            self.model.train()
        self.sent, self.key, self.how, self.number = sent, key, how, 0
        labels = self.data.y.tolist()
        self.counts = [labels.count(c) for c in range(max(labels) + 1)]
        self.taken: list[bool] = []

    def pairs(self, y: list[int], key: Key) -> list[Pair]:
        n, draws = (
            self.counts,
            torch.rand(
                len(y), generator=key.fold("targets").generator(), dtype=torch.float64
            ).tolist(),
        )
        targets = [i for i in range(len(y)) if draws[i] < 1 - n[y[i]] / max(n)]
        rows = {i: [self.how.weight(n[s], n[y[i]], n) for s in y] for i in targets}
        rows = {i: row for i, row in rows.items() if sum(row) > 0}
        if not rows:
            return []
        table = torch.tensor(list(rows.values()), dtype=torch.float64)
        sources = (
            torch.multinomial(table, 1, generator=key.fold("sources").generator())
            .flatten()
            .tolist()
        )
        return [(i, j, row[j]) for (i, row), j in zip(rows.items(), sources, strict=True)]

    def gradient(self, batch: Batch) -> State:
        self.number += 1
        self.model.zero_grad()
        x, y, key = self.data.x[batch], self.data.y[batch], self.key.fold("step", self.number)
        self.loss(x, y.tolist(), self.pairs(y.tolist(), key), key).backward()
        return {n: w.grad.clone() for n, w in self.weights.items()}

    def loss(self, x: Tensor, y: list[int], pairs: list[Pair], key: Key) -> Tensor:
        raise NotImplementedError


class FedAfaClient(GeneratingClient):
    """FedAFA."""

    def loss(self, x: Tensor, y: list[int], pairs: list[Pair], key: Key) -> Tensor:
        if not pairs:
            return cross_entropy(self.behind(self.front(x)), y)
        made = self.made(
            x[[source for _, source, _ in pairs]], [y[place] for place, _, _ in pairs], key
        )
        self.taken += [h is not None for h in made]
        new = {
            place: (source, h)
            for (place, source, _), h in zip(pairs, made, strict=True)
            if h is not None
        }
        kept = self.kept(x, {place: source for place, (source, _) in new.items()})
        gen = cross_entropy(
            self.behind(torch.stack([new[i][1] if i in new else h for i, h in enumerate(kept)])), y
        )
        return self.how.lam * gen + (1 - self.how.lam) * cross_entropy(
            self.behind(self.front(x)), y
        )

    def front(self, x: Tensor) -> Tensor:
        return forward_through(
            self.model if self.how.drift else frozen_copy(self.model, self.sent), x, 0, self.how.cut
        ).detach()

    def behind(self, h: Tensor) -> Tensor:
        return forward_through(self.model, h, self.how.cut)

    def kept(self, x: Tensor, swaps: dict[int, int]) -> Tensor:
        """Features of the samples that are not replaced.

        In the authors' code they come from another pass, and a third one updates the statistics.
        """
        if not self.how.drift:
            return self.front(x)
        h = self.front(x[[swaps.get(i, i) for i in range(len(x))]])
        self.behind(h)
        self.front(x)
        return h

    def made(self, x: Tensor, y: list[int], key: Key) -> list[Tensor | None]:
        how, maker = (
            self.how,
            frozen_copy(self.model, self.state() if self.how.local else self.sent),
        )
        starts = forward_through(maker, x, 0, how.cut).detach()
        least, most = float(starts.min()), float(starts.max())
        low, high = (min(0.0, least), most) if how.clamp else (-torch.inf, torch.inf)
        h = (
            torch.clip(noisy(starts, key, (most + least) / 2, 1.0), low, high)
            if how.noise
            else starts
        )
        h = perturbed(
            h,
            lambda i, h: sample_cross_entropy(forward_through(maker, h[None], how.cut)[0], y[i]),
            how.step,
            how.times,
            low,
            torch.inf,
        )
        sure = [
            float(torch.softmax(forward_through(maker, f[None], how.cut)[0], 0)[c])
            for f, c in zip(h, y, strict=True)
        ]
        return [f if p >= how.accept else None for f, p in zip(h, sure, strict=True)]


class M2mClient(GeneratingClient):
    """M2m; the data range is that of the client's own samples, per column."""

    def loss(self, x: Tensor, y: list[int], pairs: list[Pair], key: Key) -> Tensor:
        batch = x.clone()
        for (place, _, weight), new, draw in zip(pairs, *self.made(x, y, pairs, key), strict=True):
            sure = float(
                torch.softmax(frozen_copy(self.model, self.sent)(new[None])[0], 0)[y[place]]
            )
            self.taken.append(sure >= self.how.accept and draw < weight)
            if self.taken[-1]:
                batch[place] = new
        return cross_entropy(self.model(batch), y)

    def made(
        self, x: Tensor, y: list[int], pairs: list[Pair], key: Key
    ) -> tuple[list[Tensor], list[float]]:
        if not pairs:
            return [], []
        how, low, high = self.how, self.data.x.min(0).values, self.data.x.max(0).values
        first, own = frozen_copy(self.model, self.sent), frozen_copy(self.model, self.state())

        def far(i: int, p: Tensor) -> Tensor:
            (place, source, _), seen = pairs[i], (low + (high - low) * p)[None]
            return (
                sample_cross_entropy(first(seen)[0], y[place]) + how.lam * own(seen)[0][y[source]]
            )

        p = (x[[source for _, source, _ in pairs]] - low) / (high - low)
        p = perturbed(
            torch.clip(noisy(p, key, 0.5, 0.5), 0, 1) if how.noise else p,
            far,
            how.step,
            how.times,
            0.0,
            1.0,
        )
        draws = torch.rand(len(pairs), generator=key.fold("taken").generator(), dtype=torch.float64)
        return list(low + (high - low) * p), draws.tolist()


UsedLog = list[bool]  # whether each generated sample was used, by client and step


def finetuned_on_generated(
    kind: type[GeneratingClient],
    how: GenerationSettings,
    world: World,
    first: State,
    rounds: int,
    tuned: Tuned,
) -> tuple[FinalModels, UsedLog]:
    """FedAvg, then fine-tuning at every client: balanced draws, momentum .9, decay 5e-4.

    tuned: epochs, lr, batch.
    """
    sent, own, log = fedavg(world, first, rounds), [], []
    passes, lr, size = tuned
    for client in range(len(world.clients)):
        key = phase(world, rounds, client, branch="finale")
        walker = kind(world, client, sent, key, how)
        found = itertools.islice(epochs(world, client, key, size, class_balanced), passes)
        own.append(walker.nesterov(list(itertools.chain.from_iterable(found)), lr, 0.9, 5e-4))
        log += walker.taken
    return (sent, own), log
