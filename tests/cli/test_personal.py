"""Personalised methods in comparisons: client scores as columns, in tables, in plots by class."""

import json
import re
import shutil
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.talk import TINY, Said, fedloom, lines, run
from fedloom.claims import suite_table
from fedloom.experiment.stored_run import StoredRun, read_run
from fedloom.metrics.client_scores import EMPTY_SPREAD, ClientScores
from fedloom.reports.client_scores import by_class, client_data, final_scores
from fedloom.reports.colours import styles
from fedloom.reports.sweep import by_setting
from fedloom.settings import presets
from fedloom.settings.paper_table import table
from fedloom.settings.presets import Preset

METHODS = ("fedavg", "ditto", "finetune(lr=0.2, batch=10)")
PARTITION = "data.partition=dirichlet(alpha=0.3, min_size=4)"
SKEWED = (*TINY, "--set", PARTITION, "--set", "data.longtail=6")


def compare(*words: object, methods: tuple[str, ...] = METHODS, out: str = "all") -> Said:
    return fedloom(
        "compare", "--methods", ",".join(methods), *SKEWED, "--rounds", 2, "--out", out, *words
    )


def result(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "result.json").read_text())["summary"])


def test_the_scores_of_clients_are_printed_beside_the_accuracy(desk: Path) -> None:
    said = compare("--seeds", 2, "--json").json
    folders = [desk / "all" / re.sub(r"[( )]", "_", m) for m in METHODS]
    for row, folder in zip(said["rows"], folders, strict=True):
        seeds = [result(folder / f"seed-{s}") for s in (0, 1)]
        scores = [r.get("personal_models", r["global_model"]) for r in seeds]
        assert row["personalised"] == ("personal_models" in seeds[0]) == (row["name"] != "fedavg")
        for score in ("mean_class_recall", "label_weighted_accuracy"):
            for of in ("mean", "std", "worst_tenth"):
                mean = statistics.fmean(r[score][of] for r in scores)
                assert row["client_scores"][score][of] == pytest.approx(mean)
    last = lines(folders[0] / "seed-0")[-1]
    assert result(folders[0] / "seed-0")["global_model"] == last["global_model"]
    assert {"class_recall", "group_recall"} <= last["global_model"].keys()
    shown = compare("--seeds", 2).out
    assert (
        re.search(r"method +personal % +worst tenth +weighted % +accuracy %", shown)
        and "personal: recall averaged over the classes that a client has" in shown
    )
    recalls = [row["client_scores"]["mean_class_recall"]["mean"] for row in said["rows"]]
    scores = [f"{100 * recall:.2f}" for recall in recalls]
    assert all(
        re.search(rf"^{re.escape(m)} +{score} ", shown, re.MULTILINE)
        for m, score in zip(METHODS, scores, strict=True)
    )


def test_methods_without_personal_models_have_no_such_columns(desk: Path) -> None:
    shown = compare(methods=("fedavg", "fedprox"))
    assert "personal" not in shown.out and "accuracy %" in shown.out


def test_scores_that_are_switched_off_or_not_there_yet(desk: Path) -> None:
    compare("--set", "evaluate.personal=false", methods=("ditto",))
    assert final_scores(read_run(desk / "all/ditto/seed-0")) is None
    shown = fedloom("report", "all/ditto/seed-0").out
    assert re.search(r"^all/ditto/seed-0 +- +- +- +\d", shown, re.MULTILINE)
    (desk / "all/ditto/seed-0/result.json").unlink()
    (row,) = fedloom("report", "all/ditto/seed-0", "--json").json["rows"]
    assert row["client_scores"] is None


@pytest.fixture(scope="module")
def runs(home: Path) -> dict[str, Path]:
    """Three methods on the same clients, and one on others."""
    for method in METHODS:
        run(home / method, *SKEWED, "--method", method, "--seed", 1)
    run(home / "elsewhere", *SKEWED, "--method", "ditto", "--seed", 2)
    return {name: home / name for name in (*METHODS, "elsewhere")}


def test_recall_by_class_is_over_the_clients_that_have_it(
    runs: dict[str, Path], desk: Path
) -> None:
    stored = {name: [read_run(runs[name])] for name in METHODS}
    seen = by_class(scores_of(stored), stored)
    assert seen is not None and seen.classes == ["0", "1", "2", "3"]
    counts = client_data(read_run(runs["ditto"])).counts
    correct = np.array(result(runs["ditto"])["personal_models"]["correct"])
    expected = [correct[counts[:, c] > 0, c].mean() / 20 for c in range(4)]
    assert seen.recalls["ditto"] == pytest.approx(expected, abs=1e-6)
    assert seen.recalls["fedavg"] == result(runs["fedavg"])["global_model"]["class_recall"]
    assert (
        counts.sum(0).tolist() == sorted(counts.sum(0).tolist(), reverse=True)
        and counts.sum() < 240
    )


def test_rows_with_other_classes_or_without_scores_are_not_compared_by_class() -> None:
    def scores(*recalls: float | None) -> ClientScores:
        return ClientScores(EMPTY_SPREAD, EMPTY_SPREAD, recalls)

    one, two = [scores(0.5, 0.25)], [scores(0.5, None), scores(1.0, 1.0)]
    seen = by_class({"a": one, "b": two}, {})
    assert seen is not None and seen.recalls == {"a": [0.5, 0.25], "b": [0.75, None]}
    for other in ([scores(0.5)], []):
        assert by_class({"a": one, "b": other}, {}) is None
    assert by_class({"a": one}, {}) is None


def test_recall_by_class_of_one_client(runs: dict[str, Path], desk: Path) -> None:
    stored = {name: [read_run(runs[name])] for name in ("fedavg", "ditto")}
    counts = client_data(stored["ditto"][0]).counts
    client = int((counts > 0).sum(1).argmin())  # one that lacks a class
    has = np.flatnonzero(counts[client])
    seen = by_class(scores_of(stored), stored, client)
    assert seen is not None and 0 < len(has) < 4
    assert seen.classes == [f"{c}\n({counts[client, c]})" for c in has]
    correct = result(runs["ditto"])["personal_models"]["correct"][client]
    assert seen.recalls["ditto"] == pytest.approx([correct[c] / 20 for c in has])
    recall = result(runs["fedavg"])["global_model"]["class_recall"]
    assert seen.recalls["fedavg"] == pytest.approx([recall[c] for c in has])


def scores_of(stored: dict[str, list[StoredRun]]) -> dict[str, list[ClientScores]]:
    """The scores of the models that clients end with, by row."""
    scores = {name: [final_scores(run) for run in group] for name, group in stored.items()}
    return {name: [s for s in group if s is not None] for name, group in scores.items()}


def picture(path: str) -> np.ndarray:
    from matplotlib.image import imread

    return np.asarray(imread(path))[..., :3]


def test_plots_by_class(runs: dict[str, Path], desk: Path) -> None:
    folders = [runs[name] for name in METHODS]
    said = fedloom("report", *folders, "--out", "seen", "--json").json
    names = ("curves", "classes", "personal")
    assert said["plots"] == {name: f"seen/{name}.png" for name in names}
    whole = picture("seen/classes.png")
    both = (whole, picture("seen/curves.png"))
    for style in styles(METHODS)[1:]:  # each row but the first, with one colour in both pictures
        colour = np.array([int(style.light[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        assert all((np.abs(seen - colour).max(axis=2) < 0.01).sum() > 300 for seen in both)
    shown = fedloom("report", *folders, "--client", 0, "--out", "seen").out
    assert "classes: seen/classes.png" in shown
    assert not np.array_equal(picture("seen/classes.png"), whole)
    alone = fedloom("report", folders[0], "--out", "alone", "--json").json
    assert alone["plots"]["classes"] is None and not Path("alone/classes.png").exists()


def test_clients_that_cannot_be_plotted(runs: dict[str, Path], desk: Path) -> None:
    words = ("report", runs["fedavg"], runs["ditto"])
    assert "add --out FOLDER" in fedloom(*words, "--client", 0, code=2).flat
    assert (
        "--client 8 is not one of the 8 clients"
        in fedloom(*words, "--client", 8, "--out", "seen", code=2).flat
    )
    other = fedloom(
        "report", runs["ditto"], runs["elsewhere"], "--client", 0, "--out", "seen", code=2
    ).flat
    assert (
        "client 0 holds different data in" in other and "the same data, partition and seed" in other
    )
    shutil.copytree(runs["ditto"], "early")
    Path("early/result.json").unlink()
    assert (
        "'early' has no scores of client 0"
        in fedloom("report", "early", "--client", 0, "--out", "seen", code=2).flat
    )
    said = fedloom("compare", "--methods", "ditto", "--client", 0, code=2).flat
    assert "No such option" in said and "--client" in said


def test_runs_by_a_setting(runs: dict[str, Path], desk: Path) -> None:
    """Also where it has its default. The figure is the clients' mean score for each value."""
    for lam in (0.5, 10.0):
        run(desk / f"ditto{lam}", *SKEWED, "--method", f"ditto(lam={lam})", "--seed", 1)
    folders = [desk / "ditto10.0", runs["ditto"], desk / "ditto0.5", runs["elsewhere"]]
    found = by_setting([read_run(f) for f in folders], "method.ditto.lam")
    assert [(f.row, f.column) for f in found] == [
        ("lam=0.5", "ditto"),
        ("lam=1.0", "ditto"),
        ("lam=10.0", "ditto"),
    ]
    personal = [result(folder)["personal_models"] for folder in folders]
    scores = [100 * models["mean_class_recall"]["mean"] for models in personal]
    assert [f.ours for f in found] == [(scores[2],), (scores[1], scores[3]), (scores[0],)]
    said = fedloom("report", *folders, "--by", "method.ditto.lam", "--out", "seen", "--json").json
    assert said["plots"]["effects"] == "seen/effects.png" and picture("seen/effects.png").std() > 0
    (plain,) = by_setting([read_run(runs["fedavg"])], "train.lr")
    assert plain.row == "lr=0.05" and plain.ours == pytest.approx(
        (100 * statistics.fmean(x["accuracy"] for x in lines(runs["fedavg"])),)
    )


@pytest.mark.parametrize(
    ("setting", "piece"),
    [
        (
            "method.ditto.lamb",
            "--by method.ditto.lamb: a run of 'ditto' has no setting 'lamb' there",
        ),
        ("train", "--by train is a table of settings; name one of them, for example train.lr"),
        ("train.lr.x", "a run of 'ditto' has no setting 'x' there"),
    ],
)
def test_settings_that_cannot_be_plotted(
    setting: str, piece: str, runs: dict[str, Path], desk: Path
) -> None:
    assert piece in fedloom("report", runs["ditto"], "--by", setting, "--out", "seen", code=2).flat
    assert "add --out FOLDER" in fedloom("report", runs["ditto"], "--by", setting, code=2).flat


STUDY = {
    "about": {"title": "t", "shows": "s", "settings": "p", "reduced": "c"},
    "small": {},
    "columns": [
        {"name": "own", "measure": "personal"},
        {"name": "labels", "measure": "personal(score=label_weighted_accuracy, of=worst_tenth)"},
        {"name": "rare", "measure": "group(name=tail)"},
        {"name": "R", "measure": "rounds(to=0.999)"},
    ],
    "rows": [
        {"name": "plain", "settings": {"method": "fedavg"}, "printed": [40.0, [], [], []]},
        {"name": "own", "settings": {"method": "ditto"}, "printed": [45.5, [], [], []]},
    ],
}


def test_a_table_of_personal_scores(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Preset("made/table1", "", {}, table("made/table1", STUDY))
    for module in (presets, suite_table):
        monkeypatch.setattr(module, "names", lambda: [made.name])
        monkeypatch.setattr(module, "preset", lambda name: made)
    words = ("reproduce", "made/table1", *SKEWED, "--rounds", 2, "--out", "table")
    rejected = fedloom(*words, "--set", "evaluate.personal=false", code=2).flat
    assert (
        "'own' is personal: the clients' own models are not scored; set evaluate.personal=true"
        in rejected
    )
    assert not (desk / "table").exists()
    said = fedloom(*words, "--json").json
    figures = {(f["row"], f["column"]): f["ours"][0] for f in said["figures"]}
    plain = result(desk / "table/plain/own/seed-0")["global_model"]
    own = result(desk / "table/own/own/seed-0")["personal_models"]
    for row, scores in (("plain", plain), ("own", own)):
        assert figures[row, "own"] == pytest.approx(100 * scores["mean_class_recall"]["mean"])
        weighted = scores["label_weighted_accuracy"]["worst_tenth"]
        assert figures[row, "labels"] == pytest.approx(100 * weighted)
        assert figures[row, "rare"] == pytest.approx(100 * scores["group_recall"]["tail"])
        assert figures[row, "R"] is None
    assert said["picture"] == "table/table.png" and picture("table/table.png").std() > 0
    shown = fedloom(*words).out
    gain = r"[+-]\d+\.\d\d"
    assert re.search(
        rf"^own +\d+\.\d\d +{gain} +{gain} +- +45\.5 +not decided", shown, re.MULTILINE
    )
    assert "one seed gives no interval" in shown
    level = fedloom(
        *words[:2],
        *TINY,
        "--set",
        "data.partition=iid",
        "--rounds",
        1,
        "--columns",
        "rare",
        "--out",
        "level",
        code=2,
    ).flat
    assert "there is no group 'tail': all classes are equally frequent" in level
    assert "data.longtail" in level
