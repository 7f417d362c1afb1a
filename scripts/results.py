"""Take over the results of suites into the repository; then `scripts/docs.py` writes the pages.

    fedloom reproduce --suite mlb50 --out RUNS --results FOLDER
    python scripts/results.py FOLDER [SUITE...]
    python scripts/docs.py

FOLDER/SUITE.json goes to src/fedloom/claims/results, and FOLDER/SUITE/ with the settings and logs
of its rows to docs/results/suites. Without names, all suites are taken.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from docparts.result_store import RESULTS, SUITES, row_problems

from fedloom.claims.result_files import read_results
from fedloom.claims.suites import suites

ROOT = Path(__file__).resolve().parents[1]
ROW_FILES = ("*.toml", "*.csv")


def take_over(folder: Path, suite: str, root: Path) -> None:
    """Copy one suite; files of rows that it does not have any more are deleted."""
    source, target = folder / suite, root / SUITES / suite
    target.mkdir(parents=True, exist_ok=True)
    for old in (file for pattern in ROW_FILES for file in target.glob(pattern)):
        old.unlink()
    for file in (file for pattern in ROW_FILES for file in source.glob(pattern)):
        shutil.copyfile(file, target / file.name)
    (root / RESULTS).mkdir(parents=True, exist_ok=True)
    shutil.copyfile(folder / f"{suite}.json", root / RESULTS / f"{suite}.json")
    (result,) = read_results([root / RESULTS / f"{suite}.json"])
    if problems := row_problems(root, result):
        sys.exit(f"{suite}: {'; '.join(problems)}")


def main(arguments: list[str] | None = None, root: Path = ROOT) -> None:
    """The entry point."""
    parser = argparse.ArgumentParser(description="Take over the results of suites.")
    parser.add_argument("folder", type=Path, help="what --results was given")
    parser.add_argument("suites", nargs="*", help="default: all that the folder has")
    given = parser.parse_args(arguments)
    found = [name for name in suites() if (given.folder / f"{name}.json").exists()]
    wanted = given.suites or found
    missing = [name for name in wanted if name not in found] or ([] if wanted else ["any suite"])
    if missing:
        has = ", ".join(found) or "none"
        sys.exit(f"'{given.folder}' has no results of {', '.join(missing)}; it has: {has}")
    for name in wanted:
        take_over(given.folder, name, root)
        sys.stdout.write(f"took over {name}\n")


if __name__ == "__main__":
    main()
