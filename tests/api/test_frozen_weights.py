"""A layer with requires_grad=False is neither trained nor uploaded, whatever the method."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import safetensors.torch
import torch
from torch import nn

import fedloom as fl
from api.test_run import StopAfter
from api.tiny import experiment, sha
from fedloom.core.federation import Federation
from fedloom.core.frozen_base import BASE
from fedloom.core.job import ModelPool
from fedloom.core.params import nbytes
from fedloom.core.request import Broadcast, ClientTask, Task
from fedloom.core.roles import Roles
from fedloom.core.select import everything, nothing
from fedloom.core.server import Absent, Reply
from fedloom.core.simulation import init_state
from fedloom.engines.inprocess import InProcess
from fedloom.engines.vectorised import Vectorised
from fedloom.experiment.prepare import prepare
from fedloom.experiment.train import train
from support.user_models import FROZEN, net

MODEL = str(Path(__file__).parents[1] / "support" / "user_models.py") + ":net"
METHODS = ("fedavg", "scaffold", "fedprox(mu=0.1)", "fedavgm", "fedadam", "feddyn", "ditto",
           "fedgkd", "pfedme(inner=2)")  # fmt: skip
# Tensors that travel for each weight, 1 for other methods; what the server adds, after round 1.
UPLOADS, DOWNLOADS = {"scaffold": 2}, {"scaffold": 2, "fedgkd": 2}
TRAIN = {"momentum": 0.9, "weight_decay": 0.1, "reset": False}


def frozen_run(method: str, model: str = MODEL, **changes: Any) -> fl.Run:
    settings = {**settings_for(method), **changes}
    return experiment(model=model, method=method, engine="inprocess", **settings).run()


def settings_for(method: str) -> dict[str, Any]:
    own_steps = method.startswith(("pfedme", "perfedavg"))  # which have no momentum
    return {"train": {**({} if own_steps else TRAIN), "batch": 10}, "batch": 10}


@pytest.mark.parametrize("method", METHODS)
def test_frozen_weights_keep_their_initial_values(method: str, desk: Path) -> None:
    run = frozen_run(method)
    before, after = start(run), run.model.state_dict()
    frozen = {n.removeprefix("model.") for n in FROZEN}
    same = {name for name, tensor in after.items() if torch.equal(tensor, before[f"model.{name}"])}
    assert frozen <= same
    assert same.isdisjoint({"first.weight", "last.weight", "frozen.norm.running_mean"})
    if method == "ditto":
        own = run.client(0).model.state_dict()
        assert all(torch.equal(own[name], after[name]) for name in frozen)


def start(run: fl.Run) -> dict[str, torch.Tensor]:
    """The model of a run before round 0."""
    return run._prepared.model.state_dict()


@pytest.mark.parametrize("method", METHODS)
def test_frozen_weights_are_not_sent(method: str, desk: Path) -> None:
    free = frozen_run(method, f"{MODEL}(frozen=false)").history
    sent = frozen_run(method).history
    size = nbytes({n: t for n, t in net().state_dict(prefix="model.").items() if n in FROZEN})
    clients, rounds = 3, 3
    up, down = UPLOADS.get(method, 1), DOWNLOADS.get(method, 1)
    saved = {name: free.total(name) - sent.total(name) for name in ("bytes_up", "bytes_down")}
    assert saved["bytes_up"] == size * clients * rounds * up
    assert saved["bytes_down"] == size * clients * (rounds + (down - 1) * (rounds - 1))


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "ditto"])
@pytest.mark.posix
def test_every_engine_and_a_resumed_run_agree(method: str, desk: Path) -> None:
    whole = sha(frozen_run(method))
    settings = {"model": MODEL, "method": method, "train": {**TRAIN, "batch": 10}}
    assert sha(experiment(**settings, engine="pool", workers=2).run()) == whole
    with pytest.raises(KeyboardInterrupt):
        experiment(**settings, engine="inprocess").run("stopped", callbacks=[StopAfter(2)])
    assert sha(fl.open("stopped").resume()) == whole


def test_the_vectorised_engine_agrees(desk: Path) -> None:
    settings = {"model": f"{MODEL}(norm=false)", "method": "fedavg"}
    with prepare(experiment(**settings, engine="vectorised").config) as prepared:
        assert cast(Vectorised, prepared.simulation.engine).why_not is None
    exact = experiment(**settings, engine="inprocess").run()
    close = experiment(**settings, engine="vectorised").run()
    assert close.history.total("bytes_up") == exact.history.total("bytes_up")
    for name, tensor in exact.model.state_dict().items():
        assert torch.allclose(close.model.state_dict()[name], tensor, atol=1e-5)


class SeenByClients(InProcess):
    """An engine that records the tensors of every broadcast and every memory."""

    def __init__(self, federation: Federation) -> None:
        super().__init__(federation)
        self.names: set[str] = set()

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        groups = [sent.params, *(p for name, p in sent.shared.items() if name != BASE)]
        for number, answer in super().map(sent, tasks):
            if isinstance(answer, Reply):
                groups += [*answer.uploads.values(), *answer.memories.values()]
            yield number, answer
        self.names.update(name for group in groups for name in group)


@pytest.mark.parametrize("method", [*METHODS, "fedbn", "fedrep", "perfedavg", "finetune"])
def test_frozen_weights_are_in_no_message_and_no_memory(method: str, desk: Path) -> None:
    config = experiment(model=MODEL, method=method, **settings_for(method)).config
    with prepare(config) as prepared:
        engine = SeenByClients(prepared.simulation.federation)
        seen = replace(prepared, simulation=replace(prepared.simulation, engine=engine))
        state = train(seen).state.params
    frozen = Roles.of(prepared.model).frozen
    assert frozen and frozen <= state.keys()
    assert engine.names.isdisjoint(frozen)
    assert engine.names >= state.keys() - frozen


def test_checkpoints_do_not_hold_frozen_weights_but_an_opened_run_has_them(desk: Path) -> None:
    run = experiment(model=MODEL, engine="inprocess").run("run")
    (*_, state) = sorted(Path("run/checkpoint").glob("round-*.safetensors"))
    paths = safetensors.torch.load_file(state)
    assert paths and not any(path.removeprefix("params/") in FROZEN for path in paths)
    assert set(safetensors.torch.load_file("run/checkpoint/frozen.safetensors")) == set(FROZEN)
    assert sha(fl.open("run")) == sha(run)


def test_a_checkpoint_with_other_frozen_weights_is_rejected(desk: Path) -> None:
    with prepare(experiment(model=MODEL).config) as prepared:
        state = init_state(prepared.simulation, prepared.model)
        assert prepared.state_problem(state) is None
        other = replace(state, params={**state.params, FROZEN[0]: state.params[FROZEN[0]] + 1})
        assert f"'params/{FROZEN[0]}' is frozen" in str(prepared.state_problem(other))


@pytest.mark.parametrize("method", ["fedavg", "ditto"])
def test_a_client_with_other_frozen_weights_is_left_out(method: str, desk: Path) -> None:
    """As a site would be that has loaded another file of pretrained weights."""
    with prepare(experiment(model=MODEL, method=method).config) as prepared:
        simulation = prepared.simulation

        def other() -> fl.Chain:
            chain = simulation.federation.build()
            chain.get_parameter(FROZEN[0]).data += 1e-3
            return chain

        state = init_state(simulation, prepared.model)
        sent = Broadcast("train", 0, state.params)
        ((_, reply),) = simulation.ask(sent, [ClientTask(0)])
        assert isinstance(reply, Reply)
        engine = InProcess(replace(simulation.federation, build=other))
        ((_, absent),) = replace(simulation, engine=engine).ask(sent, [ClientTask(0)])
    assert isinstance(absent, Absent) and "frozen weights" in absent.reason


def test_scratch_models_share_frozen_weights() -> None:
    pool = ModelPool(lambda: fl.Chain({"model": net()}))
    for _ in range(2):
        first = pool.load("model", pool.take("model")).state_dict()
        other = pool.load("teacher", pool.take("teacher")).state_dict()
    for name in first:
        assert (first[name].data_ptr() == other[name].data_ptr()) is (name in FROZEN)
        assert name not in FROZEN or torch.equal(first[name], pool.frozen_weights[name])


def test_a_model_of_frozen_weights_only(desk: Path) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 4)).requires_grad_(False)
    with pytest.raises(fl.UserError, match="every weight of this model is frozen"):
        experiment(model=model).run()


def test_a_phase_that_trains_frozen_weights_only(desk: Path) -> None:
    body, head = nn.Sequential(nn.Flatten(), nn.Linear(64, 4)), nn.Linear(4, 4)
    chain = fl.Chain({"body": body, "head": head.requires_grad_(False)})
    with pytest.raises(fl.UserError, match="trains only frozen weights of this model"):
        experiment(model=chain, method="fedrep").run()


def test_training_another_part_does_not_unfreeze() -> None:
    pool = ModelPool(lambda: fl.Chain({"model": net()}))
    for selector in (nothing, everything):
        pool.set_trainable(selector)
    trained = {n for n, p in pool._scratch("model")[0].named_parameters() if p.requires_grad}
    assert trained.isdisjoint(FROZEN) and trained == pool.roles.weights
    assert pool.kept(nothing) == frozenset(FROZEN)


def test_roles_of_a_frozen_layer() -> None:
    roles = Roles.of(fl.Chain({"model": net()}))
    assert roles.frozen == frozenset(FROZEN)
    assert "model.frozen.norm.running_mean" in roles.statistics
    assert "model.frozen.norm.num_batches_tracked" in roles.counters
    assert roles.weights == {f"model.{part}.{kind}" for part in ("first", "last")
                             for kind in ("weight", "bias")}  # fmt: skip
