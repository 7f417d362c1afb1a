"""FedMLB's tables as presets: printed numbers, and settings of the paper and authors' code."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest

from fedloom.core.spec import Spec, parse
from fedloom.settings.config import Config, load
from fedloom.settings.paper_table import Printed, Row, Scale, Table
from fedloom.settings.presets import names, preset

PAPER = Path(__file__).parents[3] / "shared" / "papers" / "fedmlb.txt"
TABLES = {
    name: table
    for name in names()
    if name.startswith("fedmlb/") and (table := preset(name).table) is not None
}


def table_of(table: int | str) -> Table:
    return TABLES[f"fedmlb/table{table}" if isinstance(table, int) else f"fedmlb/{table}"]


def row_of(table: int | str, name: str) -> Row:
    return next(r for r in table_of(table).rows if r.name == name)


def config(table: int | str, row: str, column: str, scale: Scale = "paper") -> Config:
    paper_table = table_of(table).at(scale, [row], [column])
    return load(paper_table.run_settings(paper_table.rows[0], paper_table.columns[0], scale))


def test_every_table_has_a_preset() -> None:
    assert set(TABLES) == {"fedmlb/overview", *(f"fedmlb/table{n}" for n in range(1, 12))}


ACCURACY_TABLES = (1, 2, 3, 4, 10, 11)  # tables of accuracies and rounds, in rows of eight
MEASURES = ("half", "end", "target1", "target2")


@pytest.mark.parametrize(
    ("table", "row", "group", "numbers"),
    [
        (1, "fedavg", "CIFAR C=100", "41.88 47.83 924 1000+"),
        (1, "fedadam", "Tiny C=100", "36.98 40.6 647 1000+"),
        (1, "fedavgm+fedmlb", "CIFAR C=500", "36.21 47.75 496 636"),
        (1, "feddyn+fedmlb", "Tiny C=500", "30.77 37.68 384 541"),
        (2, "fedprox", "CIFAR C=100", "42.03 47.93 419 1000+"),
        (2, "fedntd", "CIFAR C=500", "28.66 35.99 546 1000+"),
        (3, "kd", "K=50", "42.99 49.17 389 842"),
        (3, "fitnet", "K=100 by batch", "39.48 45.8 531 1000+"),
        (3, "fitnet", "K=100 by epochs", "39.48 45.8 531 1000+"),
        (3, "fedmlb", "K=200 by batch", "53.12 58.91 183 325"),
        (3, "fedmlb", "K=200 by epochs", "53.12 58.91 183 325"),
        (4, "fedmlb-reversed", "CIFAR C=500", "28.53 35.46 571 1000+"),
        (10, "fedadam+fedmlb", "CIFAR C=500", "39.57 53.53 402 621"),
        (10, "feddyn", "Tiny C=500", "26.42 31.8 485 1000+"),
        (11, "fedavg", "CIFAR C=100", "43.6 48.01 997 1000+"),
        (11, "fedadam", "Tiny C=500", "33.3 37.55 252 441"),
    ],
)
def test_accuracies_and_rounds_as_printed(table: int, row: str, group: str, numbers: str) -> None:
    """Copied by hand from the corners of the paper's tables."""
    numbers_by_column = row_of(table, row).printed
    assert " ".join(str(numbers_by_column[f"{group} {measure}"]) for measure in MEASURES) == numbers


@pytest.mark.parametrize(
    ("table", "row", "column", "number"),
    [
        (5, "1-4", "by used", "55.18"),
        (5, "4-5", "by all", "46.78"),
        (5, "2-5", "by used", "52.65"),
        (6, "5", "by all", "47.89 ± 3.99"),
        (6, "2 4", "by used", "51.86 ± 2.45"),
        (6, "1 2 3 4 5", "by used", "54.58"),
        (7, "ce=0", "kl=1", "53.27"),
        (7, "ce=1", "kl=0", "52.1"),
        (7, "ce=3", "kl=3", "53.57"),
        (8, "tau=0.75", "Dir(0.3)", "53.9"),
        (8, "tau=2", "Dir(0.6)", "56.87"),
        (9, "fedntd", "VGG-9", "51.37"),
        (9, "fedgkd", "MobileNet", "47.72"),
        (9, "fedmlb", "ShuffleNet", "42.29"),
        (9, "fedavg", "SqueezeNet", "39.86"),
    ],
)
def test_ablations_as_printed(table: int, row: str, column: str, number: str) -> None:
    assert str(row_of(table, row).printed[column]) == number


@pytest.mark.skipif(not PAPER.exists(), reason="the text of the paper is not available")
def test_rows_of_eight_numbers_match_the_text_of_the_paper() -> None:
    """Tables 1 to 4, 10 and 11; Tables 1, 10 and 11 print their first eight columns first."""
    numbers = re.compile(r"\d+\.\d+|\d+ ?\+|\d+")
    lines = [
        numbers.findall(line.partition("\t")[2])
        for line in PAPER.read_text(encoding="utf-8").splitlines()
    ]
    text = [
        [number.replace(" ", "") for number in line]
        for line in lines
        if len(line) == 8 and "." in line[0]
    ]
    assert text == [[as_text(n) for n in eight] for eight in ours_in_order()]


def ours_in_order() -> list[list[Printed]]:
    """The numbers of the presets in rows of eight, as the paper prints them."""
    eights = []
    for table in ACCURACY_TABLES:
        rows = [list(r.printed.values()) for r in table_of(table).rows]
        starts = {3: [(4, 12)]}.get(table) or [(s, s + 4) for s in range(0, len(rows[0]), 8)]
        eights += [row[a : a + 4] + row[b : b + 4] for a, b in starts for row in rows]
    return eights


def as_text(number: Printed) -> str:
    return f"{number.mean:.2f}" if isinstance(number.mean, float) else str(number)


def test_printed_rounds_agree_with_the_printed_accuracies_except_twice() -> None:
    """A target counts as reached by round 500 or 1000 iff the accuracy there is above it."""
    rows = [(n, row) for n in ACCURACY_TABLES for row in table_of(n).rows]
    odd = {(n, row.name, column) for n, row in rows for column in misfits(n, row)}
    assert odd == {
        (1, "fedadam+fedmlb", "Tiny C=500 target2"),
        (10, "feddyn+fedmlb", "Tiny C=500 target2"),
    }
    assert all("at round 500" in row_of(n, name).note for n, name, _ in odd)


def misfits(table: int, row: Row) -> list[str]:
    """The columns of rounds that contradict the accuracies of the same setup."""
    columns = table_of(table).columns
    contradicting = []
    for start in range(0, len(columns), 4):
        half, end = (c.name for c in columns[start : start + 2])
        for column in columns[start + 2 : start + 4]:
            rounds, to = row.printed[column.name], 100 * parse(column.measure)[0].args["to"]
            at_half, at_end = (row.printed[c].mean >= to for c in (half, end))
            if at_half != (rounds.mean <= 500) or at_end == rounds.lower_bound:
                contradicting.append(column.name)
    return contradicting


def test_the_overview_agrees_with_its_tables() -> None:
    places = {
        1: ("half", "end", "target2", "target4"),
        **dict.fromkeys((2, 4), ("half", "end", "target1", "target3")),
    }
    seen = set()
    for table, columns in places.items():
        for row in table_of(table).rows:
            seen.add(row.name)
            ours = row_of("overview", row.name).printed
            assert [ours[c] for c in columns] == list(row.printed.values())[:4]
    assert seen == {r.name for r in table_of("overview").rows}


def test_settings_at_the_papers_scale() -> None:
    plain = config(1, "fedavg", "CIFAR C=100 end")
    assert (plain.rounds, plain.data.name, plain.data.clients, plain.model) == (
        1000,
        "cifar100",
        100,
        Spec("resnet18"),
    )
    assert plain.data.partition == Spec("dirichlet-balanced", {"alpha": 0.3})
    assert plain.sample == Spec("uniform", {"per_round": 5}) and plain.evaluate.every == 1
    assert plain.data.augment == (
        Spec("rotation", {"degrees": 10}),
        Spec("pad-crop", {"padding": 4}),
        Spec("flip"),
    )
    train = plain.train
    assert (
        train.lr,
        train.batch,
        train.epochs,
        train.momentum,
        train.weight_decay,
        train.clip,
    ) == (0.1, 50, 5, 0.0, 1e-3, 10.0)
    assert (train.schedule.kind, train.schedule.factor) == ("exponential", 0.998)


@pytest.mark.parametrize(
    ("column", "data", "clients", "per_round", "batch"),
    [
        ("CIFAR C=100 end", "cifar100", 100, 5, 50),
        ("CIFAR C=500 end", "cifar100", 500, 10, 10),
        ("Tiny C=100 end", "tiny-imagenet", 100, 5, 100),
        ("Tiny C=500 end", "tiny-imagenet", 500, 10, 20),
    ],
)
@pytest.mark.parametrize(
    ("table", "partition"),
    [(1, "dirichlet-balanced 0.3"), (10, "dirichlet-balanced 0.6"), (11, "iid")],
)
def test_the_two_data_sets_and_the_two_numbers_of_clients(
    column: str, data: str, clients: int, per_round: int, batch: int, table: int, partition: str
) -> None:
    paper, small = (config(table, "fedmlb", column, scale) for scale in ("paper", "small"))
    assert (paper.data.name, paper.data.clients, paper.train.batch) == (data, clients, batch)
    assert paper.sample.args["per_round"] == per_round > small.sample.args["per_round"]
    assert small.data.name == data and small.data.clients < clients
    held = (
        {"cifar100": 50_000, "tiny-imagenet": 100_000}[data] // clients,
        10 * 250 // small.data.clients,
    )
    assert [5 * n // c.train.batch for n, c in zip(held, (paper, small), strict=True)] == [50, 25]
    for spec in (paper.data.partition, small.data.partition):
        assert " ".join([spec.name, *map(str, spec.args.values())]) == partition


def test_only_fedadam_has_a_low_rate_and_server_methods_keep_their_settings_with_fedmlb() -> None:
    for row in table_of("overview").rows:
        settings = config("overview", row.name, "end")
        assert settings.train.lr == (0.01 if row.name.startswith("fedadam") else 0.1)
        specs = {spec.name: spec.args for spec in settings.method_specs}
        if "+" in row.name:
            server, _ = row.name.split("+")
            alone = {w.name: w.args for w in config("overview", server, "end").method_specs}
            assert specs == {**alone, "fedmlb": {"ce": 1.0, "kl": 1.0, "temperature": 1.0}}


@pytest.mark.parametrize(("scale", "held", "factor"), [("paper", 500, 1.0), ("small", 125, 0.5)])
@pytest.mark.parametrize("column", [c.name for c in table_of(3).columns if c.name.endswith("end")])
def test_both_ways_to_reach_the_number_of_local_steps(
    column: str, scale: Scale, held: int, factor: float
) -> None:
    train, usual = (
        config(3, "fedavg", column, scale).train,
        config(3, "fedavg", "K=50 end", scale).train,
    )
    steps = int(column.split()[0].removeprefix("K=")) * factor
    assert (train.steps or train.epochs * -(-held // train.batch)) == steps
    assert (train.batch == usual.batch) == ("by batch" not in column)


def test_all_choices_of_pathways() -> None:
    numbers = "12345"
    choices = {" ".join(c) for k in range(1, 6) for c in combinations(numbers, k)}
    rows = table_of(6).rows
    assert len(rows) == 31 and {r.name for r in rows} == choices
    for row in rows:
        (spec,) = config(6, row.name, "by all").method_specs
        assert spec.args == {
            "ce": 1.0,
            "kl": 1.0,
            "temperature": 1.0,
            "divisor": "all",
            "pathways": row.name,
        }


def test_weights_and_temperatures_match_the_row_and_the_column() -> None:
    (both,) = config(7, "ce=2", "kl=3").method_specs
    assert both == Spec("fedmlb", {"temperature": 1.0, "kl": 3.0, "ce": 2.0})
    (warm,) = config(8, "tau=1.5", "Dir(0.6)").method_specs
    assert warm.args["temperature"] == 1.5 and config(
        8, "tau=1.5", "Dir(0.6)"
    ).data.partition.args == {"alpha": 0.6}
    assert config(9, "fedmlb", "MobileNet", "small").model == Spec("mobilenetv2")
    assert config(9, "fedmlb", "ResNet-18", "small").model == Spec("resnet8", {"width": 8})


def test_the_small_scale_has_its_own_targets() -> None:
    paper_table = table_of(2)
    paper, small = (
        paper_table.at(scale, ["fedavg"], ["CIFAR C=100 end", "CIFAR C=100 target1"]).columns
        for scale in ("paper", "small")
    )
    assert [c.measure for c in paper] == ["ema(of=1)", "rounds(to=0.40, ema=0.9)"]
    assert (
        small[0].measure == "ema(of=1)"
        and small[1].measure == small[1].measure_small != paper[1].measure
    )


def test_what_the_paper_leaves_open_about_server_methods_is_declared() -> None:
    arguments = {
        spec.name: spec.args
        for row in ("fedadam", "fedavgm", "fedprox", "fedntd")
        for spec in config("overview", row, "end").method_specs
    }
    declared = table_of("overview").about.departures
    assert f"FedAdam's beta1 {arguments['fedadam']['beta1']}" in declared
    assert f"beta2 {arguments['fedadam']['beta2']}" in declared
    assert f"FedAvgM's beta {arguments['fedavgm']['beta']}" in declared
    assert f"FedProx's mu {arguments['fedprox']['mu']}" in declared
    assert f"FedLS-NTD with weight {arguments['fedntd']['beta']}" in declared
