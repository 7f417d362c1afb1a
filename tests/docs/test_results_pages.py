"""The pages of results come from result files and logs: links, checksums, pictures, verdicts."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import results
from docparts import claims as claims_part
from docparts import earlier, pictures
from docparts import suites as suites_part
from docparts.result_store import RESULTS, SUITES, all_results, result_of, row_problems
from reading import LINK, ROOT

import docs
from fedloom.claims.claim import PAPERS, claims
from fedloom.claims.collect import collect, write_results, write_row_files
from fedloom.claims.evidence import verdicts
from fedloom.claims.suites import suites
from support.made_up_runs import plan

ROWS = {
    "fedavg": [[0.2, 0.3, 0.4], [0.1, 0.2, 0.5], [0.1, 0.3, 0.4]],
    "fedmix": [[0.4, 0.5, 0.6], [0.3, 0.4, 0.7], [0.2, 0.5, 0.7]],
    "tuned": [[0.2, 0.3, 0.4], [0.1, 0.2, 0.5], [0.1, 0.3, 0.4]],  # the rounds of fedavg
}
NAME = "mix-cnn"
PAGE = f"# Page\n\n<!-- begin suite-{NAME} -->\n<!-- end suite-{NAME} -->\n"


@pytest.fixture
def found(tmp_path: Path) -> Path:
    """What `fedloom reproduce --results` has written."""
    made = plan(tmp_path / "runs", ROWS)
    made = replace(made, suite=replace(made.suite, id=NAME))
    write_row_files(made, write_results(collect(made, "abc1234"), tmp_path / "found", NAME))
    return tmp_path / "found"


@pytest.fixture
def root(found: Path, tmp_path: Path) -> Path:
    """A repository that has taken over these results, with a page for them."""
    results.main([str(found)], tmp_path / "root")
    (tmp_path / "root" / "README.md").write_text("nothing\n")
    (tmp_path / "root" / "docs" / "results" / "page.md").write_text(PAGE)
    docs.main([], tmp_path / "root")
    return tmp_path / "root"


def section(root: Path) -> str:
    return (root / "docs" / "results" / "page.md").read_text()


def test_a_suite_is_complete_on_its_page(root: Path) -> None:
    text = section(root)
    assert "run at: commit `abc1234`" in text and "fixed at: not known" in text
    assert "fedloom reproduce --suite mix-cnn --jobs 2" in text
    assert (
        "| fedmix | 66.67 | +20.00 +20.00 +30.00 | +23.33 | [+8.99,&nbsp;+37.68] | - | - |" in text
    )
    assert "The paper prints no numbers in these cells." in text
    assert "tuned.csv), rounds of fedavg" in text and "as fedavg |" in text


def test_links_and_pictures_of_a_suite_are_there(root: Path) -> None:
    links = [found[1] for found in LINK.finditer(section(root))]
    assert len(links) == 2 * 3 + 2  # settings and logs, the picture, the result file
    assert [link for link in links if not (root / "docs" / "results" / link).exists()] == []


def test_checksums_on_the_page_are_those_of_the_result_file(root: Path) -> None:
    result = result_of(root, NAME)
    assert result is not None
    shown = re.findall(r"(\d): `([0-9a-f]{12})`", section(root))
    weights = {run["seed"]: run["weights_sha256"] for run in result.runs if run["file"] == "fedavg"}
    assert {int(seed): digits for seed, digits in shown} == {s: w[:12] for s, w in weights.items()}


def test_a_page_that_is_written_again_is_the_same(root: Path) -> None:
    before, picture = section(root), root / SUITES / NAME / "table1-cifar10.svg"
    drawn = picture.read_bytes()
    docs.main(["--check"], root)
    picture.unlink()
    docs.main([], root)
    assert section(root) == before and picture.read_bytes() == drawn
    assert b"<dc:date>" not in drawn and str(root).encode() not in drawn


def test_a_log_that_changes_makes_the_picture_stale(root: Path) -> None:
    log = root / SUITES / NAME / "fedmix.csv"
    log.write_text(log.read_text().replace("0.7\n", "0.71\n"))
    with pytest.raises(SystemExit, match=r"stale: docs/results/suites/mix-cnn/table1-cifar10\.svg"):
        docs.main(["--check"], root)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "fedmix.csv").unlink(), r"mix-cnn/fedmix\.csv is missing"),
        (lambda folder: (folder / "fedavg.toml").unlink(), r"mix-cnn/fedavg\.toml is missing"),
        (lambda folder: shutil.copy(folder / "fedavg.csv", folder / "x.csv"), "belongs to no run"),
        (
            lambda folder: (folder / "fedmix.csv").write_text(
                "seed,round,train_loss,accuracy\n0,3,1,0.4\n"
            ),
            "fedmix.csv has other seeds or rounds than the result file",
        ),
    ],
    ids=["no log", "no settings", "a stranger", "another log"],
)
def test_a_result_file_without_its_logs_is_reported(root: Path, change, message: str) -> None:
    change(root / SUITES / NAME)
    with pytest.raises(SystemExit, match=message):
        docs.main(["--check"], root)


def test_results_are_taken_over_again_without_leftovers(root: Path, found: Path) -> None:
    (root / SUITES / NAME / "old.csv").write_text("x")
    results.main([str(found), NAME], root)
    assert not (root / SUITES / NAME / "old.csv").exists()
    with pytest.raises(SystemExit, match="has no results of mlb50; it has: mix-cnn"):
        results.main([str(found), "mlb50"], root)


def test_results_with_other_settings_than_the_suite_are_refused(root: Path, found: Path) -> None:
    file = found / f"{NAME}.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "changed": ["rounds=1"]}))
    with pytest.raises(SystemExit, match=r"other settings than the suite: rounds=1; run the suite"):
        results.main([str(found)], root)


def write_part(runs: Path, target: Path, commit: str, rows: set[str], seeds: set[int]) -> None:
    """What `fedloom reproduce --results` writes after some of the suite's runs."""
    made = plan(runs, ROWS)
    cells = []
    for cell in made.cells:
        if cell.cell.row.name in rows:
            kept = tuple(run for run in cell.cell.runs if run.seed in seeds)
            cells.append(replace(cell, cell=replace(cell.cell, runs=kept)))
    one = replace(made, suite=replace(made.suite, id=NAME), cells=tuple(cells))
    write_row_files(one, write_results(collect(one, commit), target, NAME))


@pytest.mark.parametrize(
    ("rows", "seeds"), [(set(ROWS), {2}), ({"fedmix"}, {0, 1, 2})], ids=["a seed", "a row"]
)
def test_parts_that_were_run_elsewhere_are_merged(
    root: Path, tmp_path: Path, rows: set[str], seeds: set[int]
) -> None:
    whole = {file.name: file.read_text() for file in (root / SUITES / NAME).glob("*.csv")}
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    for folder in (copy / SUITES / NAME, copy / RESULTS):
        shutil.rmtree(folder)
    others = (set(ROWS), {0, 1}) if seeds == {2} else (set(ROWS) - rows, {0, 1, 2})
    write_part(tmp_path / "runs2", tmp_path / "first", "abc1234", *others)
    write_part(tmp_path / "runs3", tmp_path / "second", "def5678", rows, seeds)
    results.main([str(tmp_path / "first")], copy)
    results.main([str(tmp_path / "second")], copy)
    result = result_of(copy, NAME)
    assert result is not None and {run["seed"] for run in result.runs} == {0, 1, 2}
    after = {file.name: file.read_text() for file in (copy / SUITES / NAME).glob("*.csv")}
    assert after == whole
    docs.main([], copy)
    assert "run at: commit `abc1234` and `def5678`" in section(copy)


def test_runs_that_are_reported_already_change_nothing(root: Path, tmp_path: Path) -> None:
    before = (root / RESULTS / f"{NAME}.json").read_text()
    write_part(tmp_path / "runs2", tmp_path / "again", "def5678", {"fedavg"}, {0, 1, 2})
    results.main([str(tmp_path / "again")], root)
    assert (root / RESULTS / f"{NAME}.json").read_text() == before


def test_a_suite_that_was_not_run_says_so(tmp_path: Path) -> None:
    text = suites_part.suite("mlb50")(tmp_path)
    assert "**Not run yet.**" in text and "250 rounds of 5 local epochs" in text
    assert "fedloom reproduce --suite mlb50 --jobs 2" in text and "verdict" not in text


def test_rows_that_were_planned_but_not_run_are_named(root: Path) -> None:
    (line,) = re.findall("- planned, but not run yet: (.*)", section(root))
    named = line.split(", ")
    assert "naivemix (fedmix/table1-cifar10)" in named
    assert not any(row.startswith("fedavg (fedmix/table1") for row in named)


def test_rows_that_share_their_rounds_are_drawn_by_their_scores(root: Path) -> None:
    log = root / SUITES / NAME / "fedmix.csv"
    log.write_text((root / SUITES / NAME / "tuned.csv").read_text())
    (picture,) = pictures.pictures(root, NAME)
    assert picture.about.startswith("Scores of the models that clients end with")


def test_rows_that_differ_between_columns_are_not_drawn_as_one_curve() -> None:
    about = {each.path.stem: each.about for each in pictures.pictures(ROOT, "mix-skew")}
    for name in ("table6", "table7"):  # FedAvg with other clients in every column
        assert about[name].startswith("Test accuracy by column of the table")
    assert about["table17"].startswith("Test accuracy by round")
    (skewed,) = pictures.pictures(ROOT, "afa-c10-skewed")
    assert skewed.about.startswith("Scores of the models that clients end with")


def test_every_claim_of_a_paper_is_on_its_page_with_its_verdict() -> None:
    for paper in PAPERS:
        text = (ROOT / "docs" / "results" / f"{paper}.md").read_text(encoding="utf-8")
        for verdict in verdicts(paper):
            (line,) = [x for x in text.splitlines() if f"| {verdict.claim.text} (" in x] or [""]
            assert line, verdict.claim.id
            if verdict.judgement is not None:
                assert f"`{verdict.claim.id}`" in line and f"**{verdict.outcome}**" in line
                assert ("not a fair test" in line) is not verdict.fair


def test_the_headline_claims_exist_and_are_on_the_front_page() -> None:
    text = (ROOT / "docs" / "results" / "README.md").read_text(encoding="utf-8")
    assert set(claims_part.HEADLINES) <= {claim.id for claim in claims()}
    assert [name for name in claims_part.HEADLINES if f"`{name}`" not in text] == []


def test_committed_results_are_complete_and_their_checksums_are_on_the_pages() -> None:
    pages = (ROOT / "docs" / "results").glob("*.md")
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    for result in all_results(ROOT):
        if result.suite in suites() and result.runs:
            assert row_problems(ROOT, result) == []
            weights = {run["weights_sha256"][: suites_part.SHOWN_DIGITS] for run in result.runs}
            assert {digits for digits in weights if digits not in text} == set()
    strangers = {f.name for f in (ROOT / SUITES).glob("*")} - {
        f.stem for f in (ROOT / RESULTS).glob("*.json")
    }
    assert strangers == set()


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (
            {"fedavg": [1, 2, 3], "a": [2.0, 3.1, 4.0], "b": [0.9, 2.1, 3.0], "c": [1, 2, 3]},
            "Recall, compared with FedAvg: above: a; identical: c; not decided: b.",
        ),
        ({"fedavg": [3.0, 4.1, 5.0], "a": [1, 2, 3]}, "Recall, compared with FedAvg: below: a."),
        ({"fedavg": [1], "a": [9]}, "One seed: nothing is decided by this table."),
    ],
)
def test_what_is_said_about_an_earlier_table(rows: dict[str, list[float]], sentence: str) -> None:
    by_seed = {name: dict(enumerate(values)) for name, values in rows.items()}
    assert earlier._said(by_seed, "fedavg", "recall %") == sentence
