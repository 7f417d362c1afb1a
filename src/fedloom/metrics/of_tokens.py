"""Metrics of next-token prediction, from the probabilities of the tokens.

Each function takes `predictions`, the probabilities of the vocabulary at each place (samples by
places by vocabulary), and `targets`, the tokens; -100 is not counted. NaN if all are.
"""

from __future__ import annotations

from torch import Tensor

IGNORED = -100


def token_accuracy(predictions: Tensor, targets: Tensor) -> float:
    """The share of tokens that are predicted as the most probable one."""
    counted = targets != IGNORED
    return float((predictions.argmax(-1) == targets)[counted].double().mean())


def perplexity(predictions: Tensor, targets: Tensor) -> float:
    """exp of the mean cross-entropy of a token: the size of the vocabulary for an even guess."""
    counted = targets != IGNORED
    given = predictions[counted].gather(1, targets[counted].unsqueeze(1)).double()
    return float((-given.log().mean()).exp())
