"""Edge cases of personalised methods.

Single samples, single classes, combinations and conflicts, and a run on disk.
"""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedloom.core.errors import UserError
from fedloom.core.method import Method
from fedloom.core.params import sha256
from fedloom.core.request import Broadcast, ClientTask
from fedloom.core.sampler import everyone
from fedloom.core.spec import parse
from fedloom.engines.inprocess import InProcess
from fedloom.experiment.prepare import prepare
from fedloom.experiment.train import Interrupted, train
from fedloom.methods import registry
from fedloom.methods.ditto import ditto
from fedloom.metrics.evaluate import score_clients, spread
from fedloom.runs.folder import RunFolder
from fedloom.settings.config import load
from support.clients import TensorClient
from support.models import FEATURES, Build, bare, nested
from support.simulate import SimulationResult, initial_model, simulate

SMALL = [
    "local",
    "fedbn",
    "lgfedavg",
    "fedper",
    "fedrep",
    "ditto",
    "finetune",
    "ros",
    "crt",
    "crt(fresh=true)",
]
OWN_DESCENT = ["pfedme(inner=2)", "perfedavg(steps=2)", "perfedavg(steps=2, variant=hf)"]
every_method = pytest.mark.parametrize("text", SMALL + OWN_DESCENT)


def method(text: str) -> Method:
    return registry.build(parse(text))


def clients_with(labels: list[list[int]]) -> list[TensorClient]:
    draws = torch.Generator().manual_seed(2)
    return [
        TensorClient(
            torch.randn(len(y), FEATURES, generator=draws, dtype=torch.float64), torch.tensor(y)
        )
        for y in labels
    ]


def finite(result: SimulationResult) -> bool:
    tensors = [
        t
        for c in range(len(result.simulation.federation.clients))
        for t in result.personal(c).values()
    ]
    return all(bool(torch.isfinite(t).all()) for t in [*tensors, *result.state.params.values()])


@every_method
@pytest.mark.parametrize("build", [nested, bare])
def test_clients_of_one_class(text: str, build: Build) -> None:
    result = simulate(
        method(text),
        2,
        build=build,
        clients=clients_with([[0] * 5, [2] * 7, [1] * 2]),
        sampler=everyone(),
    )
    assert finite(result)
    assert not any(report.rejected for report in result.reports)


@every_method
def test_clients_of_one_sample_on_a_model_without_batch_norm(text: str) -> None:
    result = simulate(
        method(text), 2, build=bare, clients=clients_with([[0], [2], [1, 0, 1]]), sampler=everyone()
    )
    assert finite(result)
    assert not any(report.rejected for report in result.reports)


@every_method
def test_a_client_of_one_sample_with_batch_norm_is_left_out_and_reported(text: str) -> None:
    """It makes no step, so it is neither averaged nor remembered.

    A run with such a client is rejected before round 0.
    """
    clients = clients_with([[0], [2, 1], [1, 0, 1]])
    result = simulate(method(text), 2, clients=clients, sampler=everyone(), strict=False)
    assert [r.rejected for r in result.reports] == [
        {0: "seen=0 must be from 1 to 1, the samples it holds"}
    ] * 2
    assert result.store.recall(0) == {}
    if "fresh" not in text:
        assert sha256(result.personal(0)) == sha256(result.state.params)


def test_such_a_run_is_rejected_before_round_0() -> None:
    data = {"clients": 300, "partition": "dirichlet(alpha=0.05, min_size=1)"}
    with pytest.raises(
        UserError,
        match=r"client \d+ has 1 sample, and model 'resnet8' has batch norm, "
        "which needs at least 2",
    ):
        prepare(load({"method": "ditto", "model": "resnet8(norm=batch)", "data": data}))


def test_classes_missing_from_the_test_data_do_not_count() -> None:
    """Mean recall over a client's training classes, as in FedAFA, and label-weighted accuracy."""
    labels = [[0, 0, 0, 1], [1, 2], [2, 2]]
    result = simulate(ditto(), 1, clients=clients_with(labels), sampler=everyone())
    (x, y), said = (clients_with([[0, 1] * 20])[0].x, torch.tensor([0, 1] * 20)), []
    engine = InProcess(replace(result.simulation.federation, test=[(x, y)]))
    sent = Broadcast("score", 1, result.state.params)
    scores = dict(engine.map(sent, (ClientTask(c, result.store.recall(c)) for c in range(3))))
    for client in range(3):
        model = initial_model(nested).eval()
        model.load_state_dict(result.personal(client))
        right = model(x).argmax(1) == y
        said.append([float(right[y == c].double().mean()) for c in (0, 1)])
    counts = torch.tensor([[3, 1, 0], [0, 1, 1], [0, 0, 2]])
    weighted, recall = score_clients(
        torch.stack([scores[c].counts.recall for c in range(3)]), scores[0].counts.seen, counts
    )
    assert weighted.tolist() == pytest.approx([(3 * said[0][0] + said[0][1]) / 4, said[1][1], 0.0])
    assert recall.tolist() == pytest.approx([sum(said[0]) / 2, said[1][1], 0.0])
    assert spread(recall).mean == pytest.approx((sum(said[0]) / 2 + said[1][1]) / 3)


def test_aliases_from_the_papers() -> None:
    assert {word: registry.entry(word).name for word in ("fedavg-ft", "local")} == {
        "fedavg-ft": "finetune",
        "local": "local-training",
    }
    assert method("fedprox(mu=0.1)+finetune(epochs=2)").name == "fedprox+finetune"


JOINS = [
    "fedprox+finetune", "fedadam+ros", "scaffold+finetune", "feddyn+crt", "fedbn+finetune",
    "fedper+fedprox+fedyogi", "ditto+fedadam", "ditto+fedbn", "lgfedavg+fedavg(weights=clients)",
    "pfedme+fedavgm", "pfedme+fedprox", "fedrep+fedprox", "fedrep+fedyogi+mixup", "fedrep+ditto",
    "fedrep+finetune", "perfedavg+fedadam", "perfedavg+fedbn", "mixup+finetune", "moon+ros",
    "local+finetune",
]  # fmt: skip


@pytest.mark.parametrize("text", JOINS)
def test_combinations_run(text: str) -> None:
    joined = method(text)
    joined.check(nested())
    assert joined.personal
    assert finite(simulate(joined, 1))


TWO = "two methods set their own {}; at most one of them can"
REJECTED = {
    "finetune+ros": TWO.format("finale"),
    "perfedavg+finetune": TWO.format("finale"),
    "pfedme+ditto": TWO.format("evaluated slot"),
    "pfedme+perfedavg": TWO.format("tunes for 'model'"),
    "fedrep+scaffold": (
        "'scaffold' uses the result of one descent, but 'fedrep' makes several; "
        "they cannot be combined"
    ),
    "ditto+finetune": (
        "evaluates 'personal', which no phase of the finale trains; the slots are model"
    ),
    "pfedme+crt": "evaluates 'theta', which no phase of the finale trains; the slots are model",
    "pfedme(beta=0.5)+fedavgm": (
        r"two server optimisers \(scale\(lr=0.5\), momentum\(beta=0.4, lr=1\)\) "
        "cannot be combined; keep one"
    ),
}


@pytest.mark.parametrize(("text", "sentence"), REJECTED.items(), ids=REJECTED)
def test_conflicts_raise_a_clear_error(text: str, sentence: str) -> None:
    with pytest.raises(UserError, match=rf"(?s)^method '[a-z+-]*': .*{sentence}"):
        method(text).check(nested())


@pytest.mark.parametrize("text", ["ditto", "lgfedavg", "pfedme(inner=2)"])
def test_a_run_on_disk_resumes_bit_for_bit(tmp_path: Path, text: str) -> None:
    size = {
        "data": {"clients": 60},
        "sample": {"per_round": 18},
        "evaluate": {"every": 3, "batch": 1000},
    }
    config = load({"rounds": 3, "method": text, "model": "mlp(width=8)", **size})
    asked, found = itertools.count(1), []
    with RunFolder.create(tmp_path / "parts", config.text()) as folder, pytest.raises(Interrupted):
        train(prepare(config), folder, stop=lambda: next(asked) == 2)
    RunFolder.create(tmp_path / "whole", config.text()).close()
    for name in ("parts", "whole"):
        with RunFolder.open(tmp_path / name) as folder:
            result = train(prepare(config), folder).result
            memories = {
                f"{c} {slot}": sha256(p)
                for c in range(60)
                for slot, p in folder.store.recall(c).items()
            }
        found.append((replace(result, seconds=0.0), memories))
    assert found[0] == found[1]
    assert found[0][0].personal_models is not None
    assert found[0][0].personal_models.mean_class_recall.std > 0
    assert 20 < len(found[0][1]) < 60
