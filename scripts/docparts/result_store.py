"""Result files and the rows' settings and logs, as they lie in the repository.

A result file whose rows lack settings or a log, or have another number of seeds or rounds, is an
error: the pages would link to nothing, or to another run.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from fedloom.claims.result_files import ResultFile, read_results
from fedloom.claims.row_files import read_log

RESULTS = Path("src") / "fedloom" / "claims" / "results"
SUITES = Path("docs") / "results" / "suites"
Run = dict[str, Any]  # an entry of `runs` of a result file


def all_results(root: Path) -> tuple[ResultFile, ...]:
    """All result files, by name."""
    return read_results(sorted((root / RESULTS).glob("*.json")))


def result_of(root: Path, suite: str) -> ResultFile | None:
    """The result file of a suite, with complete files of its rows; None if it was not run yet."""
    path = root / RESULTS / f"{suite}.json"
    if not path.exists():
        return None
    (result,) = read_results([path])
    if problems := row_problems(root, result):
        sys.exit(
            f"{path.name}: {'; '.join(problems)}; write them with: "
            f"fedloom reproduce --suite {suite} --results FOLDER, "
            "and take them over with: python scripts/results.py FOLDER"
        )
    return result


def runs_by_file(result: ResultFile) -> dict[str, list[Run]]:
    """The runs of a suite by the name of their files, each in the order of the seeds."""
    found: dict[str, list[Run]] = {}
    for run in result.runs:
        found.setdefault(run["file"], []).append(run)
    return {name: sorted(runs, key=lambda run: run["seed"]) for name, runs in found.items()}


def row_problems(root: Path, result: ResultFile) -> list[str]:
    """What is wrong with the settings and logs of a suite's rows; empty if nothing is."""
    folder = root / SUITES / result.suite
    rows = runs_by_file(result)
    found = [
        f"{(SUITES / result.suite / name).as_posix()}.{suffix} is missing"
        for name in rows
        for suffix in ("toml", "csv")
        if not (folder / f"{name}.{suffix}").exists()
    ]
    for name, runs in rows.items():
        log = folder / f"{name}.csv"
        rounds = {run["seed"]: run["rounds"] for run in runs}
        if log.exists() and read_log(log).last_round != rounds:
            found.append(f"{log.name} has other seeds or rounds than the result file")
    strangers = {file.name for file in folder.glob("*.*") if file.suffix in (".toml", ".csv")} - {
        f"{name}.{suffix}" for name in rows for suffix in ("toml", "csv")
    }
    return found + [f"{name} belongs to no run" for name in sorted(strangers)]
