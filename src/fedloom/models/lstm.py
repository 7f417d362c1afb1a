"""Character LSTM: reads T characters and names the next one (LEAF's Shakespeare model, used by FedAvg and FedMix)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.spec import Param
from fedloom.models.layers import Shape

Dual = tuple[Tensor, Tensor]  # values and their tangent
Carry = Callable[[nn.Module, Tensor, Tensor], Dual]  # through a layer


def lstm(
    shape: Shape,
    classes: int,
    vocabulary: Annotated[
        int, Param("different characters in the input; 0 is as many as classes", low=0)
    ] = 0,
    embedding: Annotated[int, Param("numbers that stand for a character", low=1)] = 8,
    layers: Annotated[int, Param("LSTM layers, one block each", low=1)] = 2,
    width: Annotated[int, Param("units of an LSTM layer", low=1)] = 256,
) -> Chain:
    """Embedding, LSTM layers, and a linear layer on the last step."""
    if len(shape) != 1:
        raise UserError(
            f"model 'lstm' takes text (characters,), not samples of shape {shape}; choose mlp, lenet5 or a resnet"
        )
    blocks: dict[str, nn.Module] = {"embedding": nn.Embedding(vocabulary or classes, embedding)}
    for number in range(1, layers + 1):
        blocks[f"lstm{number}"] = Sequence(embedding if number == 1 else width, width)
    return Chain(blocks | {"head": LastStep(width, classes)})


class Sequence(nn.Module):
    """An LSTM layer that gives its states of all steps and nothing else."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.rnn = nn.LSTM(inputs, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        states: Tensor = self.rnn(x)[0]
        return states

    def along(self, carry: Carry, x: Tensor, t: Tensor) -> Dual:
        """How a tangent goes through: of an LSTM, it is that of the states."""
        return carry(self.rnn, x, t)


class LastStep(nn.Module):
    """A linear layer on the state of the last step."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.fc = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(x[:, -1])
        return logits

    def along(self, carry: Carry, x: Tensor, t: Tensor) -> Dual:
        """How a tangent goes through."""
        return carry(self.fc, x[:, -1], t[:, -1])
