"""FedMix's tables and figures as presets: printed numbers, settings of Table 8, buildable runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.core.spec import Spec
from fedloom.experiment.prepare import check_names
from fedloom.methods.registry import build
from fedloom.metrics import measures
from fedloom.metrics.curve import evaluations
from fedloom.models import registry
from fedloom.settings.config import Config, load
from fedloom.settings.paper_table import Scale, Table
from fedloom.settings.presets import names, preset

TABLES = {
    t.name.removeprefix("fedmix/"): t
    for n in names()
    if n.startswith("fedmix/") and (t := preset(n).table) is not None
}
SCALES: tuple[Scale, ...] = ("paper", "small")
SHAPES = {  # shape of a sample and number of classes of each data set in the presets
    "cifar10": ((3, 32, 32), 10),
    "cifar100": ((3, 32, 32), 100),
    "femnist": ((1, 28, 28), 62),
    "mnist-writers": ((1, 28, 28), 10),
    "shakespeare": ((80,), 84),
}
every_table = pytest.mark.parametrize("paper_table", TABLES.values(), ids=TABLES.keys())
every_scale = pytest.mark.parametrize("scale", SCALES)


def runs(paper_table: Table, scale: Scale) -> Iterator[tuple[Config, str]]:
    """The settings of every run and its measure, also of runs that the small scale leaves out."""
    part = paper_table.at(
        scale, [r.name for r in paper_table.rows], [c.name for c in paper_table.columns]
    )
    for column in part.columns:
        for row in part.rows:
            yield load(part.run_settings(row, column, scale)), column.measure


@pytest.fixture(scope="module")
def models() -> Callable[[Config], Chain]:
    """The model of a run; each is built once."""
    built: dict[str, Chain] = {}

    def model(config: Config) -> Chain:
        shape, classes = SHAPES[config.data.name]
        shape = (shape[0], config.data.pixels, config.data.pixels) if config.data.pixels else shape
        label = f"{config.model} {shape} {classes}"
        if label not in built:
            built[label] = registry.build(config.model, shape, classes, Key.root(0))
        return built[label]

    return model


@every_table
@every_scale
def test_every_run_can_be_built_and_read(
    paper_table: Table, scale: Scale, models: Callable[[Config], Chain]
) -> None:
    for config, measure in runs(paper_table, scale):
        check_names(config)
        build(config.method_specs).check(models(config))
        measures.check(measure, config.rounds, config.evaluate.every)
        assert config.sample.args.get("per_round", 1) <= config.data.clients
        if last := re.search(r"last=(\d+)", measure):
            assert int(last[1]) * 2 <= len(evaluations(config.rounds, config.evaluate.every)), (
                "the mean covers at most the second half of the run"
            )


def test_all_tables_and_figures_with_results_have_presets() -> None:
    own = {"derivative", "derivative-femnist"}  # tables of ours
    numbered = {re.match(r"(table|figure)(\d+)", name)[0] for name in TABLES.keys() - own}  # type: ignore[index]
    assert numbered == {f"table{n}" for n in range(1, 19) if n != 8} | {
        f"figure{n}" for n in (2, 3, 4)
    }


@every_table
def test_the_first_comment_ends_with_the_command(paper_table: Table) -> None:
    assert preset(paper_table.name).about.endswith(f". fedloom reproduce {paper_table.name}")


METHODS = "globalmixup fedavg localmix naivemix fedmix"
PROXIMAL = "fedprox fedprox+localmix fedprox+naivemix fedprox+fedmix"
PRINTED = {  # numbers of the paper, row by row, with our names of the rows
    "table1-femnist": (
        f"{METHODS} {PROXIMAL}",
        "88.2 8 85.3 26 82.8 28 85.9 23 86.5 18 84.6 29 84.1 39 85.7 37 86.0 32",
    ),
    "table1-cifar10": (
        f"{METHODS} {PROXIMAL}",
        "88.2 85 73.8 283 73.0 267 77.4 198 81.2 162 77.3 266 74.1 314 76.7 230 78.9 223",
    ),
    "table1-cifar100": (
        f"{METHODS} {PROXIMAL}",
        "61.4 54 50.4 101 54.8 91 53.8 85 56.7 34 51.2 79 54.0 90 53.1 74 54.5 63",
    ),
    "table2": (
        "globalmixup fedavg fedprox localmix naivemix fedmix",
        "54.4 54.7 54.4 53.7 56.9 56.9",
    ),
    "table3": (
        METHODS,
        "86.3 89.2 88.2 65.8 73.4 73.8 46.9 71.4 73.0 62.2 75.1 77.4 68.5 76.4 81.2",
    ),
    "table4": (
        METHODS,
        "71.4 86.1 88.2 61.8 74.7 73.8 43.7 60.3 73.0 51.5 69.6 77.4 65.2 77.8 81.2",
    ),
    "table6": (
        METHODS,
        "88.2 90.7 90.9 91.4 73.8 84.2 86.8 89.3 73 83.3 86.4 89.1 "
        "77.4 84.5 87.7 89.4 81.2 85.1 87.9 89.1",
    ),
    "table7": (
        METHODS,
        "89.3 89.7 88.2 91.2 90.7 63.3 73.2 73.8 76.3 83.1 64.7 64.5 73 77.9 79.8 "
        "73.6 74.7 77.4 81.4 83.5 74.7 76.9 80.5 82.1 84.3",
    ),
    "table9-femnist": ("naivemix noise means fedmix", "85.9 23 86.1 23 85.5 21 86.5 18"),
    "table9-cifar10": ("naivemix noise means fedmix", "77.4 198 77.9 201 73.5 233 81.2 162"),
    "table9-cifar100": ("naivemix noise means fedmix", "53.8 85 51.2 105 51.0 87 56.7 34"),
    "table10": (
        "fedavg localmix naivemix fedmix",
        "74.4 73.8 80.7 78.9 63.7 73.0 74.7 80.0 72.0 77.4 81.0 82.6 75.8 81.2 83.0 82.5",
    ),
    "table11": ("1 100 150 200", "83.0 83.3 83.1 82.9"),
    "table12": ("0.05 0.1 0.2", "82.8 82.8 83.0"),
    "table13": (
        "0.05 0.1 0.2",
        "82.8 85.8 15.1 77.6 14.8 85.4 9.3 82.8 81.1 17.4 76.4 14.1 86.2 9.5 "
        "83.0 83.9 16.2 77.6 14.8 85.8 10.0",
    ),
    "table15": ("m=1 m=4 m=10", "81.2 81.6 78.4"),
    "table17": ("0.05 0.1 0.2 0.5", "79.5 79.9 80.6 29.8"),
    "table18": (
        "fedavg globalmixup localmix naivemix fedmix",
        "83.9 87.6 91.1 91.1 84.0 88.0 85.0 88.2 86.4 88.4",
    ),
}


@pytest.mark.parametrize("name", PRINTED)
def test_as_printed(name: str) -> None:
    rows, numbers = (text.split() for text in PRINTED[name])
    paper_table = TABLES[name]
    ours = {
        r.name: [str(r.printed[c.name]) for c in paper_table.columns if c.name in r.printed]
        for r in paper_table.rows
        if "printed in" not in r.note
    }
    each = len(numbers) // len(rows)
    assert ours == {row: numbers[i * each : (i + 1) * each] for i, row in enumerate(rows)}


SWEPT = {  # numbers of one column, in the order of our rows
    "table5": "73.8 79.4 80.4 81.1 63.6 81.2 80.5 77.7 67.1",
    "table14": "81.4 80.1 81.1 78.7 81.5 79.9 80.8 79.1 79.4 81.7 80.4 80.5 79.7 80.7 81.0",
    "table16": "81.2 78.8",
    "figure3-femnist": "85.7 86.3 86.2 86.1 85.9 86.0 85.7 86.4 86.2 86.5",
    "figure3-cifar10": "79.6 77.9 79.1 77.1 77.4 81.4 79.9 80.4 79.5 81.2",
}


@pytest.mark.parametrize("name", SWEPT)
def test_sweeps_as_printed(name: str) -> None:
    assert [str(r.printed["accuracy"]) for r in TABLES[name].rows] == SWEPT[name].split()


@pytest.mark.parametrize(
    ("row", "method"),
    [
        ("table5/globalmixup 0.2", Spec("globalmixup", {"alpha": 0.0, "lam": 0.2, "samples": 0})),
        ("table14/M=20 0.075", Spec("fedmix", {"lam": 0.05, "size": 20, "noise": 0.075})),
        ("table14/M=5 0", Spec("fedmix", {"lam": 0.05, "size": 5, "noise": 0.0})),
        ("table15/m=10", Spec("fedmix", {"lam": 0.05, "merge": 10})),
        ("table11/100", Spec("fedmix", {"lam": 0.05, "least": 100})),
        ("table16/class split", Spec("fedmix", {"lam": 0.05, "split": "same-class"})),
        ("figure3-femnist/naivemix M=50", Spec("naivemix", {"lam": 0.2, "size": 50})),
        ("figure3-cifar10/fedmix all", Spec("fedmix", {"lam": 0.05})),
        ("table17/0.5", Spec("naivemix", {"lam": 0.5})),
        ("table9-femnist/noise", Spec("noisemix", {"lam": 0.2})),
        ("table9-femnist/means", Spec("meanmix", {"lam": 0.2})),
        ("table9-cifar10/noise", Spec("noisemix", {"lam": 0.1})),
        ("table9-cifar100/means", Spec("meanmix", {"lam": 0.1})),
        (
            "figure4/naivemix k=2",
            Spec("naivemix", {"lam": 0.1, "at": "conv2", "every_round": True}),
        ),
        ("figure4/fedmix k=4", Spec("fedmix", {"lam": 0.05, "at": "conv4", "every_round": True})),
    ],
)
def test_rows_do_what_they_are_called(row: str, method: Spec) -> None:
    name, _, called = row.partition("/")
    paper_table = TABLES[name]
    row = next(r for r in paper_table.rows if r.name == called)
    assert load(paper_table.run_settings(row, paper_table.columns[0], "paper")).method_specs == [
        method
    ]


@pytest.mark.parametrize(
    ("name", "epochs", "per_round", "clients", "rounds", "naive", "fed", "mu", "model"),
    [
        ("table1-femnist", 10, 10, 100, 200, 0.2, 0.2, 0.1, "lenet5"),
        ("table1-cifar10", 2, 15, 60, 500, 0.1, 0.05, 0.1, "vgg"),
        ("table1-cifar100", 10, 10, 100, 500, 0.1, 0.1, 0.01, "vgg"),
        ("table2", 2, 60, 60, 50, 0.1, 0.1, 0.001, "lstm"),
    ],
)
def test_settings_of_table_8(
    name: str,
    epochs: int,
    per_round: int,
    clients: int,
    rounds: int,
    naive: float,
    fed: float,
    mu: float,
    model: str,
) -> None:
    paper_table = TABLES[name]
    by_row = {
        r.name: load(paper_table.run_settings(r, paper_table.columns[0], "paper"))
        for r in paper_table.rows
    }
    for config in by_row.values():
        train, schedule = config.train, config.train.schedule
        assert (train.lr, schedule.kind, schedule.factor) == (0.01, "exponential", 0.999)
        assert (train.batch, train.epochs, train.momentum, train.weight_decay, train.clip) == (
            10,
            epochs,
            0,
            0,
            None,
        )
        chosen = (
            config.data.clients if config.sample.name == "all" else config.sample.args["per_round"]
        )
        assert (chosen, config.data.clients, config.rounds, config.model.name) == (
            per_round,
            clients,
            rounds,
            model,
        )
        assert (
            not config.data.augment and config.data.per_class is None and config.data.pixels is None
        )
    shares = {"naivemix": naive, "fedmix": fed}
    for config in by_row.values():
        for spec in config.method_specs:
            assert spec.args.get("lam") == shares.get(spec.name)
            assert spec.args.get("mu") == (mu if spec.name == "fedprox" else None)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", sorted(n for n in TABLES if "femnist" not in n and n != "table2"))
def test_every_class_is_split_among_the_same_number_of_clients(name: str, scale: Scale) -> None:
    """12 and 20 clients per class at the scale of the paper's main tables."""
    for config, _ in runs(TABLES[name], scale):
        if config.data.partition.name == "classes":
            kinds = config.data.classes or SHAPES[config.data.name][1]
            holders, rest = divmod(
                config.data.clients * config.data.partition.args["classes"], kinds
            )
            assert holders >= 1 and rest == 0
            if scale == "paper" and name.startswith("table1-"):
                assert holders == {"cifar10": 12, "cifar100": 20}[config.data.name]


@pytest.mark.parametrize(("scale", "samples"), [("paper", 833), ("small", 500)])
def test_table_3_keeps_the_samples_per_client(scale: Scale, samples: int) -> None:
    for config, _ in runs(TABLES["table3"], scale):
        assert 10 * (config.data.per_class or 5000) / config.data.clients == pytest.approx(
            samples, abs=0.5
        )


@pytest.mark.parametrize(
    ("scale", "smallest", "largest"), [("paper", 832, 834), ("small", 500, 500)]
)
def test_a_random_split_of_table_16_makes_two_averages_as_the_split_by_class_does(
    scale: Scale, smallest: int, largest: int
) -> None:
    paper_table = TABLES["table16"]
    size = (
        load(paper_table.run_settings(paper_table.rows[0], paper_table.columns[0], scale))
        .method_specs[0]
        .args["size"]
    )
    assert {-(-samples // size) for samples in range(smallest, largest + 1)} == {2}
    assert abs(2 * size - smallest) <= 2


@pytest.mark.parametrize("scale", ["paper", "small"])
def test_global_mixup_shares_all_data_as_in_the_paper(scale: Scale) -> None:
    shared = {
        (name, row.name): spec.args.get("samples")
        for name, paper_table in TABLES.items()
        for row in paper_table.rows
        for column in paper_table.columns
        for spec in load(paper_table.run_settings(row, column, scale)).method_specs
        if spec.name == "globalmixup"
    }
    assert len(shared) >= 12 and set(shared.values()) == {0}
