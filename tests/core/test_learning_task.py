"""The four tasks: each loss against plain loops in float64, and what it is a mean of."""

import math
from typing import get_args

import pytest
import torch
from torch import Tensor

from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.learning_task import IGNORED, TASKS, learning_task, standardised
from fedloom.settings.config import Config


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=Key.root(3).generator(), dtype=torch.float64)


def log_softmax(row: list[float], at: int) -> float:
    return row[at] - math.log(sum(math.exp(z) for z in row))


def classification(z: Tensor, y: Tensor) -> float:
    return -sum(log_softmax(r, int(c)) for r, c in zip(z.tolist(), y, strict=True)) / len(y)


def multilabel(z: Tensor, y: Tensor) -> float:
    pairs = list(zip(z.flatten().tolist(), y.flatten().tolist(), strict=True))
    return sum(math.log(1 + math.exp(-a if b else a)) for a, b in pairs) / len(pairs)


def regression(z: Tensor, y: Tensor) -> float:
    pairs = list(zip(z.flatten().tolist(), y.flatten().tolist(), strict=True))
    return sum((a - b) ** 2 for a, b in pairs) / len(pairs)


def next_token(z: Tensor, y: Tensor) -> float:
    pairs = zip(z.flatten(0, 1).tolist(), y.flatten().tolist(), strict=True)
    losses = [-log_softmax(r, c) for r, c in pairs if c != IGNORED]
    return sum(losses) / len(losses)


TOKENS = torch.tensor([[0, 2, IGNORED], [1, IGNORED, IGNORED], [2, 2, 1], [0, 0, IGNORED]])
CASES = {
    "classification": (drawn(4, 3), torch.tensor([0, 2, 1, 2]), classification, 4),
    "multilabel": (drawn(4, 3), (drawn(4, 3) > 0.2).float(), multilabel, 4),
    "regression": (drawn(4, 2), drawn(4, 2).float(), regression, 4),
    "next-token": (drawn(4, 3, 5), TOKENS, next_token, 8),
}
every_task = pytest.mark.parametrize("name", TASKS)


@every_task
def test_the_loss_is_the_mean_that_the_table_says(name: str) -> None:
    outputs, targets, expected, _ = CASES[name]
    assert float(TASKS[name].loss(outputs, targets)) == pytest.approx(
        expected(outputs, targets), rel=1e-12
    )


@every_task
def test_means_over_parts_add_up_by_units(name: str) -> None:
    """What the test loss relies on: the mean of all is that of the parts, weighted by units."""
    outputs, targets, _, units = CASES[name]
    task = TASKS[name]
    parts = [
        (float(task.units(y)), float(task.loss(z, y)))
        for z, y in ((outputs[:1], targets[:1]), (outputs[1:], targets[1:]))
    ]
    assert sum(n for n, _ in parts) == float(task.units(targets)) == units
    assert sum(n * loss for n, loss in parts) / units == pytest.approx(
        float(task.loss(outputs, targets)), rel=1e-12
    )


@pytest.mark.parametrize("name", ["classification", "multilabel", "regression"])
def test_the_loss_is_the_mean_of_those_of_the_samples(name: str) -> None:
    outputs, targets, _, _ = CASES[name]
    losses = TASKS[name].sample_losses
    assert losses is not None
    each = losses(outputs, targets)
    assert each.shape == (4,)
    assert float(each.mean()) == pytest.approx(float(TASKS[name].loss(outputs, targets)), rel=1e-12)


def test_a_single_target_may_be_a_column_or_a_vector() -> None:
    outputs, targets = drawn(4, 1), drawn(4)
    task = TASKS["regression"]
    assert task.sample_losses is not None
    for z, y in ((outputs, targets), (outputs[:, 0], targets), (outputs[:, 0], targets[:, None])):
        assert torch.equal(task.loss(z, y), (outputs[:, 0] - targets).square().mean())
        assert torch.equal(task.sample_losses(z, y), (outputs[:, 0] - targets).square())


@pytest.mark.parametrize("shape", [(4,), (4, 2)])
def test_scaled_targets_have_the_precision_of_the_outputs(shape: tuple[int, ...]) -> None:
    """Targets are stored as float32, and training in float64 must not inherit their rounding."""
    outputs, targets = drawn(*shape), (140 + 9 * drawn(*shape)).float()
    mean, std = targets.double().mean(0), targets.double().std(0)
    task = standardised(TASKS["regression"], mean, std)
    expected = (outputs - (targets.double() - mean) / std).square().mean()
    assert float(task.loss(outputs, targets)) == pytest.approx(float(expected), rel=1e-14)
    assert task.loss(outputs.float(), targets).dtype == torch.float32


def test_half_precision_outputs_do_not_round_the_targets() -> None:
    outputs, targets = torch.full((4, 1), 140.0, dtype=torch.bfloat16), torch.full((4,), 140.3)
    task = TASKS["regression"]
    assert task.sample_losses is not None
    assert float(task.loss(outputs, targets)) == pytest.approx(0.09, rel=1e-4)
    assert float(task.sample_losses(outputs, targets)[0]) == pytest.approx(0.09, rel=1e-4)


def test_a_batch_without_a_token_that_counts_has_loss_0() -> None:
    outputs = drawn(2, 3, 5).requires_grad_()
    loss = TASKS["next-token"].loss(outputs, torch.full((2, 3), IGNORED))
    loss.backward()
    assert loss.item() == 0 and not outputs.grad.any()  # type: ignore[union-attr]


def test_predictions_are_probabilities_or_values() -> None:
    z = drawn(4, 3)
    assert torch.equal(TASKS["classification"].predictions(z), z.softmax(1))
    assert torch.equal(TASKS["multilabel"].predictions(z), z.sigmoid())
    assert torch.equal(TASKS["regression"].predictions(z), z)
    tokens = drawn(2, 3, 5)
    assert torch.equal(TASKS["next-token"].predictions(tokens), tokens.softmax(2))


def test_settings_know_the_same_tasks() -> None:
    assert list(get_args(Config.model_fields["task"].annotation)) == list(TASKS)
    assert Config().task == "classification"


def test_an_unknown_task_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match="no task 'regresion'; did you mean 'regression'"):
        learning_task("regresion")
