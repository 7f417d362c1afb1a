"""Rows per method, commands that repeat runs, and tables as text."""

import shlex
from typing import Any

import pytest

from fedloom.cli.options import gather
from fedloom.experiment.stored_run import StoredRun
from fedloom.metrics.history import History
from fedloom.metrics.records import RoundRecord
from fedloom.reports.by_method import by_method
from fedloom.reports.comparison import compare_runs, described
from fedloom.reports.rerun import compare_command, run_command
from fedloom.reports.table_text import latex, markdown
from fedloom.settings.config import Config, load


def run(accuracy: float = 0.5, **settings: Any) -> StoredRun:
    record = RoundRecord(1, (0, 1), {}, 0.1, 2, 10, 10, 1.0, accuracy=accuracy)
    return StoredRun(load(settings), History([record]), None)


def test_a_row_holds_the_seeds_of_a_method_and_fedavg_comes_first() -> None:
    runs = [run(method="fedprox", seed=1), run(seed=1), run(method="fedprox"), run(workers=2)]
    found = by_method(runs)
    assert list(found) == ["fedavg", "fedprox"]
    assert [r.config.seed for r in found["fedprox"]] == [0, 1]


def test_rows_of_one_method_are_named_by_what_differs() -> None:
    runs = [run(train={"lr": lr}, method="fedprox(mu=1)") for lr in (0.1, 0.2)]
    assert list(by_method(runs)) == ["fedprox(mu=1), train.lr=0.1", "fedprox(mu=1), train.lr=0.2"]


def test_a_run_that_occurs_twice_is_not_taken_for_two_seeds() -> None:
    again = by_method([run(), run(seed=1), run()])
    assert sorted(map(len, again.values())) == [1, 2]


def test_the_title_names_the_partition_with_its_parameters() -> None:
    runs = [run(seed=s, data={"partition": "dirichlet", "clients": 7}) for s in (0, 1)]
    assert described(runs) == "fashion-mnist, 7 clients, dirichlet(alpha=0.5), lenet5, 2 seeds"
    mixed = [run(), run(model="mlp")]
    assert described(mixed) == "fashion-mnist, 20 clients, dirichlet(alpha=0.3), seed 0"


SETTINGS: list[dict[str, Any]] = [
    {},
    {"method": "fedprox(mu=0.1)+fedavgm", "seed": 3, "rounds": 7},
    {"method": {"name": "fedprox", "fedprox": {"mu": 0.5}}, "model": "resnet8(norm=group)"},
    {"data": {"augment": ["flip", "pad-crop"], "mean": [0.5], "std": [0.2], "clients": 3}},
    {"data": {"name": "true", "partition": "iid"}},
    {"train": {"steps": 3, "clip": 1.5, "schedule": {"kind": "step", "factor": 0.5}}},
    {"sample": {"name": "uniform", "per_round": 9}, "device": "auto", "engine": "pool"},
    {"data": {"name": 'it\'s $(touch x); `y` "z"'}},
]


def read(command: str) -> Config:
    """The settings that the command line makes of a command."""
    words = shlex.split(command)[2:]
    flags, sets = {}, []
    for option, value in zip(words[::2], words[1::2], strict=True):
        if option == "--set":
            sets.append(value)
        else:
            number = option in ("--seed", "--rounds")
            flags[option.removeprefix("--")] = int(value) if number else value
    return load(gather(None, None, flags, sets))


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_command_of_a_run_gives_its_settings_again(settings: dict[str, Any]) -> None:
    config = load(settings)
    command = run_command(config)
    assert command is not None
    theirs, ours = (c.model_dump(exclude={"engine", "method"}) for c in (read(command), config))
    assert theirs == ours
    assert read(command).method_specs == config.method_specs


def test_no_command_is_better_than_a_wrong_one() -> None:
    """Text cannot hold this list of words as an argument of a spec."""
    config = load({"model": {"name": "mlp", "layers": ["a,b", "c)d"]}})
    assert run_command(config) is None


def test_one_command_for_all_runs_where_only_method_and_seed_differ() -> None:
    rows = by_method([run(method=m, seed=s) for m in ("fedprox(mu=1)", "fedavg") for s in (4, 5)])
    assert compare_command(rows) == (
        "fedloom compare --methods 'fedavg,fedprox(mu=1)' --seeds 2 --seed 4"
    )
    assert compare_command(by_method([run(seed=0), run(seed=2)])) is None  # seeds with a gap
    assert compare_command(by_method([run(), run(method="fedprox", rounds=3)])) is None


def test_text_of_a_table_is_inert() -> None:
    runs = {"a|b_c*<i>&%\\": [run(0.5), run(0.7, seed=1)], "plain": [run(0.25)]}
    comparison = compare_runs(runs)
    lines = markdown(comparison).splitlines()
    assert lines[2].startswith(r"| a\|b\_c\*\<i\>&%\\ | 60.00 ± 14.14 | ")
    assert lines[3].startswith("| plain | 25.00 | 1+ |")
    assert len({line.replace(r"\|", "").count("|") for line in lines[:4]}) == 1
    written = latex(comparison)
    assert r"a|b\_c*<i>\&\%\textbackslash{} & 60.00 $\pm$ 14.14 & " in written
    assert written.count(r"\\") == 3 and written.endswith(r"\end{tabular}")
