"""`compare`: runs, folders, or an experiment with several methods, as a table and as curves."""

import json
import statistics
import sys
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import fedloom as fl
from api.tiny import experiment, sha
from cli import talk
from fedloom.metrics.curve import CurveOptions


def quiet(weight: float) -> fl.Method:
    return fl.Method("quiet", fl.Phase(terms=lambda step: weight * step.logits.square().mean()))


def test_runs_that_differ_in_their_seed_are_one_row(desk: Path) -> None:
    """Whether they are in memory, were just made in a folder, are opened, or given as a folder."""
    first, second = experiment(method="fedprox"), experiment(method="scaffold")
    runs = [
        first.run(),
        first.replace(seed=1).run("one"),
        second.run("scaffold"),
        fl.open(first.replace(seed=2).run("two").folder or ""),
    ]
    first.replace(seed=3).run("three")
    compared = fl.compare(*runs, "three")
    assert [row.name for row in compared.rows] == ["fedprox", "scaffold"]
    prox = [runs[0], runs[1], runs[3], fl.open("three")]
    # three evaluations, and all of them belong to the last ones that are averaged
    means = [statistics.fmean(run.history.accuracy.values()) for run in prox]
    row = compared["fedprox"]
    assert row.accuracies == pytest.approx(means)
    assert (row.mean, row.std) == pytest.approx((np.mean(means), np.std(means, ddof=1)))
    assert (row.rounds, row.personalised) == (3, False)
    assert len(compared["scaffold"].accuracies) == 1 and compared["scaffold"].std == 0
    assert row.bytes == prox[0].history.total("bytes_up") + prox[0].history.total("bytes_down")


def test_runs_with_other_settings_are_other_rows(desk: Path) -> None:
    runs = [experiment(lr=lr).run(f"lr-{lr}") for lr in (0.05, 0.2)]
    more = [experiment(lr=lr).run() for lr in (0.4, 0.8, 1.6)]
    compared = fl.compare(*runs, *more)
    names = ["fedavg", "lr-0.2", "fedavg seed 0", "fedavg seed 0 (2)", "fedavg seed 0 (3)"]
    assert [row.name for row in compared.rows] == names
    assert all(len(row.accuracies) == 1 for row in compared.rows)
    assert [row.accuracies[0] for row in compared.rows[:2]] == [
        pytest.approx(statistics.fmean(run.history.accuracy.values())) for run in runs
    ]


def test_a_run_that_is_given_twice_is_no_second_seed(desk: Path) -> None:
    """Its deviation over seeds would be too small: the same number counted twice."""
    first, second = experiment().run("one"), experiment(seed=1).run("two")
    again = experiment(engine="pool", workers=1).run("again")  # which cannot change a result
    compared = fl.compare(first, second, again, "one")
    assert [row.name for row in compared.rows] == ["fedavg", "again", "one"]
    assert compared["fedavg"].seeds == (0, 1)
    assert [row.seeds for row in compared.rows[1:]] == [(0,), (0,)]


def test_methods_on_the_same_experiment(desk: Path) -> None:
    """Names, method objects and custom methods; each run is the one that the method makes alone."""
    made = experiment(seed=5)
    methods = ["fedavg", fl.method("fedprox", mu=1.0), quiet(0.1)]
    compared = fl.compare(made, methods=methods, seeds=2, folder="all")
    assert [row.name for row in compared.rows] == ["fedavg", "fedprox(mu=1.0)", "quiet"]
    folders = sorted(str(p.parent.relative_to("all")) for p in Path("all").rglob("result.json"))
    names = ("fedavg", "fedprox_mu=1.0_", "quiet")
    assert folders == [f"{name}/seed-{seed}" for name in names for seed in (5, 6)]
    for method, row in zip(methods, compared.rows, strict=True):
        alone = [made.replace(method=method, seed=seed).run() for seed in (5, 6)]
        assert [sha(run) for run in alone] == [
            run.result.weights_sha256 for run in compared.runs[row.name] if run.result
        ]
        means = [statistics.fmean(run.history.accuracy.values()) for run in alone]
        assert row.accuracies == pytest.approx(means)


def test_methods_are_not_trained_twice(desk: Path) -> None:
    made, methods = experiment(rounds=2), ["fedavg", "fedprox"]
    first = fl.compare(made, methods=methods[:1], folder="all")
    before = (desk / "all/fedavg/seed-0/metrics.jsonl").read_bytes()
    both = fl.compare(made, methods=methods, folder="all")
    assert (desk / "all/fedavg/seed-0/metrics.jsonl").read_bytes() == before
    assert both["fedavg"].accuracies == first["fedavg"].accuracies
    memory = fl.compare(made, methods=methods)
    assert [row.accuracies for row in memory.rows] == [row.accuracies for row in both.rows]


def test_every_method_is_checked_before_the_first_one_is_trained(desk: Path) -> None:
    with pytest.raises(fl.UserError, match=r"did you mean 'fedprox'\?"):
        fl.compare(experiment(), methods=["fedavg", "fedporx"], folder="all")
    assert not Path("all").exists()


def test_wrong_arguments_are_refused(desk: Path) -> None:
    for seeds in (0, -1, "2", 2.5, True, None):
        with pytest.raises(fl.UserError, match=r"seeds=.* must be a whole number"):
            fl.compare(experiment(), methods=["fedavg"], seeds=seeds)  # type: ignore[arg-type]
    with pytest.raises(fl.UserError, match="methods='fedavg' is no list; write for example"):
        fl.compare(experiment(), methods="fedavg")
    with pytest.raises(fl.UserError, match="is a Experiment; pass runs"):
        fl.compare(experiment())  # type: ignore[arg-type]
    assert len(fl.compare(experiment(), methods=["fedavg"], seeds=np.int64(2)).all_runs) == 2


def test_two_methods_with_the_same_name_are_rejected(desk: Path) -> None:
    """They would share a folder, and the second would be shown with the results of the first."""
    with pytest.raises(fl.UserError, match="methods= has 'quiet' twice; give each method a name"):
        fl.compare(experiment(), methods=["fedavg", quiet(0.1), quiet(0.2)], folder="all")
    assert not Path("all").exists()


def test_the_same_comparison_as_the_command_line(desk: Path) -> None:
    methods = ("fedavg", "ditto")
    words = ("compare", "--methods", ",".join(methods), *talk.TINY, "--rounds", 3, "--seeds", 2)
    printed = talk.fedloom(*words, "--out", "cli", "--at", 2, "--ema", 0.5, "--json").json
    options = CurveOptions(at=(2,), ema=0.5)
    compared = fl.compare(experiment(), methods=methods, seeds=2, options=options).to_json()
    for row in (*printed["rows"], *compared["rows"]):
        del row["seconds"]
    assert compared == {key: printed[key] for key in compared}
    assert printed.keys() - compared.keys() == {"plots", "folder"}
    assert compared["rows"][1]["personalised"] and compared["rows"][1]["client_scores"]
    reread = fl.compare("cli", options=options).to_json()
    assert [row["accuracy"] for row in reread["rows"]] == [
        row["accuracy"] for row in printed["rows"]
    ]
    table = talk.fedloom("report", "cli", "--at", 2, "--ema", 0.5, "--md").out
    assert [table.count(f"\n| {name} |") for name in methods] == [1, 1]


def test_options_and_the_default_target() -> None:
    run = experiment().run()
    accuracies = list(run.history.accuracy.values())
    row = fl.compare(run).rows[0]
    assert row.options.targets == (pytest.approx(statistics.fmean(accuracies)),)
    (row,) = fl.compare(run, options=CurveOptions(targets=(0.01, 0.999), at=(1, 3))).rows
    assert row.reached == ((1,), (None,))
    assert [seeds[0] for seeds in row.at] == pytest.approx(
        [accuracies[0], statistics.fmean(accuracies)]
    )


def test_a_comparison_prints_a_table_and_survives_json() -> None:
    compared = fl.compare(experiment().run(), experiment(method="fedprox(mu=1)").run())
    header, *lines = str(compared).splitlines()
    assert header.split() == ["accuracy", "%", "std", "rounds"]
    assert [line.split()[0] for line in lines] == ["fedavg", "fedprox"]
    assert lines[0].split()[1:] == [f"{100 * compared.rows[0].mean:.2f}", "0.00", "3"]
    assert json.loads(json.dumps(compared.to_json())) == compared.to_json()
    with pytest.raises(KeyError, match="no row 'fedpro'; the rows are fedavg, fedprox"):
        compared["fedpro"]


def test_a_comparison_becomes_a_table_of_pandas() -> None:
    pytest.importorskip("pandas")
    compared = fl.compare(experiment(method="ditto").run())
    table = compared.to_pandas()
    assert table.loc["ditto", "accuracy"] == compared["ditto"].mean
    assert table.loc["ditto", "client_scores.mean_class_recall.mean"] == (
        compared["ditto"].over_clients("mean_class_recall")
    )


def test_without_pandas_a_sentence_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = fl.compare(experiment(rounds=1).run())
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(fl.UserError, match="install it with: pip install pandas"):
        compared.to_pandas()


def test_a_plot_has_a_line_per_row(desk: Path) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    compared = fl.compare(experiment(), methods=["fedavg", "fedprox"], seeds=2)
    figure = compared.plot("new/curves.png")
    assert isinstance(figure, figures.Figure) and isinstance(compared.plot(), figures.Figure)
    labels = [str(line.get_label()) for line in figure.axes[0].lines]
    for row in compared.rows:
        assert any(label.startswith(row.name) for label in labels)
    assert Path("new/curves.png").read_bytes().startswith(b"\x89PNG")


def test_an_unfinished_run_is_compared_by_the_rounds_it_has(desk: Path) -> None:
    class Stop(fl.Callback):
        def on_round(self, record: fl.RoundRecord) -> None:
            if record.round == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        experiment().run("half", [Stop()])
    (row,) = fl.compare("half").rows
    assert row.rounds == 2 and row.client_scores == ()
    with pytest.raises(KeyboardInterrupt):
        experiment(evaluate={"every": 3}).run("early", [Stop()])
    with pytest.raises(fl.UserError, match="'early' has no evaluation yet; resume it first"):
        fl.compare("half", "early")


@pytest.mark.parametrize(
    ("runs", "methods", "message"),
    [
        ([], [], "there is nothing to compare; pass at least one run"),
        ([3], [], "3 is a int; pass runs, run folders, or an Experiment with methods="),
        (["nowhere"], [], "nowhere is not the folder of a run"),
        ([nn.Linear(1, 1)], [], "is a Linear; pass runs, run folders"),
        (["run"], ["fedavg"], "methods= needs one Experiment whose settings they share"),
        ([], ["fedavg"], "methods= needs one Experiment whose settings they share"),
    ],
)
def test_what_cannot_be_compared_is_rejected(
    runs: list, methods: list, message: str, desk: Path
) -> None:
    with pytest.raises(fl.UserError, match=message):
        fl.compare(*runs, methods=methods)


def test_an_experiment_without_methods_is_rejected() -> None:
    with pytest.raises(fl.UserError, match="pass runs, run folders, or an Experiment with methods"):
        fl.compare(experiment())
