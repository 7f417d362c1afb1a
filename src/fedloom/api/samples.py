"""Raw samples that a user passes to a finished run, as its model takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedloom.core.errors import UserError
from fedloom.core.model_output import tensor_of
from fedloom.data.dataset import Dataset
from fedloom.data.sources.array_kinds import AXES, finite_float32
from fedloom.data.sources.errors import data_error
from fedloom.data.sources.pixel_arrays import as_uint8_images, channels_first, to_uint8
from fedloom.data.sources.python_values import as_array
from fedloom.data.sources.raw_rows import WHERE, column_plans, encoded_rows
from fedloom.experiment.build import server_device
from fedloom.experiment.prepare import PreparedRun


def as_model_takes_them(x: Any, prepared: PreparedRun) -> Tensor:
    """Raw samples, normalised and on the device of the model."""
    dataset = prepared.dataset
    plans = column_plans(dataset)
    array = as_array(x, WHERE) if plans is None else encoded_rows(x, plans)
    if dataset.kind == "image":
        stored_as_uint8 = dataset.train.x.dtype == torch.uint8
        array = (as_uint8_images if stored_as_uint8 else channels_first)(array, WHERE)
    elif dataset.kind in AXES and array.ndim == AXES[dataset.kind] + 1:
        array = array[:, None]  # samples of one channel may leave that axis out
    if array.shape[1:] != tuple(dataset.shape):
        raise UserError(
            f"the samples have shape {array.shape[1:]} each, and the model takes "
            f"{tuple(dataset.shape)}; pass an array with one row per sample"
        )
    array = np.require(_as_in_training(array, dataset), requirements="W")  # torch wants writable
    tensor = torch.as_tensor(array).to(server_device(prepared.config))
    return prepared.clients.normalise(tensor)


def _as_in_training(array: np.ndarray, dataset: Dataset) -> np.ndarray:
    """Samples in the type in which those of training are stored; raises for NaN and infinity."""
    if array.dtype.kind not in "biuf":
        remedy = "pass numbers like those of training"
        raise data_error(WHERE, f"values of type {array.dtype}", "numbers", remedy)
    if dataset.kind == "text":
        return array.astype(np.int64) if array.dtype.kind in "iu" else array
    if dataset.train.x.dtype == torch.uint8:
        return to_uint8(array, WHERE)
    return finite_float32(array, WHERE, "fill in what is missing, or leave these samples out")


def outputs_of(model: nn.Module, x: Tensor, dataset: Dataset) -> Tensor:
    """The scores of a model for samples that may be none that it knows."""
    try:
        return tensor_of(model(x))
    except Exception as error:  # an unknown token, no sample, numbers of another type
        raise UserError(
            f"the model fails on these samples, {x.dtype} of shape {tuple(x.shape)}: "
            f"{type(error).__name__}: {error}; pass samples like those of training, "
            f"{dataset.train.x.dtype} of shape {tuple(dataset.shape)} each"
        ) from error
