"""What an exported program takes and what it answers, in numbers and in words for a colleague."""

from __future__ import annotations

import json
from typing import Any

from torch import Tensor, nn

from fedloom.core.model_output import tensor_of
from fedloom.experiment.prepare import PreparedRun
from fedloom.experiment.run_task import target_scale

OF_COLUMNS = (
    "one input for each entry of 'columns', in this order: (value - mean) / std, where the median "
    "stands for a missing value; 'NAME=CATEGORY' is 1 where column NAME has that category, else 0; "
    "'NAME is missing' is 1 where column NAME has no value, else 0; 'levels' are categories in "
    "order: the value is then the position in this list, from 0"
)
OF_BYTES = "bytes from 0 to 255, each times 'scale' plus 'shift' of its channel"
OF_CHANNELS = "numbers, each times 'scale' plus 'shift' of its channel"
AS_THEY_ARE = "samples as the data set has them, without any scaling"
OF_TOKENS = "token numbers; token i is the i-th of 'classes', from 0"

ANSWERS = {
    "classification": "a score for each of 'classes'; the highest is the prediction, and the "
    "softmax of the scores are probabilities",
    "multilabel": "a score for each of 'classes'; its sigmoid is the probability of the label",
    "regression": "a number for each of 'classes', in the units of the data",
    "next-token": "for every position a score for each of 'classes'; the highest is the next token",
}
OF_THE_WEIGHTS = (
    "the program (.pt2) answers in the units of the data; a model built from the weights alone "
    "answers in deviations: multiply by 'std' and add 'mean'"
)


class InUnitsOfTheData(nn.Module):
    """A model of regression whose outputs are values * std + mean, as `Run.predict` gives them."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, x: Tensor) -> Tensor:
        values = tensor_of(self.model(x))
        return values * self.std.to(values) + self.mean.to(values)


def in_units_of_the_data(model: nn.Module, prepared: PreparedRun) -> nn.Module:
    """The model with the scaling of its targets undone; itself where there is none."""
    scale = target_scale(prepared.config, prepared.dataset.train.y)
    if scale is None:
        return model
    device = next((p.device for p in model.parameters()), scale[0].device)
    return InUnitsOfTheData(model, *(constant.to(device) for constant in scale)).eval()


def describe_input(prepared: PreparedRun) -> dict[str, Any]:
    """Shape, type, and what to do to a raw sample."""
    normalise, dataset = prepared.clients.normalise, prepared.dataset
    x, _ = prepared.simulation.federation.test[0]
    dtype = str(x.dtype).removeprefix("torch.")
    description: dict[str, Any] = {"shape": list(dataset.shape), "dtype": dtype}
    if normalise.scale is not None and normalise.shift is not None:
        description["scale"] = normalise.scale.flatten().tolist()
        description["shift"] = normalise.shift.flatten().tolist()
        has_bytes = not dataset.train.x.is_floating_point()
        return {**description, "expects": OF_BYTES if has_bytes else OF_CHANNELS}
    if dataset.kind == "table" and "columns" in dataset.about:
        columns = json.loads(dataset.about["columns"])
        return {**description, "columns": columns, "expects": OF_COLUMNS}
    return {**description, "expects": OF_TOKENS if dataset.kind == "text" else AS_THEY_ARE}


def describe_output(prepared: PreparedRun) -> dict[str, Any]:
    """What the answers mean; for scaled targets their mean and deviation."""
    description: dict[str, Any] = {"is": ANSWERS[prepared.config.task]}
    scale = target_scale(prepared.config, prepared.dataset.train.y)
    if scale is None:
        return description
    mean, std = (constant.reshape(-1).tolist() for constant in scale)
    return {**description, "mean": mean, "std": std, "weights": OF_THE_WEIGHTS}
