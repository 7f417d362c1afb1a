"""Character LSTM: reads T characters and predicts the next one.

LEAF's model for Shakespeare (Caldas et al. 2018), as FedAvg and FedMix use it: an embedding of
8 numbers per character, two LSTM layers of 256 units, and a linear layer on the last state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.spec import Param
from fedloom.models.layers import Shape, fitting_models

Dual = tuple[Tensor, Tensor]  # a value and its tangent
Carry = Callable[[nn.Module, Tensor, Tensor], Dual]  # (layer, value, tangent) -> those after it


def lstm(
    shape: Shape,
    classes: int,
    vocabulary: Annotated[
        int, Param("distinct characters in the input; 0: the number of classes", low=0)
    ] = 0,
    embedding: Annotated[int, Param("dimension of the character embedding", low=1)] = 8,
    layers: Annotated[int, Param("LSTM layers, one block each", low=1, high=1000)] = 2,
    width: Annotated[int, Param("units per LSTM layer", low=1)] = 256,
) -> Chain:
    """Character LSTM: embedding, LSTM layers, and a linear layer on the last time step."""
    if len(shape) != 1:
        raise UserError(
            f"model 'lstm' takes text (characters,), not samples of shape {shape}; "
            f"choose {fitting_models(shape)}"
        )
    blocks: dict[str, nn.Module] = {"embedding": nn.Embedding(vocabulary or classes, embedding)}
    for number in range(1, layers + 1):
        blocks[f"lstm{number}"] = LSTMLayer(embedding if number == 1 else width, width)
    return Chain(blocks | {"head": LastStep(width, classes)})


class LSTMLayer(nn.Module):
    """An LSTM layer that returns its hidden states at all time steps, and no final state."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.rnn = nn.LSTM(inputs, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        states: Tensor = self.rnn(x)[0]
        return states

    def along(self, carry: Carry, x: Tensor, t: Tensor) -> Dual:
        """Value and tangent after this layer, for losses/tangent.py."""
        return carry(self.rnn, x, t)


class LastStep(nn.Module):
    """A linear layer on the hidden state of the last time step."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.fc = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(x[:, -1])
        return logits

    def along(self, carry: Carry, x: Tensor, t: Tensor) -> Dual:
        """Value and tangent after this layer, for losses/tangent.py."""
        return carry(self.fc, x[:, -1], t[:, -1])
