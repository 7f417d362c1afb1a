"""Accuracy against compute: MACs worked out by hand on a net of two layers, and the points of the figure."""

from pathlib import Path

import pytest

from fedloom.core.errors import UserError
from fedloom.experiment.prepare import prepare
from fedloom.experiment.train import run
from fedloom.reports.comparison import accuracies
from fedloom.reports.compute_curve import Track, compute_points, draw, tracks
from fedloom.runs.folder import RunFolder
from fedloom.settings.config import load

PIXELS, WIDTH, CLASSES = 28 * 28, 8, 10
CLIENTS, BATCH, ROUNDS = 3, 4, 4
FEDAVG = 2 * PIXELS * WIDTH + 3 * WIDTH * CLASSES  # the pixels need no gradient
FEDMLB = FEDAVG + 2 * WIDTH * CLASSES  # the frozen head, there and back
RUNS = [
    ("fedavg", 2, 0),
    ("fedavg", 2, 1),
    ("fedmlb", 1, 0),
    ("fedmlb", 3, 0),
]  # method, iterations, seed


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
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
            run(prepare(config), folder)
    return made


def test_compute_by_hand(folders: list[Path]) -> None:
    for (method, steps, _), path, track in zip(RUNS, folders, tracks(folders), strict=True):
        sample = {"fedavg": FEDAVG, "fedmlb": FEDMLB}[method]
        assert (track.method, track.iterations, track.local) == (
            method,
            steps,
            steps * BATCH * sample,
        )
        curve = accuracies(RunFolder.read_only(path).metrics())
        assert track.points == tuple(
            (r, r * CLIENTS * steps * BATCH * sample, curve[r]) for r in (2, 4)
        )
        assert track.accuracy == pytest.approx((curve[2] + curve[4]) / 2)


def test_seeds_are_one_point_and_iterations_are_several(folders: list[Path]) -> None:
    found = tracks(folders)
    points = compute_points(found[::-1])
    assert [(s.method, s.iterations, len(s.accuracies)) for s in points] == [
        ("fedmlb", 1, 1),
        ("fedmlb", 3, 1),
        ("fedavg", 2, 2),
    ]
    assert points[2].describe() == {
        "method": "fedavg",
        "length": "2 steps of batches of 4",
        "iterations": 2,
        "local_macs": 2 * BATCH * FEDAVG,
        "accuracy": pytest.approx((found[0].accuracy + found[1].accuracy) / 2),
        "accuracies": [found[1].accuracy, found[0].accuracy],
    }


def test_other_arguments_are_another_method() -> None:
    def track(method: str, local: float) -> Track:
        return Track(method, "5 epochs of batches of 4", local, local, (), 0.5)

    found = [
        track("fedmlb", 1.0),
        track("fedmlb(kl=0)", 2.0),
        track("fedmlb", 3.0),
    ]  # seeds of unequal clients
    assert [(s.method, s.local) for s in compute_points(found)] == [
        ("fedmlb", 2.0),
        ("fedmlb(kl=0)", 2.0),
    ]


def test_the_picture(folders: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw(tracks(folders), tmp_path / "new" / "compute.png")
    assert (tmp_path / "new" / "compute.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_without_an_evaluation_is_refused(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "empty", load({}).text()).close()
    with pytest.raises(UserError, match="has no evaluation yet; go on with: fedloom resume"):
        tracks([tmp_path / "empty"])
