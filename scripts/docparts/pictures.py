"""The pictures of a suite, drawn from the logs of its rows and from its figures: TABLE.svg.

For each preset of a suite: the accuracy by round with a band from the lowest to the highest seed,
if at least two of its rows have rounds of their own, and each row the same in all columns;
otherwise the figures of the rows, with the standard deviation over seeds. A preset whose rows are
all in an earlier picture has none.

A picture holds the checksum of what it was drawn from, so a stale one is found without drawing.
The same figures and the same version of matplotlib give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from docparts.result_store import SUITES, result_of, runs_by_file
from fedloom.claims.result_files import Figure, ResultFile
from fedloom.claims.row_files import RowLog, read_log
from fedloom.claims.suite_table import printed_number
from fedloom.claims.suites import suites
from fedloom.metrics.curve import CurveOptions
from fedloom.reports.by_method import method_title
from fedloom.reports.comparison_row import ComparisonRow, row_of_curves
from fedloom.reports.paper_table import CellResult
from fedloom.reports.plots import curves, effects
from fedloom.settings.config import load
from fedloom.settings.overrides import read

MOVING_AVERAGE = 0.9  # of tables with columns that are read off a moving average


@dataclass(frozen=True)
class Picture:
    """Where a picture lies below the root, what it shows, and how it is drawn."""

    path: Path
    about: str
    facts: Any
    draw: Callable[[], Any]

    @property
    def digest(self) -> str:
        """Of all that it shows."""
        text = json.dumps([self.about, self.facts], sort_keys=True)
        return f"drawn from sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    def is_stale(self, root: Path) -> bool:
        """Whether the file is missing or was drawn from something else."""
        file = root / self.path
        return not file.exists() or self.digest not in file.read_text(encoding="utf-8")

    def write(self, root: Path) -> None:
        """Draw it."""
        import matplotlib

        buffer = BytesIO()
        with matplotlib.rc_context({"svg.hashsalt": "fedloom"}):
            facts = {"Date": None, "Creator": None, "Description": self.digest}
            self.draw().savefig(buffer, format="svg", metadata=facts)
        lines = [line.rstrip() for line in buffer.getvalue().decode().splitlines()]
        (root / self.path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def stale_pictures(root: Path) -> list[Picture]:
    """The pictures of all suites that have to be drawn again."""
    every = (picture for suite in suites() for picture in pictures(root, suite))
    return [picture for picture in every if picture.is_stale(root)]


def pictures(root: Path, suite: str) -> list[Picture]:
    """The pictures of a suite; none before its runs."""
    result = result_of(root, suite)
    return [] if result is None or not result.runs else list(_pictures(root, result))


def _pictures(root: Path, result: ResultFile) -> Iterator[Picture]:
    folder = root / SUITES / result.suite
    shown: set[str] = set()
    for preset in dict.fromkeys(figure.preset for figure in result.figures):
        files = _files(result, preset)
        rows = {row: names[-1] for row, names in files.items()}
        logs = {row: read_log(folder / f"{file}.csv") for row, file in rows.items()}
        own = {row: log for row, log in logs.items() if log.shared is None}
        path = SUITES / result.suite / f"{preset.rpartition('/')[2]}.svg"
        if len(own) < 2 and len(own) < len(logs):
            yield _figures(result, preset, path, "Scores of the models that clients end with")
        elif len(own) < 2 or any(len(names) > 1 for names in files.values()):
            yield _figures(result, preset, path, "Test accuracy by column of the table")
        elif not shown >= {rows[row] for row in own}:
            yield _curves(result, preset, path, own, {row: folder / rows[row] for row in own})
            shown |= {rows[row] for row in own}


def _files(result: ResultFile, preset: str) -> dict[str, list[str]]:
    """The rows of a preset with the names of their files: several, if their columns differ."""
    order = dict.fromkeys(f.row for f in result.figures if f.preset == preset)
    served: dict[str, list[str]] = {row: [] for row in order}
    for file, runs in runs_by_file(result).items():
        for row in runs[0]["rows"]:
            if row["preset"] == preset and row["row"] in served:
                served[row["row"]].append(file)
    return {row: names for row, names in served.items() if names}


def _curves(
    result: ResultFile, preset: str, path: Path, logs: dict[str, RowLog], files: dict[str, Path]
) -> Picture:
    metrics = {f.metric.partition("(")[0] for f in result.figures if f.preset == preset}
    options = CurveOptions(ema=MOVING_AVERAGE if "ema" in metrics else None)
    rows = [
        row_of_curves(name, list(log.curves.values()), options, _method(files[name]))
        for name, log in logs.items()
    ]
    about = f"Test accuracy by round\nsuite {result.suite}, {preset}, {_seeds(logs)} seeds"
    facts = [[row.name, row.method, row.curve, row.band, options.ema] for row in rows]
    return Picture(path, about, facts, partial(_draw_curves, rows, about))


def _draw_curves(rows: list[ComparisonRow], title: str) -> Any:
    return curves(rows, None, title)


def _method(file: Path) -> str:
    return method_title(load(read(file.with_name(f"{file.name}.toml"))))


def _seeds(logs: dict[str, RowLog]) -> str:
    counts = sorted({len(log.curves) for log in logs.values()})
    return " or ".join(map(str, counts))


def _figures(result: ResultFile, preset: str, path: Path, what: str) -> Picture:
    cells = [
        CellResult(f.row, f.column, tuple(f.by_seed.values()), printed_number(f), 0.0)
        for f in result.figures
        if f.preset == preset and _is_score(f)
    ]
    about = f"{what}\nsuite {result.suite}, {preset}"
    facts = [cell.describe() for cell in cells]
    return Picture(path, about, facts, partial(effects, cells, None, about))


def _is_score(figure: Figure) -> bool:
    """Whether it is in percent, not a number of rounds or an indicator of an analysis."""
    return figure.metric.partition("(")[0] in ("accuracy", "ema", "personal", "group")
