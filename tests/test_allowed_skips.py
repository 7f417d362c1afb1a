"""CI fails if a test is skipped for a reason that is not on the list."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.browser import MISSING
from support.skip_check import is_allowed, read_list

TESTS = Path(__file__).parent
LIST = TESTS / "allowed_skips.txt"
CHECK = f"--allowed-skips={LIST}"
TEST_FILE = """
import pytest

def test_passes():
    pass

@pytest.mark.skip(reason="no ../shared/data next to the repository")
def test_may_be_skipped():
    pass

@pytest.mark.xfail(reason="known")
def test_expected_failure():
    assert False
"""
CONFTEST = """
import sys

sys.path.insert(0, ".")
from support.skip_check import pytest_addoption, pytest_configure
"""
WITHOUT_PACKAGE = (
    'import pytest\npytest.importorskip("no_such_package", reason="needs a package")\n'
)


def session(
    folder: Path, *words: str, option: str = CHECK, **files: str
) -> subprocess.CompletedProcess[str]:
    """Tests of their own in a folder, with the list of this one."""
    (folder / "support").mkdir()
    (folder / "conftest.py").write_text(CONFTEST)
    shutil.copy(TESTS / "support/skip_check.py", folder / "support")
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "pytest", option, *words],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
    )


def test_allowed_skips_and_expected_failures_pass(tmp_path: Path) -> None:
    done = session(tmp_path, some=TEST_FILE)
    assert done.returncode == 0, done.stdout
    assert "allowed, 1 skipped: no ../shared/data next to the repository" in done.stdout
    assert "NOT ALLOWED" not in done.stdout


@pytest.mark.parametrize("words", [(), ("-n", "2")], ids=["one process", "xdist"])
def test_a_missing_package_fails_the_session(tmp_path: Path, words: tuple[str, ...]) -> None:
    if words:
        pytest.importorskip("xdist")
    done = session(tmp_path, *words, some=TEST_FILE, other=WITHOUT_PACKAGE)
    assert done.returncode == 1, done.stdout
    assert re.search(r"^NOT ALLOWED, \d+ skipped: needs a package$", done.stdout, re.MULTILINE)


def test_without_the_option_nothing_is_checked(tmp_path: Path) -> None:
    done = session(tmp_path, option="-q", some=TEST_FILE, other=WITHOUT_PACKAGE)
    assert done.returncode == 0 and "skipped tests" not in done.stdout, done.stdout


def test_the_list_is_used() -> None:
    """Every line is the beginning of a reason that some test gives; the browser's is on it."""
    allowed = read_list(LIST)
    assert is_allowed(MISSING, allowed)
    sources = "".join(p.read_text(encoding="utf-8") for p in TESTS.rglob("*.py"))
    sources += (TESTS.parent / "scripts/loopback.sh").read_text(encoding="utf-8")
    assert [line for line in allowed if line not in sources] == []
