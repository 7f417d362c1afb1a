"""The commits of results: the one of the runs, and the one that had fixed their suite before."""

import functools
import hashlib
import io
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from fedloom.claims import suites
from fedloom.claims.commits import PACKAGE, fixed_at
from fedloom.claims.result_files import ResultFile, packaged_results
from fedloom.claims.suites import suite

WORDS = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with suites.toml, and a later commit that does not touch it."""
    shutil.copyfile(PACKAGE / "claims" / suites.FILE, tmp_path / suites.FILE)
    git(tmp_path, "init", "-q")
    commit(tmp_path, "suites")
    (tmp_path / "other").write_text("")
    commit(tmp_path, "other")
    return tmp_path


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *WORDS, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit(folder: Path, title: str) -> None:
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", title)


def test_it_is_the_last_change_of_the_suites_before_the_runs(repository: Path) -> None:
    of_runs, before = git(repository, "rev-parse", "HEAD"), git(repository, "rev-parse", "HEAD~1")
    assert fixed_at(suite("mlb50"), of_runs, repository) == before
    assert fixed_at(suite("mlb50"), of_runs[:7], repository) == before


def test_it_is_not_known_if_the_suite_was_another_one(repository: Path) -> None:
    file = repository / suites.FILE
    text = file.read_text().replace(
        '"rounds=250", "data.classes=50"', '"rounds=99", "data.classes=50"'
    )
    assert text != file.read_text()
    file.write_text(text)
    commit(repository, "changed")
    now = git(repository, "rev-parse", "HEAD")
    assert fixed_at(suite("mlb50"), now, repository) == ""
    assert fixed_at(suite("mix-cnn"), now, repository) == now


def test_words_for_the_reader_may_be_corrected_later(repository: Path) -> None:
    file = repository / suites.FILE
    text = file.read_text().replace("(5,845 images)", "(about 5,900 images)")
    assert text != file.read_text()
    file.write_text(text)
    commit(repository, "other words")
    now = git(repository, "rev-parse", "HEAD")
    assert fixed_at(suite("afa-c10"), now, repository) == now


@pytest.mark.parametrize("commit", ["", "0" * 40, "HEAD", "--help"])
def test_it_is_not_known_without_the_commit(repository: Path, commit: str) -> None:
    assert fixed_at(suite("mlb50"), commit, repository) == ""


@functools.cache
def source_at(commit: str) -> str:
    """The checksum of fedloom's source files at a commit, as runs record it."""
    packed = subprocess.run(
        ["git", "archive", commit, "."], cwd=PACKAGE, capture_output=True, check=True
    )
    digest = hashlib.sha256()
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        for name in sorted(filter(lambda name: name.endswith(".py"), archive.getnames()), key=Path):
            file = archive.extractfile(name)
            assert file is not None
            digest.update(f"{name} {hashlib.sha256(file.read()).hexdigest()}\n".encode())
    return digest.hexdigest()


@pytest.fixture(scope="module")
def history() -> None:
    """Skips a test where the repository or a part of its history is missing."""
    try:
        shallow = git(PACKAGE, "rev-parse", "--is-shallow-repository")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("the history of the repository is not here")
    if shallow == "true":
        pytest.skip("the history of the repository is not here")


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize("result", packaged_results(), ids=lambda result: result.suite)
def test_results_name_commits_that_exist(result: ResultFile) -> None:
    for commit in result.commit.split(", "):
        assert git(PACKAGE, "cat-file", "-t", commit) == "commit"
        if result.fixed_at:
            git(PACKAGE, "merge-base", "--is-ancestor", result.fixed_at, commit)


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize(
    "result", [r for r in packaged_results() if r.fixed_at], ids=lambda result: result.suite
)
def test_runs_were_made_with_the_source_of_the_commits_they_name(result: ResultFile) -> None:
    recorded = result.machine["source"]  # a list where runs of several commits were merged
    recorded = {recorded} if isinstance(recorded, str) else set(recorded)
    assert recorded == {source_at(commit) for commit in result.commit.split(", ")}
