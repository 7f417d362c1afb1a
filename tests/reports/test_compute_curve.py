"""Accuracy against compute: MACs worked out by hand for a two-layer net, and the points."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedloom.core.errors import UserError
from fedloom.experiment.prepare import prepare
from fedloom.experiment.stored_run import StoredRun, read_run
from fedloom.experiment.train import train
from fedloom.reports.compute_curve import ComputeCurve, compute_curves, compute_points, plot
from fedloom.runs.folder import RunFolder
from fedloom.settings.config import load

PIXELS, WIDTH, CLASSES = 28 * 28, 8, 10
CLIENTS, BATCH, ROUNDS = 3, 4, 4
FEDAVG = 2 * PIXELS * WIDTH + 3 * WIDTH * CLASSES  # the pixels need no gradient
FEDMLB = FEDAVG + 2 * WIDTH * CLASSES  # the frozen head, there and back
# method, local steps, seed
RUNS = [("fedavg", 2, 0), ("fedavg", 2, 1), ("fedmlb", 1, 0), ("fedmlb", 3, 0)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[StoredRun]:
    place = tmp_path_factory.mktemp("runs")
    made = []
    for method, steps, seed in RUNS:
        config = load(
            {
                "method": {"name": method},
                "rounds": ROUNDS,
                "seed": seed,
                "model": f"mlp(width={WIDTH}, layers=1)",
                "engine": "inprocess",
                "data": {"clients": 20, "partition": "iid"},
                "sample": {"per_round": CLIENTS},
                "train": {"steps": steps, "batch": BATCH},
                "evaluate": {"every": 2, "batch": 500},
            }
        )
        made.append(place / f"{method}-{steps}-{seed}")
        with RunFolder.create(made[-1], config.text()) as folder:
            train(prepare(config), folder)
    return [read_run(path) for path in made]


def test_compute_by_hand(runs: list[StoredRun]) -> None:
    for (method, steps, _), run, curve in zip(RUNS, runs, compute_curves(runs), strict=True):
        sample = {"fedavg": FEDAVG, "fedmlb": FEDMLB}[method]
        assert (curve.method, curve.local_steps) == (method, steps)
        assert curve.local_macs == steps * BATCH * sample
        accuracy = run.history.accuracy
        assert curve.points == tuple(
            (r, r * CLIENTS * steps * BATCH * sample, accuracy[r]) for r in (2, 4)
        )
        assert curve.accuracy == pytest.approx((accuracy[2] + accuracy[4]) / 2)


def test_sam_computes_two_gradients(runs: list[StoredRun]) -> None:
    run = runs[0]
    sharp = run.config.train.model_copy(update={"sam": 0.1})
    other = replace(run, config=run.config.model_copy(update={"train": sharp}))
    plain, twice = compute_curves([run, other])
    assert twice.local_macs == 2 * plain.local_macs == 2 * 2 * BATCH * FEDAVG


def test_seeds_share_a_point_and_each_number_of_steps_has_one(runs: list[StoredRun]) -> None:
    curves = compute_curves(runs)
    points = compute_points(curves[::-1])
    assert [(p.method, p.local_steps, len(p.accuracies)) for p in points] == [
        ("fedmlb", 1, 1),
        ("fedmlb", 3, 1),
        ("fedavg", 2, 2),
    ]
    assert points[2].to_json() == {
        "method": "fedavg",
        "local_training": "2 steps of batches of 4",
        "local_steps": 2,
        "local_macs": 2 * BATCH * FEDAVG,
        "accuracy": pytest.approx((curves[0].accuracy + curves[1].accuracy) / 2),
        "accuracies": [curves[1].accuracy, curves[0].accuracy],
    }


def test_other_arguments_are_another_method() -> None:
    def curve(method: str, macs: float) -> ComputeCurve:
        return ComputeCurve(method, "5 epochs of batches of 4", macs, macs, (), 0.5)

    # seeds whose clients have different sizes
    curves = [curve("fedmlb", 1.0), curve("fedmlb(kl=0)", 2.0), curve("fedmlb", 3.0)]
    assert [(p.method, p.local_macs) for p in compute_points(curves)] == [
        ("fedmlb", 2.0),
        ("fedmlb(kl=0)", 2.0),
    ]


def test_the_plot_is_a_png(runs: list[StoredRun], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot(compute_curves(runs), tmp_path / "new" / "compute.png")
    assert (tmp_path / "new" / "compute.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_without_an_evaluation_is_rejected(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "empty", load({}).text()).close()
    with pytest.raises(UserError, match="has no evaluation yet; resume it: fedloom resume"):
        compute_curves([read_run(tmp_path / "empty")])
