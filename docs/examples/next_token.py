"""A small transformer that predicts every next character of a few verses.

python docs/examples/next_token.py
"""

import numpy as np
import torch
from torch import Tensor, nn

import fedloom as fl

VERSES = (
    """twinkle twinkle little star how i wonder what you are
up above the world so high like a diamond in the sky
"""
    * 8
)
LENGTH, WIDTH = 16, 32


def verses() -> tuple[np.ndarray, np.ndarray]:
    """Windows of characters, and the next character of each position."""
    letters = sorted(set(VERSES))
    tokens = np.array([letters.index(c) for c in VERSES])
    windows = np.lib.stride_tricks.sliding_window_view(tokens, LENGTH + 1)[::4]
    return windows[:, :-1], windows[:, 1:]


class Embedding(nn.Module):
    """A vector for each token, and one for each position."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.token = nn.Embedding(tokens, WIDTH)
        self.position = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return self.token(x) + self.position


class Causal(nn.Module):
    """A transformer layer in which a position sees only what comes before it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 64, dropout=0.0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], x.device, x.dtype)
        return self.layer(x, src_mask=mask)


def tiny_transformer(shape: tuple[int, ...], classes: int) -> fl.Chain:
    """Blocks for methods that need some: embedding, one layer, a head for every position."""
    return fl.Chain(
        {"embedding": Embedding(classes), "layer": Causal(), "head": nn.Linear(WIDTH, classes)}
    )


if __name__ == "__main__":
    experiment = fl.Experiment(
        "fedavg",
        tiny_transformer,
        verses(),
        task="next-token",
        partition="iid",
        clients=4,
        per_round=4,
        rounds=10,
        lr=0.5,
    )
    print(experiment.run().result)
