"""Mixing behind a block instead of at the inputs: what is averaged then, and what trains (FedMix, appendix E).

The hidden states of others are constants, made by the received encoder. So the encoder (the blocks up to `at`) must not move while
states are mixed: the mixed loss trains the decoder behind it, then plain epochs train the whole model. The paper does not say
how the two take turns; here each has all the epochs (or steps) of a round.

A mean of hidden states is not the hidden state of a mean, except where the encoder is linear: then averages that are sent once
hold for every later encoder. An embedding is linear in characters written as rows of zeros and a one, so the averages of text are
those of such rows, (characters, vocabulary), and `encoded` makes of them the mean of what the embedding gives. Any other encoder
would need a question to all clients before every round, at the weights of that round; it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.job import Data, Job
from fedloom.core.key import Key
from fedloom.core.method import Exchange, Need, Phase
from fedloom.core.params import Params
from fedloom.core.select import blocks
from fedloom.core.step import Loss


@dataclass(frozen=True)
class Spelt:
    """Text in which each character is a row of zeros and a one, so that it can be averaged."""

    data: Data
    like: Tensor  # the embedding's weight: a row for every character

    def __len__(self) -> int:
        return len(self.data)

    @property
    def labels(self) -> Tensor:
        return self.data.labels

    def batch(self, positions: Tensor, generator: torch.Generator | None = None, train: bool = True) -> tuple[Tensor, Tensor]:
        x, y = self.data.batch(positions, generator, train)
        return F.one_hot(x, len(self.like)).to(self.like.dtype), y


def spelt(exchange: Exchange, at: str) -> Exchange:
    """The same question about text, whose characters are embedded by the block `at`."""

    def client(job: Job, key: Key) -> Params:
        return exchange.client(replace(job, data=Spelt(job.data, job.received[f"{at}.weight"])), key)

    return exchange._replace(client=client)


def encoded(chain: Chain, at: str, x: Tensor) -> Tensor:
    """The mean embedding of texts whose characters were averaged."""
    return x @ cast(nn.Embedding, chain.block(at)).weight


def in_turn(mixed: Loss, at: str) -> tuple[Phase, ...]:
    """The decoder on the mixed loss, then the whole model on the plain one."""
    return Phase(loss=mixed, trains=blocks(after=at)), Phase()


def embeds(at: str) -> Need:
    """A chain that begins with this embedding."""
    return Need(f"a model that begins with an embedding called '{at}'", lambda chain: _begins_with(chain, at))


def _begins_with(chain: Chain, at: str) -> bool:
    return chain.names[0] == at and type(chain.block(at)) is nn.Embedding and cast(nn.Embedding, chain.block(at)).max_norm is None
