"""Take over the results of suites into the repository; then `scripts/docs.py` writes the pages.

    fedloom reproduce --suite mlb50 --out RUNS --results FOLDER
    python scripts/results.py FOLDER [SUITE...]
    python scripts/docs.py

FOLDER/SUITE.json goes to src/fedloom/claims/results, and FOLDER/SUITE/ with the settings and logs
of its rows to docs/results/suites. Without names, all suites are taken. Results of some seeds
(--seed) or rows (those of a claim) are merged with what is there already, and a run that is
reported stays as it is. Only results that have all of these runs again replace them. Results with
other settings than the suite's are refused.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from docparts.result_store import RESULTS, SUITES, row_problems

from fedloom.claims.merge_results import merged, merged_log, merged_settings, runs_of
from fedloom.claims.result_files import read_results
from fedloom.claims.suites import suites

ROOT = Path(__file__).resolve().parents[1]
ROW_FILES = ("*.toml", "*.csv")


def take_over(folder: Path, suite: str, root: Path) -> None:
    """Copy one suite, merged with the runs that the repository has and the folder lacks.

    Files of rows that the suite does not have any more are deleted.
    """
    target, file = root / SUITES / suite, root / RESULTS / f"{suite}.json"
    new = json.loads((folder / f"{suite}.json").read_text(encoding="utf-8"))
    if changed := new.get("changed"):
        sys.exit(
            f"{suite}.json has other settings than the suite: {', '.join(changed)}; "
            "run the suite without them"
        )
    rows = _files(folder / suite)
    if file.exists():
        old = json.loads(file.read_text(encoding="utf-8"))
        if not runs_of(old) <= runs_of(new):
            new, rows = merged(old, new), _merged_rows(_files(target), rows)
    target.mkdir(parents=True, exist_ok=True)
    for name in _files(target):
        (target / name).unlink()
    for name, text in rows.items():
        (target / name).write_text(text, encoding="utf-8")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(new, indent=1) + "\n", encoding="utf-8")
    (result,) = read_results([file])
    if problems := row_problems(root, result):
        sys.exit(f"{suite}: {'; '.join(problems)}")


def _files(folder: Path) -> dict[str, str]:
    """The settings and logs of a suite's rows by name."""
    files = (file for pattern in ROW_FILES for file in folder.glob(pattern))
    return {file.name: file.read_text(encoding="utf-8") for file in sorted(files)}


def _merged_rows(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    merge = {".csv": merged_log, ".toml": merged_settings}
    both = {name: merge[Path(name).suffix](old[name], new[name]) for name in old.keys() & new}
    return {**old, **new, **both}


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
