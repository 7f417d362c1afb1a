"""A model's input, blocks, parameters, MACs and arguments, as plain data for lists and JSON.

Computed from the model itself, which needs torch. `models/table.py` reads the stored result for the
typical inputs and does not.
"""

from __future__ import annotations

from typing import Any

from fedloom.core.errors import unknown_name
from fedloom.core.key import Key
from fedloom.core.spec import Spec, parameters
from fedloom.models import registry
from fedloom.models.layers import Shape
from fedloom.models.summary import summary

Input = tuple[Shape, int]  # the shape of a sample and the number of classes
_FILLED_IN = ("shape", "classes")  # parameters that come from the data, not from the user


def describe_model(name: str, on: Input | None = None) -> dict[str, Any]:
    """One registered model on this input, or on its typical one. MACs are of one forward pass."""
    if name not in registry.MODELS:
        raise unknown_name("model", name, registry.MODELS, see="fedloom models")
    shape, classes = on or registry.TYPICAL_INPUT[name]
    chain = registry.build(Spec(name), shape, classes, Key.root(0), device="meta")
    counts = summary(chain, shape)
    blocks = [
        {"name": b.name, "output": list(b.output), "parameters": b.parameters, "macs": b.macs}
        for b in counts.blocks
    ]
    arguments = [
        parameter.describe()
        for parameter in parameters(registry.MODELS[name]).values()
        if parameter.name not in _FILLED_IN
    ]
    return {
        "name": name,
        "input": input_text(shape, classes),
        "parameters": counts.parameters,
        "macs": counts.macs,
        "blocks": blocks,
        "arguments": arguments,
    }


def describe_models(on: Input | None = None) -> list[dict[str, Any]]:
    """Every registered model, in the order of the registry."""
    return [describe_model(name, on) for name in registry.MODELS]


def input_text(shape: Shape, classes: int) -> str:
    """The input in words.

    >>> input_text((3, 32, 32), 100)
    '3 x 32 x 32, 100 classes'
    """
    return f"{' x '.join(map(str, shape))}, {classes} classes"
