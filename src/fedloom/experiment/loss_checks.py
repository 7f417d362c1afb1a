"""Checks a user-defined loss before round 0, on a few outputs of the new model."""

from __future__ import annotations

import torch
from torch import Tensor

from fedloom.core import user_code
from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.federation import Federation

SAMPLES = 32  # of a test batch
CONTRACT = "a loss gets (outputs, targets) of a batch and returns their mean as a scalar tensor"


def check_user_loss(federation: Federation, model: Chain, name: str) -> None:
    """Raise if the loss fails, or returns something that cannot be minimised.

    name: of the loss in the settings; empty if it is that of the task.
    """
    if not name or not len(federation.test):
        return
    x, y = (part[:SAMPLES] for part in federation.test[0])
    with torch.no_grad():
        outputs = model.eval()(x)
    model.train()
    about = f"loss '{user_code.short_reference(name)}'"
    outputs.requires_grad_()
    try:
        loss = federation.task.loss(outputs, y)
    except Exception as error:  # user code can fail in any way
        shapes = f"outputs of shape {tuple(outputs.shape)} and targets of shape {tuple(y.shape)}"
        cause = f"{type(error).__name__}: {error}"
        raise UserError(f"{about} fails on {shapes}: {cause}; {CONTRACT}") from error
    if problem := _problem(loss):
        raise UserError(f"{about} {problem}; {CONTRACT}")


def _problem(loss: object) -> str | None:
    """Why a value cannot be minimised, as a phrase; None if it can."""
    if not isinstance(loss, Tensor):
        what = "None" if loss is None else f"a {type(loss).__name__}"
        return f"returns {what}, which has no gradient: return the tensor itself, without .item()"
    if loss.dim():
        return f"returns shape {tuple(loss.shape)}: return its .mean()"
    if not loss.requires_grad:
        return (
            "returns a tensor that does not depend on the outputs, so nothing can be learned: "
            "compute it from them with torch, without .detach()"
        )
    if not loss.isfinite():
        return f"is {loss.item():g} on outputs of the new model, so no client could train with it"
    return None
