"""Models that are built from a configuration, as those of transformers are.

    fedloom run --model 'transformers:BertForSequenceClassification(num_hidden_layers=2)'

The arguments are those of the configuration, `config_class`; nothing is downloaded. For pretrained
weights, write a function that calls `from_pretrained`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from fedloom.core import user_code
from fedloom.core.errors import did_you_mean, raise_all, shown_text
from fedloom.core.spec import Spec

CLASSES = "num_labels"  # what a configuration calls the number of classes


def takes_config(source: Any) -> bool:
    """Whether a user's model is a class that is built from a configuration."""
    return isinstance(source, type) and isinstance(getattr(source, "config_class", None), type)


def build_from_config(spec: Spec, source: Any, classes: int) -> nn.Module:
    """The model of a configuration with these arguments and this number of classes."""

    def make(**args: Any) -> Any:
        return source(source.config_class(**args))

    name = user_code.short_reference(spec.name)
    raise_all(_problems(source.config_class(), spec.args), f"model '{name}'")
    args = {CLASSES: classes, **spec.args}
    return user_code.call_user_function("model", spec.name, nn.Module, make, args)


def _problems(config: Any, args: Mapping[str, Any]) -> Iterator[str]:
    """Arguments that the configuration does not have; it would take and ignore them."""
    known = [name for name in vars(config) if not name.startswith("_")]
    for name in args:
        if not hasattr(config, name):
            guess = did_you_mean(name, known)
            yield f"no parameter '{shown_text(name)}' of {type(config).__name__}{guess}"
