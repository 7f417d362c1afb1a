"""The commit that fixed a suite: the last change of suites.toml before the runs."""

import shutil
import subprocess
from pathlib import Path

import pytest

from fedloom.claims import suites
from fedloom.claims.commits import PACKAGE, fixed_at
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


@pytest.mark.parametrize("commit", ["", "0" * 40, "HEAD", "--help"])
def test_it_is_not_known_without_the_commit(repository: Path, commit: str) -> None:
    assert fixed_at(suite("mlb50"), commit, repository) == ""
