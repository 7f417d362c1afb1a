"""Mixing behind a block instead of at the inputs: what is averaged then, when, and what trains (FedMix, appendix E).

The hidden states of others are constants, made by the received encoder. So the encoder (the blocks up to `at`) must not move while
states are mixed: the mixed loss trains the decoder behind it, then plain epochs train the whole model. The paper does not say
how the two take turns; here each has all the epochs (or steps) of a round.

A mean of hidden states is not the hidden state of a mean, except where the encoder is linear: then averages that are sent once
hold for every later encoder. An embedding is linear in characters written as rows of zeros and a one, so the averages of text are
those of such rows, (characters, vocabulary), and `spoken` makes of them the mean of what the embedding gives. Behind any other
block (`again`), all clients are asked for the means of their hidden states before every round, at the weights of that round. Their
encoder has norms by running statistics and drops nothing, so that a hidden state hangs on its own sample only.
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
from fedloom.core.method import Exchange, Method, Need, Phase, inner_block
from fedloom.core.params import Params
from fedloom.core.select import blocks
from fedloom.core.spec import Param
from fedloom.core.step import Step
from fedloom.exchange.averaged_data import AveragedData

CHUNK = 100  # samples that are encoded at a time
At = Annotated[
    str, Param("block whose outputs are mixed, for text its embedding; '' mixes the samples")
]
Again = Annotated[
    bool,
    Param(
        "whether averages of what `at` gives are sent anew every round; an embedding needs them once"
    ),
]
Mixed = Callable[
    [Step, Tensor, tuple[Tensor, Tensor]], Tensor
]  # the loss, of hidden states and of one average with its label


@dataclass(frozen=True)
class View:
    """Data of which one sees something else than the samples."""

    data: Data
    see: Callable[[Tensor], Tensor]

    def __len__(self) -> int:
        return len(self.data)

    @property
    def labels(self) -> Tensor:
        return self.data.labels

    def batch(
        self, positions: Tensor, generator: torch.Generator | None = None, train: bool = True
    ) -> tuple[Tensor, Tensor]:
        x, y = self.data.batch(positions, generator, train)
        return torch.cat([self.see(part) for part in torch.split(x, CHUNK)]), y


def behind(name: str, at: str, every_round: bool, averaged: AveragedData, mixed: Mixed) -> Method:
    """The method that mixes behind a block: the decoder on the mixed loss, then the whole model on the plain one."""

    def loss(step: Step) -> Tensor:
        x_g, y_g = averaged.draw(step.job, step.key)
        return mixed(
            step,
            step.model.run(step.x, until=at),
            (x_g if every_round else spoken(step.model, at, x_g), y_g),
        )

    if not at:
        raise UserError(
            f"{name}(every_round=true) sends averages of what a block gives, and at='' names none; name one"
        )
    asked, need = (
        (anew(averaged.exchange, at), inner_block(at))
        if every_round
        else (spelt(averaged.exchange, at), embeds(at))
    )
    return Method(
        name, (Phase(loss=loss, trains=blocks(after=at)), Phase()), prologue=(asked,), needs=(need,)
    )


def spelt(exchange: Exchange, at: str) -> Exchange:
    """The same question about text, whose characters are embedded by the block `at`."""

    def client(job: Job, key: Key) -> Params:
        like = job.received[f"{at}.weight"]  # a row for every character
        return exchange.client(
            replace(job, data=View(job.data, lambda x: F.one_hot(x, len(like)).to(like.dtype))), key
        )

    return exchange._replace(client=client)


def spoken(chain: Chain, at: str, x: Tensor) -> Tensor:
    """The mean embedding of texts whose characters were averaged."""
    return x @ cast(nn.Embedding, chain.block(at)).weight


def anew(exchange: Exchange, at: str) -> Exchange:
    """The same question about hidden states, put before every round."""

    def client(job: Job, key: Key) -> Params:
        encoder = job.frozen("received", "running")
        return exchange.client(
            replace(job, data=View(job.data, lambda x: encoder.run(x, until=at))), key
        )

    def notice(sizes: Sequence[int], releases: int) -> str:
        what = f"every round anew, of what the blocks up to '{at}' make of samples"
        return f"{what}, which who knows the weights can often undo: {exchange.notice(sizes, releases)}"

    return exchange._replace(client=client, notice=notice, every_round=True)


def embeds(at: str) -> Need:
    """A chain that begins with this embedding."""
    text = f"a model that begins with an embedding called '{at}' (behind other blocks, averages must be sent anew: every_round=true)"
    return Need(text, lambda chain: _begins_with(chain, at))


def _begins_with(chain: Chain, at: str) -> bool:
    return (
        chain.names[0] == at
        and type(chain.block(at)) is nn.Embedding
        and cast(nn.Embedding, chain.block(at)).max_norm is None
    )
