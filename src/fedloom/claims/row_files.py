"""The rows of a suite as files that anyone can read: settings as TOML and a log as CSV.

SUITE/ROW.toml   the complete settings without the seed: fedloom run --config ROW.toml --seed 0
SUITE/ROW.csv    a line per seed and round: seed, round, train_loss, accuracy; where clients have
                 models of their own also the scores of the models that clients end with, in the
                 line of the last round. All scores are fractions.

Rows with the same settings share their files. If the rounds of a row are those of an earlier one,
since it differs only in what follows them, its log has only the last round and its first line
names that row: `# the rounds are those of ROW.csv`. The files contain nothing about the machine.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedloom.claims.plan_suite import SuiteCell, SuitePlan
from fedloom.core.errors import UserError
from fedloom.experiment.schedule import folder_name
from fedloom.experiment.stored_run import StoredRun
from fedloom.metrics.client_scores import ClientScores
from fedloom.metrics.curve import Curve
from fedloom.metrics.records import RoundRecord
from fedloom.runs.durable_files import write_durably
from fedloom.settings import toml

COLUMNS = ("seed", "round", "train_loss", "accuracy")
SCORES = ("mean_class_recall", "worst_tenth", "label_weighted_accuracy")
SHARED = "# the rounds are those of "
SEEDS = "# Seeds: "
Served = tuple[str, str]  # a preset and a row of it


@dataclass(frozen=True)
class SuiteRow:
    """Runs that differ in nothing but the seed.

    name: the name of its files. served: the table rows that the runs are for; the first one names
    the files. runs: the finished ones, by seed.
    """

    name: str
    served: tuple[Served, ...]
    runs: tuple[StoredRun, ...]


@dataclass(frozen=True)
class RowLog:
    """The log of a row. curves: accuracy by seed and round. shared: the row that has the rounds."""

    curves: Mapping[int, Curve]
    last_round: Mapping[int, int]
    shared: str | None = None


def suite_rows(plan: SuitePlan, finished: Mapping[Path, StoredRun]) -> dict[Path, SuiteRow]:
    """The rows of a suite by the folder that holds the runs of all their seeds."""
    served: dict[Path, dict[Served, SuiteCell]] = {}
    paths: dict[Path, dict[int, Path]] = {}
    for cell in plan.cells:
        for run in cell.cell.runs:
            row = (cell.preset, cell.cell.row.name)
            served.setdefault(run.path.parent, {}).setdefault(row, cell)
            paths.setdefault(run.path.parent, {})[run.seed] = run.path
    rows: dict[Path, SuiteRow] = {}
    for folder, cells in served.items():
        name = _free_name(next(iter(cells.values())), {row.name for row in rows.values()})
        runs = [finished[path] for _, path in sorted(paths[folder].items()) if path in finished]
        rows[folder] = SuiteRow(name, tuple(cells), tuple(runs))
    return rows


def _free_name(cell: SuiteCell, taken: set[str]) -> str:
    """The row, with its table and then its column where another row has that name already."""
    table, row = cell.preset.rpartition("/")[2], cell.cell.row.name
    choices = (row, f"{table} {row}", f"{table} {row} {cell.cell.column.name}")
    return next(name for name in map(folder_name, choices) if name not in taken)


def write_rows(rows: Sequence[SuiteRow], folder: Path, suite: str) -> list[Path]:
    """Write the two files of every row that has a finished run; their paths."""
    with_scores = any(run.result and run.result.personalised for row in rows for run in row.runs)
    begun = [row for row in rows if row.runs]
    files = []
    for number, row in enumerate(begun):
        shared = next((r.name for r in begun[:number] if _has_rounds_of(row, r)), None)
        texts = {"toml": settings_text(row, suite), "csv": log_text(row, with_scores, shared)}
        for suffix, text in texts.items():
            files.append(folder / f"{row.name}.{suffix}")
            files[-1].parent.mkdir(parents=True, exist_ok=True)
            write_durably(files[-1], text.encode())
    return files


def _has_rounds_of(row: SuiteRow, other: SuiteRow) -> bool:
    theirs = {run.config.seed: _rounds(run) for run in other.runs}
    return all(theirs.get(run.config.seed) == _rounds(run) for run in row.runs)


def _rounds(run: StoredRun) -> list[tuple[float | None, float | None]]:
    return [(record.train_loss, record.accuracy) for record in run.history]


def settings_text(row: SuiteRow, suite: str) -> str:
    """The settings of a row as TOML, which `fedloom run` takes with a seed."""
    rows = "; ".join(f"{name} of {preset}" for preset, name in row.served)
    seeds = ", ".join(str(run.config.seed) for run in row.runs)
    settings = row.runs[0].config.model_dump(mode="json", exclude={"seed"})
    command = f"fedloom run --config {row.name}.toml --seed {row.runs[0].config.seed}"
    head = f"# Suite {suite}: {rows}\n{SEEDS}{seeds}. To run one of them: {command}\n"
    return f"{head}\n{toml.dumps(settings)}"


def log_text(row: SuiteRow, with_scores: bool, shared: str | None = None) -> str:
    """The log of a row as CSV. shared: the row that has the rounds, which are then left out."""
    text = io.StringIO()
    if shared is not None:
        text.write(f"{SHARED}{shared}.csv\n")
    groups = list(_final_scores(row.runs[0]))[len(SCORES) :] if with_scores else []
    names = (*COLUMNS, *SCORES, *groups) if with_scores else COLUMNS
    lines = csv.DictWriter(text, names, restval="", lineterminator="\n")
    lines.writeheader()
    for run in row.runs:
        for record in run.history:
            is_last = record.round == len(run.history)
            scores = _final_scores(run) if with_scores and is_last else {}
            if is_last or shared is None:
                lines.writerow({**_line(run.config.seed, record), **scores})
    return text.getvalue()


def _line(seed: int, record: RoundRecord) -> dict[str, str]:
    loss = "" if record.train_loss is None else f"{record.train_loss:.4g}"
    accuracy = "" if record.accuracy is None else f"{record.accuracy:.6g}"
    return {
        "seed": str(seed),
        "round": str(record.round),
        "train_loss": loss,
        "accuracy": accuracy,
    }


def _final_scores(run: StoredRun) -> dict[str, str]:
    """Scores of the models that clients end with, over clients; then by group of classes."""
    scores: ClientScores | None = None if run.result is None else run.result.client_scores
    if scores is None or scores.mean_class_recall is None or scores.label_weighted_accuracy is None:
        return dict.fromkeys(SCORES, "")
    recall = scores.mean_class_recall
    values = (recall.mean, recall.worst_tenth, scores.label_weighted_accuracy.mean)
    named = {**dict(zip(SCORES, values, strict=True)), **scores.group_recall}
    return {name: f"{value:.6g}" for name, value in named.items()}


def read_log(path: Path) -> RowLog:
    """The log of a row; a UserError if the file is not one."""
    lines = path.read_text(encoding="utf-8").splitlines()
    shared = None
    if lines and lines[0].startswith(SHARED):
        shared = lines.pop(0).removeprefix(SHARED).removesuffix(".csv")
    if not lines or not lines[0].startswith(",".join(COLUMNS)):
        raise UserError(f"'{path.name}' is not the log of a row; its columns are {COLUMNS}")
    curves: dict[int, dict[int, float]] = {}
    last: dict[int, int] = {}
    for seed, number, accuracy in _values(lines):
        curve = curves.setdefault(seed, {})
        last[seed] = number
        if accuracy:
            curve[number] = float(accuracy)
    return RowLog(curves, last, shared)


def _values(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    for line in csv.DictReader(lines):
        yield int(line["seed"]), int(line["round"]), line["accuracy"]
