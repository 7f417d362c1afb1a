"""Mixing at a hidden block instead of at the inputs (FedMix, appendix E).

The other clients' hidden states are constants, computed by the received encoder (the blocks up to
`at`). The encoder therefore must not change while hidden states are mixed: the mixed loss trains
only the decoder after it, and ordinary epochs then train the whole model. The paper does not say
how the two are interleaved; here each has all the epochs (or steps) of a round.

A mean of hidden states is not the hidden state of a mean, unless the encoder is linear: averages
sent once then stay valid for every later encoder. An embedding is linear in one-hot characters. So
for text the averages are of one-hot rows, (characters, vocabulary), and `mean_embedding` turns them
into mean embeddings. For any other block (`every_round`), clients send the means of their hidden
states before every round, computed at that round's weights. The encoder is then in evaluation mode
(running statistics, no dropout), so that a hidden state depends on its own sample only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.job import Data, Job
from fedloom.core.key import Key
from fedloom.core.learning_task import CLASSIFICATION_ONLY
from fedloom.core.method import Exchange, Method, Need, Phase, inner_block
from fedloom.core.params import Params
from fedloom.core.select import blocks
from fedloom.core.spec import Param
from fedloom.core.step import Step
from fedloom.exchange.averaged_data import AveragedData

CHUNK = 100  # samples encoded at a time
MixedBlock = Annotated[
    str, Param("block whose outputs are mixed; for text its embedding; '': mix the samples")
]
EveryRound = Annotated[
    bool,
    Param(
        "whether averages of the outputs of `at` are sent before every round; "
        "for an embedding, once is enough"
    ),
]
# The loss, from hidden states and one average with its label.
MixedLoss = Callable[[Step, Tensor, tuple[Tensor, Tensor]], Tensor]


@dataclass(frozen=True)
class TransformedData:
    """Data whose samples are transformed when they are read."""

    data: Data
    transform: Callable[[Tensor], Tensor]

    def __len__(self) -> int:
        return len(self.data)

    @property
    def labels(self) -> Tensor:
        return self.data.labels

    def batch(
        self, positions: Tensor, generator: torch.Generator | None = None, train: bool = True
    ) -> tuple[Tensor, Tensor]:
        x, y = self.data.batch(positions, generator, train)
        return torch.cat([self.transform(part) for part in torch.split(x, CHUNK)]), y

    def checksum(self) -> int:
        return self.data.checksum()


def feature_mixing_method(
    name: str, at: str, every_round: bool, averaged: AveragedData, mixed_loss: MixedLoss
) -> Method:
    """The method that mixes the outputs of block `at`.

    Its first phase trains the blocks after `at` on the mixed loss, its second the whole model on
    the ordinary loss.
    """
    if not at:
        raise UserError(
            f"{name}(every_round=true) sends averages of a block's outputs, but at='' names no "
            "block; set at to a block's name"
        )

    def loss(step: Step) -> Tensor:
        x_g, y_g = averaged.draw(step.job, step.key)
        h = step.model.run(step.x, until=at)
        h_g = x_g if every_round else mean_embedding(step.model, at, x_g)
        return mixed_loss(step, h, (h_g, y_g))

    if every_round:
        exchange, need = of_features_every_round(averaged.exchange, at), inner_block(at)
    else:
        exchange, need = of_one_hot_text(averaged.exchange, at), embedding_first(at)
    phases = (Phase(loss=loss, trains=blocks(after=at)), Phase())
    return Method(
        name,
        phases,
        prologue=(exchange,),
        needs=(need,),
        tasks=CLASSIFICATION_ONLY,
        fixed_loss=True,
    )


def of_one_hot_text(exchange: Exchange, at: str) -> Exchange:
    """The same exchange for text, of one-hot characters; `at` is the block that embeds them."""

    def client(job: Job, key: Key) -> Params:
        embedding = job.received[f"{at}.weight"]  # one row per character

        def as_one_hot(x: Tensor) -> Tensor:
            return F.one_hot(x, len(embedding)).to(embedding.dtype)

        return exchange.client(replace(job, data=TransformedData(job.data, as_one_hot)), key)

    return exchange._replace(client=client)


def mean_embedding(chain: Chain, at: str, x: Tensor) -> Tensor:
    """The mean embedding of texts, from their averaged one-hot characters."""
    return x @ cast(nn.Embedding, chain.block(at)).weight


def of_features_every_round(exchange: Exchange, at: str) -> Exchange:
    """The same exchange for the outputs of block `at`, repeated before every round."""

    def client(job: Job, key: Key) -> Params:
        encoder = job.frozen("received", "running")

        def encode(x: Tensor) -> Tensor:
            return encoder.run(x, until=at)

        return exchange.client(replace(job, data=TransformedData(job.data, encode)), key)

    def notice(sizes: Sequence[int], releases: int) -> str:
        return (
            f"before every round, averages of the outputs of block '{at}' are sent, which anyone "
            f"who knows the weights can often invert: {exchange.notice(sizes, releases)}"
        )

    return exchange._replace(client=client, notice=notice, every_round=True)


def embedding_first(at: str) -> Need:
    """Needs a chain whose first block is the embedding `at`."""
    text = (
        f"a model that begins with an embedding called '{at}' "
        "(for other blocks, averages must be sent every round: every_round=true)"
    )
    return Need(text, lambda chain: _begins_with_embedding(chain, at), by_sample=True)


def _begins_with_embedding(chain: Chain, at: str) -> bool:
    block = chain.block(at) if chain.names[0] == at else None
    return type(block) is nn.Embedding and block.max_norm is None
