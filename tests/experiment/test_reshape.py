"""A method that reshapes its model does so wherever a model is built, also in every worker."""

from typing import Any

import pytest

from fedloom.core.errors import UserError
from fedloom.core.job import build_isolated
from fedloom.core.params import sha256
from fedloom.engines.forkserver import ForkServer
from fedloom.experiment.build import build_federation
from fedloom.experiment.prepare import prepare
from fedloom.experiment.train import train
from fedloom.settings.config import load

SMALL = {
    "rounds": 2,
    "method": "moon(projection=12)+stochdepth(keep=0.5)",
    "model": "resnet8(width=4)",
    "data": {"clients": 50, "partition": "shards"},
    "sample": {"name": "in-advance", "per_round": 2},
    "train": {"steps": 2, "batch": 8},
    "evaluate": {"every": 2, "batch": 1000},
    "engine": "inprocess",
}


def settings(**changes: Any) -> Any:
    return load({**SMALL, **changes})


def test_every_process_builds_the_same_model() -> None:
    with prepare(settings()) as prepared, prepare(settings(seed=1)) as other:
        elsewhere = build_federation(prepared.config, prepared.dataset, prepared.clients)
        ours, theirs = (
            sha256(build_isolated(f.build).state_dict())
            for f in (prepared.simulation.federation, elsewhere)
        )
        assert ours == theirs == sha256(prepared.model.state_dict())
        assert ours != sha256(other.model.state_dict())
    assert prepared.model.names == ("stem", "layer1", "layer2", "layer3", "projection", "head")
    assert prepared.model.get_parameter("head.fc.weight").shape == (10, 12)


def test_workers_give_the_same_bits(fork_server: ForkServer) -> None:
    hashes = set()
    for engine, workers in (("inprocess", 1), ("pool", 2)):
        config = settings(engine=engine, workers=workers)
        with prepare(config, fork_server=fork_server) as prepared:
            hashes.add(train(prepared).result.weights_sha256)
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("method", "model", "sentence"),
    [
        (
            "moon+fedprox",
            "mobilenetv2",
            "method 'moon+fedprox': needs a last block that ends with a linear layer, ",
        ),
        (
            "stochdepth",
            "mlp",
            "method 'stochdepth': needs at least two residual branches, as the resnets of fedloom "
            "have, but the model has the blocks layer1, ",
        ),
    ],
)
def test_a_wrong_model_gets_one_sentence(method: str, model: str, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        prepare(settings(method=method, model=model))
    assert str(error.value).startswith(sentence)
    assert "\n" not in str(error.value)
