"""FedMLB: regularises the local model with hybrid pathways of local and frozen global blocks.

    L = CE(z, y) + ce (1/S) sum_m CE(h_m, y) + kl (1/S) sum_m KL(softmax(h_m/T) || softmax(z/T))

z are the logits of the main pathway, the local model; h_m those of hybrid pathway m: the local
blocks 1..m, then the received blocks m+1..M, frozen.

ce, kl        >= 0, weights of the two means over the hybrid pathways; both 0 is FedAvg.
temperature   > 0, T; there is no factor T^2.
pathways      "all", or pathway numbers such as "1-3" or "1 2 5".
divisor       S: "used" is the number of pathways in use, "all" is M - 1, as in the authors' code
              for a single level.
graft         "local-to-global", or "global-to-local": first the received blocks, then the local
              ones (the reverse, Table 4).

State: none. Uploads: the model. Needs: at least 2 blocks; pathways branch off between blocks.
Reference: Kim et al., ICML 2022, eqs. (4) to (8). Departures: none. Nothing is detached: gradients
flow through the frozen blocks and through the hybrid side of the divergence, as in the authors'
code. Unless a norm uses batch statistics, pathways that enter the same frozen block go through it
in one call, which computes the same function; the authors run each pathway separately.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.job import Job
from fedloom.core.learning_task import WITH_CLASSES
from fedloom.core.method import Method, Phase, blocks_needed
from fedloom.core.spec import Param
from fedloom.core.step import Loss, Step
from fedloom.losses.distillation import kl as divergence

PAPER = "Kim et al., ICML 2022"
LINK = "https://arxiv.org/abs/2207.06936"


def fedmlb(
    ce: Annotated[float, Param("weight of the hybrid pathways' cross-entropy", low=0)] = 1.0,
    kl: Annotated[
        float, Param("weight of the divergence between hybrid and main pathway", low=0)
    ] = 1.0,
    temperature: Annotated[float, Param("temperature of the divergence", above=0)] = 1.0,
    pathways: Annotated[
        str | int, Param("hybrid pathways in use: all, or numbers from 1 such as 1-3 or '1 2 5'")
    ] = "all",
    divisor: Annotated[
        Literal["used", "all"],
        Param("divide by the number of pathways in use, or of all, as the authors do"),
    ] = "used",
    graft: Annotated[
        Literal["local-to-global", "global-to-local"],
        Param("whether a hybrid pathway starts with local or with global blocks"),
    ] = "local-to-global",
) -> Method:
    wanted = _pathway_numbers(str(pathways))
    hybrid_logits = _local_to_global if graft == "local-to-global" else _global_to_local

    def hybrid_losses(step: Step) -> Tensor:
        cuts = [n for m, n in enumerate(step.model.names[:-1], 1) if wanted is None or m in wanted]
        hybrid, count = hybrid_logits(step, cuts), len(cuts)
        value = step.logits.new_zeros(())
        if ce:
            value = ce * step.job.task.cross_entropy(hybrid, _repeated(step.y, count))
        if kl:
            main, counted = (_repeated(t, count) for t in (step.logits, step.counted))
            value = value + kl * divergence(hybrid, main, temperature, counted)
        return value if divisor == "used" else value * (count / (len(step.model.names) - 1))

    terms: tuple[Loss, ...] = (hybrid_losses,) if ce or kl else ()
    need = blocks_needed(1 + (max(wanted) if wanted else 1), by_sample=True)
    return Method("fedmlb", (Phase(terms=terms),), needs=(need,), tasks=WITH_CLASSES)


def _pathway_numbers(text: str) -> frozenset[int] | None:
    """The pathways in use; None for all.

    >>> sorted(_pathway_numbers("1-3 5") or ())
    [1, 2, 3, 5]
    """
    if text.strip() == "all":
        return None
    numbers: set[int] = set()
    for piece in re.split(r"[\s;]+", text.strip()):
        ends = re.fullmatch(r"(\d+)(?:-(\d+))?", piece)
        if ends is None or not 1 <= int(ends[1]) <= int(ends[2] or ends[1]):
            raise UserError(
                f"fedmlb: pathways='{text}' is neither 'all' nor a list of numbers from 1; "
                "write for example '1-3' or '1 2 5'"
            )
        numbers |= set(range(int(ends[1]), int(ends[2] or ends[1]) + 1))
    return frozenset(numbers)


def _local_to_global(step: Step, cuts: list[str]) -> Tensor:
    """Local features through the received blocks; rows in the order of the pathways."""
    features, together = {cut: step.taps[cut] for cut in cuts}, _norms_allow_joint_batches(step)
    return run_remaining_blocks(step.job.once(Job.frozen), features, together)


def _global_to_local(step: Step, cuts: list[str]) -> Tensor:
    """The received model's features through the local blocks."""
    with torch.no_grad():
        taps = step.job.once(Job.frozen).taps(step.x)
    features, together = {cut: taps[cut] for cut in cuts}, _norms_allow_joint_batches(step)
    return run_remaining_blocks(step.model, features, together)


def _norms_allow_joint_batches(step: Step) -> bool:
    return not step.job.model_pool.batch_statistics


def run_remaining_blocks(chain: Chain, features: dict[str, Tensor], together: bool) -> Tensor:
    """Run the output of each block through the blocks after it; logits as rows of one batch.

    together: rows that reach the same block go through it in one call. With a norm over the batch,
    rows of different pathways would then influence each other.
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


def _repeated(t: Any, count: int) -> Any:
    return None if t is None else t.repeat(count, *(1,) * (t.dim() - 1))
