"""StochDepth: drops residual branches at random in local training, deeper ones more often.

    training    h_l = ReLU(b_l F_l(h_{l-1}) + shortcut(h_{l-1})),   b_l ~ Bernoulli(p_l)
    evaluation  h_l = ReLU(p_l F_l(h_{l-1}) + shortcut(h_{l-1}))
    p_l = 1 - l/(L-1) (1 - keep), l = 0..L-1  (rule "authors")
    p_l = 1 - l/L (1 - keep),     l = 1..L    (rule "paper")

b_l is drawn once per branch and batch.

keep   in (0, 1], survival probability of the last of the L branches; 1 is FedAvg.
rule   FedAlign's authors never drop the first branch; the paper's rule may.

State: none. Uploads: the model. Needs: two residual branches.
Reference: Huang et al., ECCV 2016, sections 3 and 4. A dropped branch is not computed, but its
shortcut is. Its gradient is 0, so momentum and weight decay still apply to it; its running
statistics are not updated. The draws come from the layers' generator, which is seeded for each
phase: they are the same on every engine. Teachers in evaluation mode (MOON's) draw nothing and
scale by p_l.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.core.method import Method, Need
from fedloom.core.spec import Param
from fedloom.models.stochastic_depth import add_stochastic_depth, residual_block_names

PAPER = "Huang et al., ECCV 2016"
LINK = "https://arxiv.org/abs/1603.09382"
NEED = Need(
    "at least two residual branches, as the resnets of fedloom have",
    lambda chain: len(residual_block_names(chain)) >= 2,
)


def survival_probabilities(count: int, keep: float, rule: str) -> list[float]:
    """p_l of each of the `count` branches."""
    first, deepest = (0, count - 1) if rule == "authors" else (1, count)
    return [1 - number / deepest * (1 - keep) for number in range(first, deepest + 1)]


def stochdepth(
    keep: Annotated[
        float,
        Param("survival probability of the last residual branch; 1 is FedAvg", above=0, high=1),
    ] = 0.9,
    rule: Annotated[
        Literal["authors", "paper"], Param("whether the first branch is always kept, or not")
    ] = "authors",
) -> Method:
    def drop(chain: Chain, key: Key) -> Chain:
        return add_stochastic_depth(
            chain, survival_probabilities(len(residual_block_names(chain)), keep, rule)
        )

    return Method("stochdepth", needs=(NEED,), reshape=(drop,))
