"""What a model must be before round 0: it fits in memory, takes a sample, returns class scores.

A user's model must also be the same each time it is built, and return one tensor while it trains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedloom.core import user_code
from fedloom.core.chain import Chain
from fedloom.core.client import Federation
from fedloom.core.determinism import fork_rng
from fedloom.core.errors import UserError
from fedloom.core.job import build_isolated
from fedloom.core.spec import Spec
from fedloom.data.client import EvaluationBatches
from fedloom.data.dataset import Dataset
from fedloom.experiment.model_memory import (
    COPIES,
    check_fits,
    check_memory,
    ran_out_of_memory,
    too_large,
)

NEEDED = {
    "classification": "every class",
    "multilabel": "every label",
    "regression": "every target",
    "next-token": "every token at every position",
}


def check_model_output(
    federation: Federation, spec: Spec, dataset: Dataset, dtype: torch.dtype = torch.float32
) -> Chain:
    """The model, after checking that it takes a sample and returns a number for every output."""
    check_memory(spec, dataset, dtype)
    x = _sample(federation)
    try:
        model = federation.build()
        check_fits(spec, model, COPIES - 1)
        with torch.no_grad():
            output = model.eval()(x)
    except Exception as error:  # a user's model can fail in any way
        if ran_out_of_memory(error):
            raise too_large(spec) from error
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"model '{_name(spec)}' does not accept a sample of shape {dataset.shape}: "
            f"{_described(error)}; change its layers or choose another model"
        ) from error
    _check_scores(output, spec, _wanted_shapes(dataset), NEEDED[dataset.task])
    return model.train()


def _sample(federation: Federation) -> Tensor:
    """One test sample as the model gets it; zeros of its form where all samples are at sites."""
    test = federation.test
    if isinstance(test, EvaluationBatches) and not len(test):
        return test.normalise(test.split.x.new_zeros((1, *test.split.x.shape[1:])))
    return test[0][0][:1]


def _wanted_shapes(dataset: Dataset) -> list[tuple[int, ...]]:
    """The shapes that the output for one sample may have, the usual one first."""
    outputs = len(dataset.classes)
    if dataset.task == "next-token":
        return [(1, *dataset.shape, outputs)]
    return [(1, outputs), (1,)] if dataset.task == "regression" and outputs == 1 else [(1, outputs)]


def _check_scores(output: Any, spec: Spec, wanted: Sequence[tuple[int, ...]], needed: str) -> None:
    """Raise unless the output of a model for one sample has one of the wanted shapes.

    needed: what there must be a number for, in words.
    """
    if not isinstance(output, Tensor):
        raise UserError(
            f"model '{_name(spec)}' returns {_contents(output)}, and one tensor with a number for "
            f"{needed} is needed{_line_to_write(output, wanted[0])}"
        )
    if tuple(output.shape) not in wanted:
        raise UserError(
            f"model '{_name(spec)}' returns shape {tuple(output.shape)} for one sample, "
            f"and {wanted[0]} is needed; fix its last layer"
        )
    if not output.is_floating_point():
        raise UserError(
            f"model '{_name(spec)}' returns numbers of type {output.dtype}, and real numbers are "
            f"needed, one for {needed}; return the scores, not the class"
        )


def _contents(output: Any) -> str:
    """What a model has returned, in words.

    >>> _contents({"logits": 1, "features": 2}), _contents((1, 2)), _contents(None)
    ("a dict of 'logits', 'features'", 'a tuple of 2 values', 'None')
    """
    kind = type(output).__name__
    if isinstance(output, Mapping):
        return f"a {kind} of {', '.join(repr(key) for key in list(output)[:5])}"
    if isinstance(output, (tuple, list)):
        return f"a {kind} of {len(output)} values"
    return "None" if output is None else f"a {kind}"


def _line_to_write(output: Any, wanted: tuple[int, ...]) -> str:
    """The last line of a forward pass that returns the scores among several values."""
    if isinstance(output, Mapping):
        pairs = list(output.items())
    elif isinstance(output, (tuple, list)):
        pairs = list(enumerate(output))
    else:
        return "; return it from forward"
    scores = [key for key, value in pairs if tuple(getattr(value, "shape", ())) == wanted]
    if not scores:
        return "; return that tensor alone from forward"
    return f"; write in its forward: return out[{scores[0]!r}]"


def check_same_build(federation: Federation, spec: Spec, model: Chain) -> None:
    """Raise if a user's model is another one when it is built again, or when it is in training.

    Every worker builds its own copy, and a resumed run builds it again.
    """
    again = build_isolated(federation.build)
    first, second = model.state_dict(), again.state_dict()
    for name, tensor in first.items():
        if name not in second or not torch.equal(tensor, second[name]):
            raise UserError(
                f"model '{_name(spec)}' has other initial weights each "
                f"time it is built ('{name}' differs); draw them with torch only, which is seeded"
            )
    _check_training_output(federation, spec, again)


def _check_training_output(federation: Federation, spec: Spec, model: Chain) -> None:
    """Raise if the model returns something else in training, as those with two classifiers do."""
    x = _sample(federation)
    try:
        with torch.no_grad(), fork_rng():
            output = model.train()(torch.cat([x, x]))
    except Exception as error:
        raise UserError(
            f"model '{_name(spec)}' fails in training: {_described(error)}; fix its forward"
        ) from error
    if not isinstance(output, Tensor):
        raise UserError(
            f"model '{_name(spec)}' returns {_contents(output)} in training (model.train()), and "
            f"one tensor is needed{_line_to_write(output, (2, federation.classes))}"
        )


def _described(error: Exception) -> str:
    """A RuntimeError of torch speaks for itself; other errors need their name."""
    return str(error) if type(error) is RuntimeError else f"{type(error).__name__}: {error}"


def _name(spec: Spec) -> str:
    return user_code.short_reference(spec.name)
