"""The papers' tables at their own scale: all cells can run, and their work is counted rightly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedloom.core.errors import UserError
from fedloom.core.spec import Spec
from fedloom.diagnostics.cost.gpu import PEAK_TFLOPS, SUSTAINED_SHARE, hours, sustained_flops
from fedloom.inspect import paper_scale
from fedloom.inspect.paper_data import paper_data
from fedloom.settings.config import Config, load
from fedloom.settings.paper_table import Table

COUNTS = json.loads((Path(__file__).parents[2] / "docs" / "paper-scale.json").read_text())
TABLES = {table.name: table for table in paper_scale.tables()}
MNIST_LIKE = {"data": {"name": "femnist", "partition": {"name": "user"}}, "model": "lenet5"}


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_cell_can_run(table: Table) -> None:
    assert paper_scale.problems(table) == []


def test_what_was_counted_is_of_the_presets_as_they_are() -> None:
    """If this fails: fedloom cost --paper-scale --json > docs/paper-scale.json, then make docs."""
    now = {name: paper_scale.digest(table) for name, table in TABLES.items()}
    assert {counted["table"]: counted["digest"] for counted in COUNTS} == now


def test_no_table_takes_less_than_its_steps() -> None:
    for counted in COUNTS:
        assert counted["hours"] >= 3 * counted["steps"] * 0.002 / 3600 - 1e-3


@pytest.mark.parametrize("name", ["fedafa/figure3", "fedmix/table15"])
def test_what_was_counted_is_counted_again(name: str) -> None:
    now = paper_scale.work(TABLES[name], paper_scale.CostCounter()).describe()
    stored = next(counted for counted in COUNTS if counted["table"] == name)
    assert stored["macs"] == pytest.approx(now["macs"], rel=1e-9)
    assert {**stored, "macs": now["macs"]} == {**stored, **now}


def run(**settings: object) -> Config:
    return load({**MNIST_LIKE, "rounds": 10, "sample": {"per_round": 4}, **settings})


def test_the_work_of_a_run_by_hand() -> None:
    counter, facts = paper_scale.CostCounter(), paper_data("femnist")
    cost = counter.cost([Spec("fedavg")], Spec("lenet5"), facts)
    config = run(train={"batch": 20, "epochs": 3}, evaluate={"every": 4})
    steps, macs = paper_scale.run_work(config, counter)
    visited = 10 * 4 * 3 * facts.client_samples(config.data)
    assert steps == pytest.approx(visited / 20)
    evaluated = 3 * 13_600  # after rounds 4, 8 and 10
    expected = visited * cost.training_macs + evaluated * cost.forward_macs
    assert macs == pytest.approx(expected)


def test_a_method_with_steps_of_its_own_and_two_batches_a_step() -> None:
    counter, facts = paper_scale.CostCounter(), paper_data("femnist")
    config = run(method="perfedavg(steps=7)", train={"batch": 20})
    steps, macs = paper_scale.run_work(config, counter)
    plain = counter.cost([Spec("fedavg")], Spec("lenet5"), facts)
    assert steps == 10 * 4 * 7
    trained = macs - 10 * facts.test * plain.forward_macs
    assert trained == pytest.approx(2 * 20 * steps * plain.training_macs)


def test_phases_are_counted_each() -> None:
    counter, facts = paper_scale.CostCounter(), paper_data("femnist")
    plain = counter.cost([Spec("fedavg")], Spec("lenet5"), facts)
    ditto = counter.cost([Spec("ditto")], Spec("lenet5"), facts)
    assert ditto.training_by_phase == pytest.approx((plain.training_macs,) * 2)
    assert paper_scale.run_work(run(method="ditto"), counter)[0] == pytest.approx(
        2 * paper_scale.run_work(run(), counter)[0]
    )


def test_rounds_that_are_reused_are_counted_once() -> None:
    table = TABLES["fedafa/figure3"]  # fedavg, fedavg-ft and fedafa, each scored in three ways
    counted = paper_scale.work(table, paper_scale.CostCounter())
    assert (counted.cells, counted.runs, counted.data) == (9, 1, ("cifar10",))


@pytest.mark.parametrize(
    ("data", "samples"),
    [
        ({"name": "cifar100", "clients": 100, "partition": "iid"}, 500),
        ({"name": "cifar10", "clients": 20, "per_class": 1667, "partition": "iid"}, 833.5),
        ({"name": "cifar10", "clients": 20, "longtail": 100, "partition": "iid"}, 12_406 / 20),
        ({"name": "cifar100", "clients": 20, "longtail": 100, "partition": "iid"}, 10_847 / 20),
    ],
)
def test_samples_of_the_average_client(data: dict, samples: float) -> None:
    config = load({"data": data})
    assert paper_data(config.data.name).client_samples(config.data) == samples


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"sample": {"per_round": 900}}, "sample.per_round=900 is more than the"),
        ({"method": "fedmix(at=nowhere, every_round=true)"}, "no block 'nowhere'"),
        ({"data": {"name": "cifar10", "clients": 60_000}}, "lower it"),
        ({"data": {"name": "heart"}}, "no data set of a paper 'heart'"),
    ],
)
def test_what_would_stop_a_run_is_found(settings: dict, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        paper_scale.check_run(run(**settings))


def test_tables_of_a_paper_or_one_or_all() -> None:
    assert [t.name for t in paper_scale.tables("fedmlb/table3")] == ["fedmlb/table3"]
    assert {t.name for t in paper_scale.tables("fedafa")} == {n for n in TABLES if "fedafa/" in n}
    with pytest.raises(UserError, match="no table or paper 'fedalin'; did you mean 'fedalign'"):
        paper_scale.tables("fedalin")


def test_hours_on_a_gpu() -> None:
    assert sustained_flops("a100") == PEAK_TFLOPS["a100"] * 1e12 * SUSTAINED_SHARE
    assert sustained_flops("a100", tflops=2.0) == 2e12
    assert hours(3.6e15, sustained_flops(tflops=2.0)) == 1.0
    with pytest.raises(UserError, match="no GPU class 'a10'; did you mean 'a100'"):
        sustained_flops("a10")
    with pytest.raises(UserError, match="--tflops 0 must be above 0"):
        sustained_flops(tflops=0.0)
