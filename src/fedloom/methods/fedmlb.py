"""FedMLB: frozen global blocks grafted behind each local block keep local features in the form the global model can read.

    L = CE(z, y) + ce (1/S) sum_m CE(h_m, y) + kl (1/S) sum_m KL(softmax(h_m/T) || softmax(z/T))

z are the local logits; h_m those of pathway m: the local blocks 1..m, then the received blocks m+1..M, frozen.
ce, kl >= 0    weights of the two means over the pathways; both 0 is FedAvg. temperature > 0: T, without a factor T^2.
pathways       "all", or their numbers, as "1-3" or "1 2 5".
divisor        S: "used" counts the pathways that are used, "all" counts M - 1, as the authors' code does for one level.
graft          "local-to-global", or "global-to-local": the received blocks first, then the local ones (the reverse, Table 4).
State     none.   Uploads  model.   Needs  a chain of at least 2 blocks; branch points lie between its blocks.
Kim et al., ICML 2022, eqs. (4) to (8). Departures: none. Nothing is detached: gradients flow through the frozen blocks, and
through the hybrid's side of the divergence, as in the authors' code. Where no norm looks at the batch, pathways that enter the
same frozen block go through it together, which is the same function; the authors run each on its own.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.job import Job
from fedloom.core.method import Method, Phase, blocks_needed
from fedloom.core.spec import Param
from fedloom.core.step import Loss, Step
from fedloom.losses.distillation import kl as divergence

PAPER = "Kim et al., ICML 2022"
LINK = "https://arxiv.org/abs/2207.06936"


def fedmlb(
    ce: Annotated[float, Param("weight of the hybrid pathways' cross-entropy", low=0)] = 1.0,
    kl: Annotated[
        float, Param("weight of the divergence of the local model from the pathways", low=0)
    ] = 1.0,
    temperature: Annotated[float, Param("temperature of the divergence", above=0)] = 1.0,
    pathways: Annotated[
        str, Param("all, or numbers as 1-3 or '1 2 5', counted from the first block")
    ] = "all",
    divisor: Annotated[
        Literal["used", "all"], Param("mean over the pathways used, or over all as the authors")
    ] = "used",
    graft: Annotated[
        Literal["local-to-global", "global-to-local"], Param("which blocks come first")
    ] = "local-to-global",
) -> Method:
    wanted = _numbers(pathways)
    grafted = _behind_local if graft == "local-to-global" else _behind_global

    def branches(step: Step) -> Tensor:
        cuts = [n for m, n in enumerate(step.model.names[:-1], 1) if wanted is None or m in wanted]
        hybrid, count = grafted(step, cuts), len(cuts)
        value = step.logits.new_zeros(())
        if ce:
            value = ce * F.cross_entropy(hybrid, _repeated(step.y, count))
        if kl:
            value = value + kl * divergence(hybrid, _repeated(step.logits, count), temperature)
        return value if divisor == "used" else value * (count / (len(step.model.names) - 1))

    terms: tuple[Loss, ...] = (branches,) if ce or kl else ()
    most = max(wanted) if wanted else 1
    return Method("fedmlb", (Phase(terms=terms),), needs=(blocks_needed(most + 1),))


def _numbers(text: str) -> frozenset[int] | None:
    """The pathways that were asked for; None for all.

    >>> sorted(_numbers("1-3 5") or ())
    [1, 2, 3, 5]
    """
    if text.strip() == "all":
        return None
    found: set[int] = set()
    for piece in re.split(r"[\s;]+", str(text).strip()):
        ends = re.fullmatch(r"(\d+)(?:-(\d+))?", piece)
        if ends is None or not 1 <= int(ends[1]) <= int(ends[2] or ends[1]):
            raise UserError(
                f"fedmlb: pathways='{text}' is neither 'all' nor numbers from 1 on; write '1-3' or '1 2 5'"
            )
        found |= set(range(int(ends[1]), int(ends[2] or ends[1]) + 1))
    return frozenset(found)


def _behind_local(step: Step, cuts: list[str]) -> Tensor:
    """Local features through the received blocks; rows in the order of the pathways."""
    return finished(
        step.job.once(Job.frozen),
        {cut: step.taps[cut] for cut in cuts},
        together=not step.job.model_pool.batch_statistics,
    )


def _behind_global(step: Step, cuts: list[str]) -> Tensor:
    """The received model's features through the local blocks."""
    with torch.no_grad():
        taps = step.job.once(Job.frozen).taps(step.x)
    return finished(
        step.model,
        {cut: taps[cut] for cut in cuts},
        together=not step.job.model_pool.batch_statistics,
    )


def finished(chain: Chain, features: dict[str, Tensor], together: bool) -> Tensor:
    """Each feature through the blocks behind its own, as rows of one batch.

    Together, the rows that reach a block go through it in one call; a norm over the batch would then see strangers.
    """
    if not together:
        return torch.cat([chain.run(f, after=cut) for cut, f in features.items()])
    first = next(iter(features))
    rows = features[first]
    for before, name in pairwise(chain.names[chain.names.index(first) :]):
        if before != first and before in features:
            rows = torch.cat([rows, features[before]])
        rows = chain.run(rows, after=before, until=name)
    return rows


def _repeated(t: Tensor, count: int) -> Tensor:
    return t.repeat(count, *(1,) * (t.dim() - 1))
