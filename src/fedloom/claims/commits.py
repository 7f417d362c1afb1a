"""Which commit runs were made with, and which one had fixed their suite before."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import fedloom
from fedloom.claims import suites
from fedloom.claims.suites import Suite
from fedloom.core.errors import UserError, shown_text
from fedloom.experiment.stored_run import StoredRun
from fedloom.runs.made_with import made_with

PACKAGE = Path(fedloom.__file__).parent
COMMIT = re.compile(r"[0-9a-f]{4,64}")


def check_commit(commit: str) -> None:
    """Raise if this cannot be a commit: result files name it, and `fixed_at` looks it up."""
    if not COMMIT.fullmatch(commit):
        raise UserError(
            f"--commit '{shown_text(commit)}' is not the hash of a commit; write 4 to 64 of its "
            "hexadecimal digits in small letters, such as 7b89d0c"
        )


def made_at_commit(runs: Iterable[StoredRun]) -> str:
    """The commit that all these runs were made with; empty if that is not certain.

    It is certain if their source code is the one that runs now and has no uncommitted changes.
    """
    now = made_with().source
    identities = [run.identity for run in runs]
    if any(each is None or each.made_with.source != now for each in identities):
        return ""
    if git(PACKAGE, "status", "--porcelain", "--", ".") != "":
        return ""
    return git(PACKAGE, "rev-parse", "HEAD") or ""


def fixed_at(suite: Suite, commit: str, folder: Path = PACKAGE / "claims") -> str:
    """The commit at which settings, seeds, gate and rule of a suite were fixed.

    It is the last one that changed suites.toml up to the commit of the runs. Empty if that is not
    certain: without git, or if the suite or the rule has changed since.
    """
    known = suites.suites().get(suite.id)
    if not COMMIT.fullmatch(commit) or known is None:
        return ""
    then = git(folder, "show", f"{commit}:./{suites.FILE}")
    if then is None or not _is_unchanged(then, known):
        return ""
    return git(folder, "log", "-1", "--format=%H", commit, "--", suites.FILE) or ""


def _is_unchanged(text: str, now: Suite) -> bool:
    try:
        then = suites.read(text)
    except (UserError, KeyError, TypeError, ValueError):  # another format
        return False
    found = then.suites.get(now.id)
    if found is None or then.rule != suites.rule():
        return False
    return _what_is_run(found) == _what_is_run(now)


def _what_is_run(suite: Suite) -> Suite:
    """A suite without its words for the reader, which may be corrected later.

    What is run is in its overrides, rows and presets; `scale` only describes it, and `tried` has
    notes on trials.
    """
    return replace(suite, scale="", tried=())


def git(folder: Path, *words: str) -> str | None:
    """The output of a git command; None if there is no git, no repository or no such commit."""
    try:
        done = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
