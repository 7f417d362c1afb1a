"""Federated LoRA: only adapters and head are trained, sent and remembered."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fedloom as fl
from api.test_frozen_weights import SeenByClients
from api.test_run import StopAfter
from api.tiny import sha
from fedloom.core.params import nbytes
from fedloom.core.roles import Roles
from fedloom.experiment.prepare import prepare
from fedloom.experiment.train import train
from support.lora_models import texts

FILE = str(Path(__file__).parents[1] / "support" / "lora_models.py")
BY_HAND, BERT = f"{FILE}:by_hand", f"{FILE}:bert"
needs_peft = pytest.mark.skipif(find_spec("peft") is None, reason="needs transformers and peft")
MODELS = [BY_HAND, pytest.param(BERT, marks=[needs_peft, pytest.mark.xdist_group("transformers")])]
SETTINGS: dict[str, Any] = {
    "clients": 4, "per_round": 2, "rounds": 3, "batch": 10, "lr": 0.5, "partition": "iid",
    "engine": "inprocess",
}  # fmt: skip


TEXTS: dict[str, Any] = {"data": texts(80, 0), "test": texts(40, 1), "kind": "text"}


def experiment(model: str, **changes: Any) -> fl.Experiment:
    return fl.Experiment(model=model, **{**TEXTS, **SETTINGS, **changes})


def initial(run: fl.Run) -> dict[str, Tensor]:
    return run._prepared.model.state_dict()


@pytest.mark.parametrize("model", MODELS)
def test_only_adapters_and_head_travel(model: str, desk: Path) -> None:
    inputs = experiment(model)._inputs
    with prepare(inputs.config, inputs.dataset) as prepared:
        roles = Roles.of(prepared.model)
        engine = SeenByClients(prepared.simulation.federation)
        train(replace(prepared, simulation=replace(prepared.simulation, engine=engine)))
    parts = ("lora_A", "lora_B", ".a.weight", ".b.weight", "classifier")
    assert engine.names == roles.weights | roles.statistics | roles.counters
    assert roles.weights and all(any(part in name for part in parts) for name in roles.weights)
    assert all(any(part in name for name in roles.weights) for part in parts[-1:])


@pytest.mark.parametrize("model", MODELS)
def test_few_bytes_and_unchanged_base(model: str, desk: Path) -> None:
    run, whole = experiment(model).run(), experiment(f"{model}(lora=false)", rounds=1).run()
    before = initial(run)
    with run._reopened() as reopened:
        final, frozen = reopened.state.params, Roles.of(reopened.prepared.model).frozen
    moved = {name for name, t in final.items() if not torch.equal(t, before[name])}
    assert frozen and moved.isdisjoint(frozen)  # adapters may stay where a gradient underflows
    assert {"classifier", "lora_B" if model == BERT else "b"} <= {
        part for name in moved for part in name.split(".")
    }
    sent = nbytes({n: t for n, t in before.items() if n not in frozen}) * SETTINGS["per_round"]
    for record in run.history:
        assert (record.bytes_up, record.bytes_down) == (sent, sent)
    assert run.history[0].bytes_up < whole.history[0].bytes_up / 5


@pytest.mark.parametrize("model", MODELS)
def test_a_resumed_run_has_the_same_bits(model: str, desk: Path) -> None:
    settings = {"train": {"momentum": 0.9, "reset": False}}
    with pytest.raises(KeyboardInterrupt):
        experiment(model, **settings).run("stopped", callbacks=[StopAfter(2)])
    resumed = fl.open("stopped", **TEXTS).resume()
    assert sha(resumed) == sha(experiment(model, **settings).run())


@pytest.mark.posix
def test_the_pool_has_the_same_bits(desk: Path) -> None:
    pool = experiment(BY_HAND, engine="pool", workers=2, method="scaffold").run()
    alone = experiment(BY_HAND, method="scaffold").run()
    assert sha(pool) == sha(alone)
    assert pool.history.total("bytes_down") == alone.history.total("bytes_down")


@pytest.mark.parametrize("x", [texts(80, 0)[0].float(), -texts(80, 0)[0], texts(80, 0)[0][:, 0]])
def test_texts_are_whole_numbers(x: Tensor, desk: Path) -> None:
    with pytest.raises(
        fl.UserError, match=r"token numbers from 0, \(samples, pos|features, \.\.\."
    ):
        experiment(BY_HAND, data=(x, texts(80, 0)[1]))


@pytest.mark.parametrize("model", MODELS)
def test_it_learns(model: str, desk: Path) -> None:
    momentum = 0.9 if model == BERT else 0.0
    run = experiment(model, rounds=12, train={"momentum": momentum, "epochs": 4}).run()
    assert run.accuracy > 0.6  # of four classes, on a base of random weights
    x, labels = texts(40, 2)
    assert (run.predict(x) == labels.numpy()).mean() > 0.6


@pytest.mark.parametrize("model", MODELS)
def test_a_method_that_needs_blocks(model: str, desk: Path) -> None:
    run = experiment(model, rounds=1, method="fedper").run()
    assert len(run.model.names) >= 3 and run.model.names[-1] == "head"  # type: ignore[arg-type]
    heads = [run.client(c).model.head.state_dict() for c in (0, 1)]  # type: ignore[union-attr]
    assert any(not torch.equal(heads[0][name], heads[1][name]) for name in heads[0])
