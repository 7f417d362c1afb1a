"""Fails a test session in which a test was skipped for a reason that is not on a list.

A test that is skipped because a package is missing looks green and tests nothing. The list has one
reason per line; a reason is allowed if it begins with such a line. `--allowed-skips=FILE` turns
the check on; tests/conftest.py brings the option.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

SKIPPED = "Skipped: "  # how pytest begins the reason of a skip


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--allowed-skips",
        type=Path,
        metavar="FILE",
        help="Fail if a test is skipped for a reason that is not in this file.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Check skips where that was asked for; with pytest-xdist in the main process only."""
    file = config.getoption("--allowed-skips")
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipCheck(read_list(file)))


def read_list(path: Path) -> list[str]:
    """The lines of a list, without comments and blank lines."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def is_allowed(reason: str, allowed: Sequence[str]) -> bool:
    """Whether a reason begins with a line of the list."""
    return any(reason.startswith(line) for line in allowed)


class SkipCheck:
    """Counts the reasons for skips. With pytest-xdist the reports of all workers arrive here."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = list(allowed)
        self._reasons: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not hasattr(report, "wasxfail"):  # an expected failure counts as skipped, too
            self._count(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._count(report)

    def _count(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            self._reasons[" ".join(report.longrepr[2].removeprefix(SKIPPED).split())] += 1

    def refused(self) -> list[str]:
        """The reasons that are not on the list."""
        return [reason for reason in self._reasons if not is_allowed(reason, self._allowed)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        passed = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if passed and self.refused():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("skipped tests")
        for line in self.lines():
            terminalreporter.line(line)

    def lines(self) -> Iterator[str]:
        """Each reason, how often, and whether it is allowed."""
        if not self._reasons:
            yield "none"
        for reason, count in self._reasons.items():
            allowed = is_allowed(reason, self._allowed)
            yield f"{'allowed' if allowed else 'NOT ALLOWED'}, {count} skipped: {reason}"
        if self.refused():
            yield "Install what is missing, or add the reason to the list of allowed skips."
