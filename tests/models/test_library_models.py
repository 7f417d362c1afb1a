"""Models of other libraries by their import path: from a configuration, or with num_classes."""

from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import nn

from fedloom.core import user_code
from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.spec import Spec, parse
from fedloom.models.from_user import build_user_model


class Config:
    """Like a PretrainedConfig: it takes arguments of any name."""

    def __init__(self, hidden_size: int = 5, num_labels: int = 2, **others: Any) -> None:
        self.hidden_size, self.num_labels = hidden_size, num_labels


class FromConfig(nn.Module):
    config_class = Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.fc = nn.Linear(config.hidden_size, config.num_labels)


def by_name(model_name: str, num_classes: int = 1000) -> nn.Module:
    return nn.Linear(len(model_name), num_classes)


def passing_on(model_name: str, **kwargs: Any) -> nn.Module:
    return by_name(model_name, **kwargs)


def built(source: Any, text: str) -> nn.Module:
    spec = Spec("python:model", parse(text)[0].args)
    chain = build_user_model(spec, source, (4,), 3, Key.root(0), lambda: torch.zeros(1, 4))
    return chain.block("model")


@pytest.mark.parametrize(
    ("source", "text", "inputs", "outputs"),
    [
        (FromConfig, "m", 5, 3),
        (FromConfig, "m(hidden_size=7, num_labels=4)", 7, 4),
        (by_name, "m(model_name=net)", 3, 3),
        (by_name, "m(model_name=net, num_classes=8)", 3, 8),
        (passing_on, "m(model_name=net, num_classes=9)", 3, 9),
    ],
)
def test_arguments(source: Any, text: str, inputs: int, outputs: int) -> None:
    model = built(source, text)
    (layer,) = [m for m in model.modules() if isinstance(m, nn.Linear)]
    assert (layer.in_features, layer.out_features) == (inputs, outputs)


@pytest.mark.parametrize(
    ("source", "text", "said"),
    [
        (FromConfig, "m(hiden_size=7)", "no parameter 'hiden_size' of Config; did you mean 'hidd"),
        (by_name, "m", "takes the parameters model_name, num_classes; write a function of"),
        (by_name, "m(model_name=net, width=2)", "no parameter 'width'"),
        (passing_on, "m(model_name=net, width=2)", "unexpected keyword argument 'width'"),
    ],
)
def test_wrong_arguments(source: Any, text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        built(source, text)


BERT = "transformers:BertForSequenceClassification"


@pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers and peft")
@pytest.mark.xdist_group("transformers")
def test_a_model_of_transformers() -> None:
    arguments = "hidden_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=11"
    spec = parse(f"{BERT}({arguments}, intermediate_size=8)")[0]
    with pytest.raises(UserError, match="--trust"):
        user_code.load("model", spec.name)
    user_code.allow([spec.name])
    source = user_code.load("model", spec.name)

    def build() -> Any:
        chain = build_user_model(spec, source, (4,), 3, Key.root(0), lambda: torch.zeros(1, 4))
        return chain.eval()

    ids = torch.arange(8).view(2, 4)
    first = build()
    assert first(ids).shape == (2, 3)
    assert torch.equal(first(ids), build()(ids))
    with pytest.raises(UserError, match="no parameter 'layers' of BertConfig"):
        built(source, "m(layers=3)")
