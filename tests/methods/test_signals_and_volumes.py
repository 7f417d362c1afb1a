"""Every method trains on signals and on volumes, or is rejected with its reason before round 0."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedloom as fl
from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.spec import Spec, parse
from fedloom.data.client import federate
from fedloom.data.from_python import as_dataset
from fedloom.engines.vectorised import Vectorised
from fedloom.experiment.build import build_model
from fedloom.methods.registry import build, names
from support.signals import signals, volumes
from support.vectorised import NoFallback, assert_matches_inprocess, make_federation

REJECTED = {"stochdepth": "needs at least two residual branches"}
KINDS = {"signal": (signals, "cnn1d"), "volume": (volumes, "cnn3d")}


def experiment(kind: str, method: str, model: str = "(width=8)", **settings) -> fl.Experiment:
    make, name = KINDS[kind]
    given = {"clients": 3, "per_round": 2, "rounds": 1, "partition": "iid", "batch": 8}
    return fl.Experiment(method, name + model, make(), kind=kind, **{**given, **settings})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", names())
@pytest.mark.filterwarnings("ignore::fedloom.core.warn.FedloomWarning")
def test_every_method_trains_or_is_rejected(kind: str, method: str) -> None:
    exp = experiment(kind, method, engine="inprocess", guard={"strict": True})
    if method in REJECTED:
        with pytest.raises(UserError, match=REJECTED[method]):
            exp.check()
        return
    run = exp.run()
    assert 0 <= run.accuracy <= 1
    assert all(bool(t.isfinite().all()) for t in run.model.state_dict().values())


@pytest.mark.parametrize("kind", KINDS)
def test_training_learns_the_classes(kind: str) -> None:
    run = experiment(kind, "fedavg", rounds=15, per_round=3, lr=0.1, engine="inprocess").run()
    assert run.accuracy >= 0.9


def federation(kind: str, method: str, norm: str):
    """Three clients in double precision, as the tests of the vectorised engine have them."""
    make, name = KINDS[kind]
    dataset = as_dataset(make(), kind=kind)
    rows = np.array_split(np.arange(len(dataset.train)), [7, 19])
    clients = federate(dataset, rows, dtype=torch.float64)
    spec = Spec(name, {"width": 4, "norm": norm})
    return make_federation(
        build(parse(method)),
        list(clients),
        build=lambda: build_model(spec, dataset, Key.root(0), torch.float64, torch.device("cpu")),
    )


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_the_vectorised_engine_agrees_or_declines(kind: str, method: str, norm: str) -> None:
    tested = federation(kind, method, norm)
    if (why_not := Vectorised(tested, NoFallback()).why_not) is None:
        assert_matches_inprocess(tested, until=2)
    else:
        assert norm == "batch" and "batch" in why_not


@pytest.mark.parametrize("kind", KINDS)
def test_gradaug_rejects_groups_that_a_width_between_breaks(kind: str) -> None:
    """At width 0.8 eight channels keep 6, at 0.85 they keep 7, which 2 groups do not divide."""
    with pytest.raises(UserError, match="2 groups, which do not divide the 7 of 8 channels"):
        experiment(kind, "gradaug", "(width=8, groups=2)").check()


@pytest.mark.parametrize("kind", KINDS)
def test_augmentations_of_images_are_rejected(kind: str) -> None:
    with pytest.raises(
        UserError, match=f"flip is for images .* is {kind} data .* leave data.augment"
    ):
        experiment(kind, "fedavg", **{"data.augment": ["flip"]}).check()


@pytest.mark.parametrize("model", ["lenet5", "lstm"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_for_other_data_suggests_the_fitting_one(kind: str, model: str) -> None:
    make, name = KINDS[kind]
    with pytest.raises(UserError, match=f"choose {name} for {kind}s"):
        fl.Experiment("fedavg", model, make(), kind=kind, clients=3, partition="iid").check()
