"""Metrics against scikit-learn: ties, missing classes, constant predictions, single samples."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics
from torch import Tensor

from fedloom.metrics import of_classes, of_labels, of_tokens, of_values
from fedloom.metrics.ranking import area_under_roc

EXACT = 1e-12
seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 40)


@pytest.fixture(autouse=True)
def _scikit_learn_warns_of_the_cases_that_are_meant() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def probabilities(seed: int, *shape: int, levels: int = 0) -> Tensor:
    """Rows that add up to 1; levels: few different values, so that there are ties."""
    draws = np.random.default_rng(seed)
    raw = draws.integers(1, levels + 1, shape) if levels else draws.random(shape)
    return torch.from_numpy(raw / raw.sum(-1, keepdims=True))


def indices(seed: int, high: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, high, shape))


def same(ours: float, theirs: float) -> bool:
    both_undefined = math.isnan(ours) and math.isnan(theirs)
    return both_undefined or abs(ours - theirs) <= EXACT * max(1.0, abs(theirs))


@settings(deadline=None)
@given(seeds, sizes, st.integers(0, 3))
def test_auroc_of_two_classes(seed: int, n: int, levels: int) -> None:
    p, y = probabilities(seed, n, 2, levels=levels), indices(seed + 1, 2, n)
    theirs = math.nan if len(y.unique()) < 2 else sklearn_metrics.roc_auc_score(y, p[:, 1])
    assert same(of_classes.auroc(p, y), theirs)


@settings(deadline=None)
@given(seeds, st.integers(6, 40), st.integers(0, 3), st.integers(3, 5))
def test_auroc_of_several_classes(seed: int, n: int, levels: int, classes: int) -> None:
    p, y = probabilities(seed, n, classes, levels=levels), indices(seed + 1, classes, n)
    y[:classes] = torch.arange(classes)
    theirs = sklearn_metrics.roc_auc_score(y, p, multi_class="ovr", average="macro")
    assert same(of_classes.auroc(p, y), theirs)


@settings(deadline=None)
@given(seeds, sizes, st.integers(0, 3), st.integers(3, 5))
def test_auroc_is_the_mean_over_the_classes_that_are_there(
    seed: int, n: int, levels: int, classes: int
) -> None:
    p, y = probabilities(seed, n, classes, levels=levels), indices(seed + 1, classes - 1, n)
    present = [c for c in y.unique().tolist() if (y != c).any()]
    areas = [sklearn_metrics.roc_auc_score(y == c, p[:, c]) for c in present]
    assert same(of_classes.auroc(p, y), float(np.mean(areas)) if areas else math.nan)


@settings(deadline=None)
@given(seeds, sizes, st.integers(0, 3), st.integers(2, 5), st.integers(0, 2))
def test_metrics_of_predicted_classes(
    seed: int, n: int, levels: int, classes: int, missing: int
) -> None:
    p = probabilities(seed, n, classes, levels=levels)
    y = indices(seed + 1, max(1, classes - missing), n)
    predicted = p.argmax(1)
    assert same(of_classes.macro_f1(p, y), sklearn_metrics.f1_score(y, predicted, average="macro"))
    theirs = sklearn_metrics.balanced_accuracy_score(y, predicted)
    assert same(of_classes.balanced_accuracy(p, y), theirs)


@settings(deadline=None)
@given(seeds, sizes, st.integers(0, 3), st.integers(2, 5))
def test_calibration_error_is_the_sum_over_bins(
    seed: int, n: int, levels: int, classes: int
) -> None:
    p, y = probabilities(seed, n, classes, levels=levels), indices(seed + 1, classes, n)
    edges = np.linspace(0, 1, 16)
    error = 0.0
    for low, high in itertools.pairwise(edges):
        rows = [i for i in range(n) if low < float(p[i].max()) <= high]
        if rows:
            accuracy = np.mean([int(p[i].argmax()) == int(y[i]) for i in rows])
            confidence = np.mean([float(p[i].max()) for i in rows])
            error += len(rows) / n * abs(accuracy - confidence)
    assert same(of_classes.calibration_error(p, y), error)


def test_calibration_error_by_hand() -> None:
    # in the bin of 0.9: two samples, one right; in the bin of 0.6: one sample, right
    p = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]])
    found = of_classes.calibration_error(p, torch.tensor([0, 1, 1]))
    assert found == pytest.approx(2 / 3 * 0.4 + 1 / 3 * 0.4)


@settings(deadline=None)
@given(seeds, st.integers(4, 40), st.integers(0, 3), st.integers(2, 5))
def test_metrics_of_labels(seed: int, n: int, levels: int, labels: int) -> None:
    draws = np.random.default_rng(seed)
    raw = (
        draws.integers(0, levels + 1, (n, labels)) / levels if levels else draws.random((n, labels))
    )
    p, y = torch.from_numpy(raw), indices(seed + 1, 2, n, labels).double()
    y[0], y[1] = 0, 1  # scikit-learn has no area for a label that all samples have
    theirs = sklearn_metrics.roc_auc_score(y, p, average="macro")
    assert same(of_labels.auroc(p, y), theirs)
    chosen = p > 0.5
    f1 = sklearn_metrics.f1_score(y, chosen, average="macro", zero_division=np.nan)
    assert same(of_labels.macro_f1(p, y), f1)
    wrong = sklearn_metrics.hamming_loss(y, chosen)
    assert same(of_labels.label_accuracy(p, y), 1 - wrong)


def test_labels_without_two_values_have_no_area_and_those_that_do_not_occur_no_f1() -> None:
    p = torch.tensor([[0.9, 0.2, 0.1], [0.1, 0.3, 0.2]], dtype=torch.float64)
    y = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    assert of_labels.auroc(p, y) == 1.0  # of the first label alone
    assert of_labels.macro_f1(p, y) == 0.5  # 1 for the first, 0 for the second, none for the third
    assert math.isnan(of_labels.auroc(p[:, 1:], y[:, 1:]))
    assert math.isnan(of_labels.macro_f1(p[:, 2:], y[:, 2:]))


@settings(deadline=None)
@given(seeds, sizes, st.integers(1, 3), st.booleans(), st.booleans())
def test_metrics_of_values(
    seed: int, n: int, columns: int, same_targets: bool, exact: bool
) -> None:
    draws = np.random.default_rng(seed)
    y = np.full((n, columns), 3.0) if same_targets else draws.normal(size=(n, columns))
    p = y.copy() if exact else draws.normal(size=(n, columns))
    ours = torch.from_numpy(p), torch.from_numpy(y)
    assert same(of_values.mae(*ours), sklearn_metrics.mean_absolute_error(y, p))
    assert same(of_values.rmse(*ours), sklearn_metrics.root_mean_squared_error(y, p))
    assert same(of_values.r2(*ours), sklearn_metrics.r2_score(y, p))


@pytest.mark.parametrize("metric", [of_values.mae, of_values.rmse, of_values.r2])
def test_one_column_and_none_mean_the_same(metric: Callable[[Tensor, Tensor], float]) -> None:
    p, y = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.5, 2.0, 3.0])
    assert metric(p.unsqueeze(1), y) == metric(p, y) == metric(p, y.unsqueeze(1))


@settings(deadline=None)
@given(seeds, st.integers(1, 5), st.integers(1, 6), st.integers(2, 5))
def test_metrics_of_tokens(seed: int, n: int, places: int, vocabulary: int) -> None:
    p = probabilities(seed, n, places, vocabulary)
    y = indices(seed + 1, vocabulary, n, places)
    y[indices(seed + 2, 2, n, places) == 0] = -100
    counted = [(p[i, t], int(y[i, t])) for i in range(n) for t in range(places) if y[i, t] >= 0]
    right = [int(row.argmax()) == token for row, token in counted]
    surprise = [-math.log(float(row[token])) for row, token in counted]
    assert same(of_tokens.token_accuracy(p, y), float(np.mean(right)) if right else math.nan)
    perplexity = math.exp(float(np.mean(surprise))) if surprise else math.nan
    assert of_tokens.perplexity(p, y) == pytest.approx(perplexity, rel=EXACT, nan_ok=True)


def test_a_model_that_guesses_evenly_has_the_perplexity_of_its_vocabulary() -> None:
    even = torch.full((2, 3, 7), 1 / 7, dtype=torch.float64)
    assert of_tokens.perplexity(even, torch.zeros(2, 3, dtype=torch.int64)) == pytest.approx(7)


def test_probability_zero_of_a_token_is_an_infinite_perplexity() -> None:
    assert of_tokens.perplexity(torch.tensor([[[1.0, 0.0]]]), torch.tensor([[1]])) == math.inf


@pytest.mark.parametrize(
    "metric",
    [
        lambda: of_classes.auroc(torch.full((4, 2), math.nan), torch.tensor([0, 1, 0, 1])),
        lambda: of_classes.calibration_error(torch.full((2, 2), math.nan), torch.tensor([0, 1])),
        lambda: of_labels.auroc(torch.full((2, 1), math.nan), torch.tensor([[0.0], [1.0]])),
        lambda: of_values.r2(torch.full((2,), math.nan), torch.tensor([0.0, 1.0])),
        lambda: of_values.mae(torch.zeros(0), torch.zeros(0)),
        lambda: of_classes.macro_f1(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64)),
        lambda: of_classes.balanced_accuracy(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64)),
        lambda: of_classes.calibration_error(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64)),
    ],
)
def test_no_number_comes_of_predictions_that_are_none(metric: Callable[[], float]) -> None:
    assert math.isnan(metric())


@given(seeds, sizes)
def test_the_area_does_not_depend_on_the_order_or_the_scale(seed: int, n: int) -> None:
    scores, positive = probabilities(seed, n, levels=4), indices(seed + 1, 2, n) == 1
    area = area_under_roc(scores, positive)
    again = area_under_roc(scores.flip(0).exp(), positive.flip(0))
    turned = area_under_roc(-scores, positive)
    assert same(area, again) and same(area, 1 - turned)
