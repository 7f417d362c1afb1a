"""Personalised methods in `fedloom compare`: the clients' scores as columns, in tables, and as pictures by class."""

import json
import re
import shutil
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.talk import TINY, Said, fedloom, lines, run
from fedloom.reports.client_scores import by_class, held, own
from fedloom.reports.sweep import varied
from fedloom.settings import presets
from fedloom.settings.paper_table import table
from fedloom.settings.presets import Preset

METHODS = ("fedavg", "ditto", "finetune(lr=0.2, batch=10)")
SKEWED = (*TINY, "--partition", "dirichlet(alpha=0.3, min_size=4)", "--set", "data.longtail=6")


def compare(*words: object, methods: tuple[str, ...] = METHODS, out: str = "all") -> Said:
    return fedloom(
        "compare", "--methods", ",".join(methods), *SKEWED, "--rounds", 2, "--out", out, *words
    )


def result(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "result.json").read_text())["summary"])


def test_the_scores_of_clients_stand_beside_the_accuracy(desk: Path) -> None:
    said = compare("--seeds", 2, "--json").json
    folders = [desk / "all" / re.sub(r"[( )]", "_", m) for m in METHODS]
    for row, folder in zip(said["rows"], folders, strict=True):
        seeds = [result(folder / f"seed-{s}") for s in (0, 1)]
        own_or_global = [r.get("personal", r["global"]) for r in seeds]
        assert row["personal"] == ("personal" in seeds[0]) == (row["method"] != "fedavg")
        for score in ("recall", "weighted"):
            for what in ("mean", "std", "worst_tenth"):
                assert row["clients"][score][what] == pytest.approx(
                    statistics.fmean(r[score][what] for r in own_or_global)
                )
    last = lines(folders[0] / "seed-0")[-1]
    assert result(folders[0] / "seed-0")["global"] == {
        **last["clients"],
        "per_class": last["per_class"],
        "groups": last["groups"],
    }
    shown = compare("--seeds", 2).out
    assert (
        re.search(r"method +personal % +worst tenth +weighted % +accuracy %", shown)
        and "personal: mean recall over" in shown
    )
    scores = [f"{100 * row['clients']['recall']['mean']:.2f}" for row in said["rows"]]
    assert all(
        re.search(rf"^{re.escape(m)} +{score} ", shown, re.MULTILINE)
        for m, score in zip(METHODS, scores, strict=True)
    )


def test_methods_without_own_models_have_no_such_columns(desk: Path) -> None:
    shown = compare(methods=("fedavg", "fedprox"))
    assert "personal" not in shown.out and "accuracy %" in shown.out


def test_scores_that_were_not_asked_for_or_are_still_to_come(desk: Path) -> None:
    compare("--set", "evaluate.personal=false", methods=("ditto",))
    assert own(desk / "all/ditto/seed-0") is None
    shown = fedloom("compare", "all/ditto/seed-0").out
    assert re.search(r"^all/ditto/seed-0 +- +- +- +\d", shown, re.MULTILINE)
    (desk / "all/ditto/seed-0/result.json").unlink()
    assert fedloom("compare", "all/ditto/seed-0", "--json").json["rows"][0]["clients"] is None


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
    paths = {name: [runs[name]] for name in METHODS}
    ends = {name: [found] for name, (path,) in paths.items() if (found := own(path)) is not None}
    seen = by_class(ends, paths)
    assert seen is not None and seen.classes == ["0", "1", "2", "3"]
    counts, hits = held(runs["ditto"]), np.array(result(runs["ditto"])["personal"]["hits"])
    expected = [hits[counts[:, c] > 0, c].mean() / 20 for c in range(4)]
    assert seen.recalls["ditto"] == pytest.approx(expected, abs=1e-6)
    assert seen.recalls["fedavg"] == result(runs["fedavg"])["global"]["per_class"]
    assert (
        counts.sum(0).tolist() == sorted(counts.sum(0).tolist(), reverse=True)
        and counts.sum() < 240
    )


def test_rows_of_other_classes_or_without_scores_are_not_compared_by_class() -> None:
    one, two = [{"per_class": [0.5, 0.25]}], [{"per_class": [0.5, None]}, {"per_class": [1.0, 1.0]}]
    seen = by_class({"a": one, "b": two}, {})
    assert seen is not None and seen.recalls == {"a": [0.5, 0.25], "b": [0.75, None]}
    for other in ([{"per_class": [0.5]}], []):
        assert by_class({"a": one, "b": other}, {}) is None
    assert by_class({"a": one}, {}) is None


def test_recall_by_class_of_one_client(runs: dict[str, Path], desk: Path) -> None:
    paths = {name: [runs[name]] for name in ("fedavg", "ditto")}
    ends = {name: [found] for name, (path,) in paths.items() if (found := own(path)) is not None}
    counts = held(runs["ditto"])
    client = int((counts > 0).sum(1).argmin())  # one that lacks a class
    has = np.flatnonzero(counts[client])
    seen = by_class(ends, paths, client)
    assert seen is not None and 0 < len(has) < 4
    assert seen.classes == [f"{c}\n({counts[client, c]})" for c in has]
    assert seen.recalls["ditto"] == pytest.approx(
        [result(runs["ditto"])["personal"]["hits"][client][c] / 20 for c in has]
    )
    assert seen.recalls["fedavg"] == pytest.approx(
        [result(runs["fedavg"])["global"]["per_class"][c] for c in has]
    )


def picture(path: str) -> np.ndarray:
    from matplotlib.image import imread

    return np.asarray(imread(path))[..., :3]


def test_pictures_by_class(runs: dict[str, Path], desk: Path) -> None:
    folders = [runs[name] for name in METHODS]
    said = fedloom("compare", *folders, "--out", "seen", "--json").json
    assert (said["curves"], said["classes"]) == ("seen/curves.png", "seen/classes.png")
    whole = picture("seen/classes.png")
    for number in (0, 1):  # a colour for each row but the first
        colour = np.array([(0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)][number]) / 255
        assert (np.abs(whole - colour).max(axis=2) < 0.01).sum() > 300
    told = fedloom("compare", *folders, "--client", 0, "--out", "seen").out
    assert "classes: seen/classes.png" in told and not np.array_equal(
        picture("seen/classes.png"), whole
    )
    alone = fedloom("compare", folders[0], "--out", "alone", "--json").json
    assert alone["classes"] is None and not Path("alone/classes.png").exists()


def test_clients_that_cannot_be_drawn(runs: dict[str, Path], desk: Path) -> None:
    words = ("compare", runs["fedavg"], runs["ditto"])
    assert "add --out FOLDER" in fedloom(*words, "--client", 0, code=2).flat
    assert (
        "--client 8 is not one of the 8 clients"
        in fedloom(*words, "--client", 8, "--out", "seen", code=2).flat
    )
    other = fedloom(
        "compare", runs["ditto"], runs["elsewhere"], "--client", 0, "--out", "seen", code=2
    ).flat
    assert "client 0 holds other data in" in other and "the same data, partition and seed" in other
    shutil.copytree(runs["ditto"], "early")
    Path("early/result.json").unlink()
    assert (
        "'early' has no scores of client 0"
        in fedloom("compare", "early", "--client", 0, "--out", "seen", code=2).flat
    )
    assert (
        "--client 0: it is for pictures of runs that are there"
        in fedloom("compare", "--methods", "ditto", "--client", 0, code=2).flat
    )


def test_runs_by_a_setting(runs: dict[str, Path], desk: Path) -> None:
    """Also where it was left at its default; the clients' score, the mean over what has the same value."""
    for lam in (0.5, 10.0):
        run(desk / f"ditto{lam}", *SKEWED, "--method", f"ditto(lam={lam})", "--seed", 1)
    folders = [desk / "ditto10.0", runs["ditto"], desk / "ditto0.5", runs["elsewhere"]]
    found = varied(folders, "method.ditto.lam")
    assert [(f.row, f.column) for f in found] == [
        ("lam=0.5", "ditto"),
        ("lam=1.0", "ditto"),
        ("lam=10.0", "ditto"),
    ]
    scores = [100 * result(folder)["personal"]["recall"]["mean"] for folder in folders]
    assert [f.ours for f in found] == [(scores[2],), (scores[1], scores[3]), (scores[0],)]
    said = fedloom("compare", *folders, "--by", "method.ditto.lam", "--out", "seen", "--json").json
    assert said["effects"] == "seen/effects.png" and picture("seen/effects.png").std() > 0
    (plain,) = varied([runs["fedavg"]], "train.lr")
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
def test_settings_that_cannot_be_drawn(
    setting: str, piece: str, runs: dict[str, Path], desk: Path
) -> None:
    assert piece in fedloom("compare", runs["ditto"], "--by", setting, "--out", "seen", code=2).flat
    assert "add --out FOLDER" in fedloom("compare", runs["ditto"], "--by", setting, code=2).flat


STUDY = {
    "about": {"title": "t", "shows": "s", "settings": "p", "reduced": "c"},
    "small": {},
    "columns": [
        {"name": "own", "measure": "personal"},
        {"name": "labels", "measure": "personal(score=weighted, of=worst_tenth)"},
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
    monkeypatch.setattr(presets, "preset", lambda name: made)
    words = ("compare", "--preset", "made/table1", *SKEWED, "--rounds", 2, "--out", "table")
    refused = fedloom(*words, "--set", "evaluate.personal=false", code=2).flat
    assert (
        "'own' is personal: the clients' own models are not scored; set evaluate.personal=true"
        in refused
    )
    assert not (desk / "table").exists()
    said = fedloom(*words, "--json").json
    figures = {(f["row"], f["column"]): f["ours"][0] for f in said["figures"]}
    plain, memories = (
        result(desk / "table/plain/own/seed-0")["global"],
        result(desk / "table/own/own/seed-0")["personal"],
    )
    for row, scores in (("plain", plain), ("own", memories)):
        assert figures[row, "own"] == pytest.approx(100 * scores["recall"]["mean"])
        assert figures[row, "labels"] == pytest.approx(100 * scores["weighted"]["worst_tenth"])
        assert figures[row, "rare"] == pytest.approx(100 * scores["groups"]["tail"])
        assert figures[row, "R"] is None
    assert said["picture"] == "table/table.png" and picture("table/table.png").std() > 0
    assert re.search(
        r"^own +\d+\.\d\d +- +[+-]\d+\.\d\d +45\.5 +\+5\.50 ", fedloom(*words).out, re.MULTILINE
    )
    level = fedloom(
        *words[:3],
        *TINY,
        "--partition",
        "iid",
        "--rounds",
        1,
        "--columns",
        "rare",
        "--out",
        "level",
        code=2,
    ).flat
    assert (
        "there is no 'tail': the classes are equally frequent" in level and "data.longtail" in level
    )
