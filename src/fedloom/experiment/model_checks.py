"""What a model must be before round 0: it fits in memory, takes a sample, returns class scores.

A user's model must also be the same each time it is built, and return scores while it trains.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedloom.core import user_code
from fedloom.core.chain import Chain
from fedloom.core.chain_from_module import check_taps
from fedloom.core.determinism import fork_rng
from fedloom.core.errors import UserError
from fedloom.core.federation import Federation
from fedloom.core.job import build_isolated
from fedloom.core.model_output import contents, tensor_of
from fedloom.core.params import Params
from fedloom.core.spec import Spec
from fedloom.core.tensor_checks import first_not_finite
from fedloom.data.client import EvaluationBatches
from fedloom.data.dataset import Dataset
from fedloom.experiment.model_memory import (
    COPIES,
    check_fits,
    check_memory,
    ran_out_of_memory,
    too_large,
)
from fedloom.losses.eager_gradient import eager_gradient

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
    x = one_sample(federation)
    try:
        model = federation.build()
        check_fits(spec, model, COPIES - 1)
        with torch.no_grad():
            output = _output(model.eval(), x)
    except Exception as error:  # a user's model can fail in any way
        if ran_out_of_memory(error):
            raise too_large(spec) from error
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"model '{_name(spec)}' does not accept a sample of shape {dataset.shape}: "
            f"{_described(error)}; change its layers or choose another model"
        ) from error
    _check_scores(output, spec, federation, x)
    _check_numbers(federation, x)
    if user_code.is_reference(spec.name) and federation.method.needs:
        with torch.no_grad():
            check_taps(model, x.clone())
            if any(need.by_sample for need in federation.method.needs):
                _check_samples_first(model, x, spec, federation.method.name)
    return model.train()


def _check_numbers(federation: Federation, x: Tensor) -> None:
    """Raise if the method mixes samples, and these are tokens, which a model may embed itself."""
    method = federation.method
    for need in method.needs:
        if need.of_numbers and not x.is_floating_point():
            raise UserError(
                f"method '{method.name}': needs {need.text}, and these samples are tokens; "
                "choose a method that does not mix samples"
            )


def _check_samples_first(model: Chain, x: Tensor, spec: Spec, method: str) -> None:
    """Raise unless the samples are along the first axis of what every inner block returns."""
    for count in (2, 3):  # two sizes: another axis may have as many entries as one of the batches
        output = torch.cat([x] * count)
        for name in model.names[:-1]:
            output = model.block(name)(output)
            if output.shape[:1] != (count,):
                raise UserError(
                    f"model '{_name(spec)}': block '{name}' returns shape {tuple(output.shape)} "
                    f"for {count} samples, and method '{method}' needs the samples along the first "
                    "axis; swap the axes in the block (batch_first=True in layers of torch)"
                )


def one_sample(federation: Federation) -> Tensor:
    """One test sample as the model gets it; zeros of its form where all samples are at sites.

    A copy, so that a model which overwrites it is found out before it has changed the data.
    """
    test = federation.test
    if isinstance(test, EvaluationBatches) and not len(test):
        x = test.normalise(test.split.x.new_zeros((1, *test.split.x.shape[1:])))
    else:
        x = test[0][0][:1]
    return x.clone()


def _wanted_shapes(federation: Federation, x: Tensor) -> list[tuple[int, ...]]:
    """The shapes that the output for this batch may have, the usual one first."""
    outputs, task = federation.classes, federation.task.name
    if task == "next-token":
        return [(*x.shape, outputs)]
    usual = (len(x), outputs)
    return [usual, (len(x),)] if task == "regression" and outputs == 1 else [usual]


def _output(model: Chain, x: Tensor) -> Any:
    """What the last block returns, before the logits are taken from it."""
    *inner, last = model.names
    return model.block(last)(model.run(x, until=inner[-1]) if inner else x)


def _check_scores(
    output: Any, spec: Spec, federation: Federation, x: Tensor, when: str = ""
) -> None:
    """Raise unless the model's output for this batch has a wanted shape and is of real numbers.

    x: the batch as a tensor of its own, which the forward pass must have left unchanged.
    """
    if x._version:  # counts all writes, also those that happen to change nothing
        raise UserError(
            f"model '{_name(spec)}'{when} overwrites the samples that it gets, and they are used "
            "again; work on a copy: begin its forward with x = x.clone()"
        )
    wanted = _wanted_shapes(federation, x)
    line = _line_to_write(output, wanted[0])
    try:
        scores = tensor_of(output)
    except UserError as error:
        raise UserError(f"model '{_name(spec)}'{when}: {error}{line}") from error
    if tuple(scores.shape) not in wanted:
        among = "" if isinstance(output, Tensor) else f" in {contents(output)}"
        rows = "one sample" if len(x) == 1 else f"{len(x)} samples"
        raise UserError(
            f"model '{_name(spec)}'{when} returns shape {tuple(scores.shape)}{among} for {rows}, "
            f"and {wanted[0]} is needed{line or '; fix its last layer'}"
        )
    if not scores.is_floating_point():
        raise UserError(
            f"model '{_name(spec)}' returns numbers of type {scores.dtype}, and real numbers are "
            f"needed, one for {NEEDED[federation.task.name]}; return the scores, not the class"
        )


def _line_to_write(output: Any, wanted: tuple[int, ...]) -> str:
    """The line to write in forward if the scores are among several values that it returns."""
    if isinstance(output, Mapping):
        pairs = list(output.items())
    else:
        pairs = list(enumerate(output)) if isinstance(output, (tuple, list)) else []
    scores = [key for key, value in pairs if tuple(getattr(value, "shape", ())) == wanted]
    return f"; write in its forward: return out[{scores[0]!r}]" if scores else ""


def check_same_build(federation: Federation, spec: Spec, model: Chain) -> None:
    """Raise if a user's model differs when built again, or returns something else in training.

    Every worker builds its own copy, and a resumed run builds it again.
    """
    again = build_isolated(federation.build)
    _check_finite(spec, again)
    _check_unchanged_by_evaluation(federation, spec, again)
    first, second = model.state_dict(), again.state_dict()
    for name, tensor in first.items():
        if name not in second or not torch.equal(tensor, second[name]):
            raise UserError(
                f"model '{_name(spec)}' has different initial weights each time it is built "
                f"('{name}' differs); draw them with torch only, which is seeded"
            )
    _check_training_output(federation, spec, again)


def _check_finite(spec: Spec, model: Chain) -> None:
    """Raise for NaN or Inf, as in a mask of attention: its change, Inf - Inf, would be NaN."""
    if (name := first_not_finite(model.state_dict())) is None:
        return
    remedy = "give it finite initial values"
    if name not in dict(model.named_parameters(remove_duplicate=False)):
        remedy = "let it not travel: register_buffer(..., persistent=False)"
    raise UserError(
        f"'{name}' of model '{_name(spec)}' has NaN or Inf, which cannot be averaged; {remedy}"
    )


def _check_unchanged_by_evaluation(federation: Federation, spec: Spec, model: Chain) -> None:
    """Raise if a forward pass in evaluation changes a buffer that is averaged and stored."""
    before = _saved_buffers(model)
    with torch.no_grad(), fork_rng():
        _output(model.eval(), one_sample(federation))
    for name, buffer in _saved_buffers(model).items():
        if not torch.equal(buffer, before[name]):
            raise UserError(
                f"model '{_name(spec)}' changes its '{name}' in evaluation, so its scores would "
                "depend on what was evaluated before; change it in training only: if self.training:"
            )


def _saved_buffers(model: Chain) -> Params:
    """A copy of the buffers that are averaged and stored."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return {n: t.clone() for n, t in model.state_dict().items() if n not in parameters}


def _check_training_output(federation: Federation, spec: Spec, model: Chain) -> None:
    """Raise if the model returns something else in training, as models with two classifiers do."""
    x = torch.cat([one_sample(federation)] * 2)
    buffers = _saved_buffers(model)
    output = _training_output(spec, model, x)
    _check_scores(output, spec, federation, x, " in training (model.train())")
    trains = any(p.requires_grad for p in model.parameters())
    if trains and not tensor_of(output).requires_grad:
        raise UserError(
            f"model '{_name(spec)}' returns scores without a gradient, so no weight would be "
            "trained; remove torch.no_grad() and detach() from its forward"
        )
    if trains:
        _check_gradient(spec, model, tensor_of(output))
    with torch.no_grad():
        for name, buffer in model.state_dict(keep_vars=True).items():
            if name in buffers:
                buffer.copy_(buffers[name])
    _check_same_again(spec, tensor_of(output), tensor_of(_training_output(spec, model, x)))


def _check_gradient(spec: Spec, model: Chain, scores: Tensor) -> None:
    """Raise if torch cannot differentiate the scores, as after some writes in place."""
    trained = [p for p in model.parameters() if p.requires_grad]
    try:
        eager_gradient(scores.sum(), trained)
    except Exception as error:  # a user's model can fail in any way
        raise UserError(
            f"model '{_name(spec)}' fails in its backward pass: {_described(error)}; "
            "fix its forward"
        ) from error


def _check_same_again(spec: Spec, first: Tensor, second: Tensor) -> None:
    """Raise if two passes of the same samples, with the same buffers and draws, differ."""
    if not torch.allclose(first, second, rtol=1e-3, atol=1e-5, equal_nan=True):
        raise UserError(
            f"model '{_name(spec)}' returns something else for the same samples in its next "
            "forward pass, so clients would influence each other: it keeps something in an "
            "attribute or in a buffer with persistent=False, or it draws random numbers without "
            "torch's seed; keep it in a saved buffer, which is sent, and draw with torch only"
        )


def _training_output(spec: Spec, model: Chain, x: Tensor) -> Any:
    """What the model returns in training, with the same random draws in every call."""
    try:
        with fork_rng():
            torch.manual_seed(0)
            return _output(model.train(), x)
    except Exception as error:
        raise UserError(
            f"model '{_name(spec)}' fails in training: {_described(error)}; fix its forward"
        ) from error


def _described(error: Exception) -> str:
    """A RuntimeError of torch speaks for itself; other errors need their name."""
    return str(error) if type(error) is RuntimeError else f"{type(error).__name__}: {error}"


def _name(spec: Spec) -> str:
    return user_code.short_reference(spec.name)
