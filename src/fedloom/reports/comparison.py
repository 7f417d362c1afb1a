"""Runs side by side: a row per method with its seeds, or per run."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedloom.core.errors import UserError, raise_all
from fedloom.core.spec import Spec
from fedloom.core.user_code import short_reference
from fedloom.data.partition import complete
from fedloom.experiment.stored_run import StoredRun
from fedloom.metrics.curve import CurveOptions
from fedloom.metrics.history import History
from fedloom.metrics.record_json import FORMAT
from fedloom.metrics.score import Score
from fedloom.reports.by_method import method_title
from fedloom.reports.client_scores import final_scores, is_personalised
from fedloom.reports.comparable import (
    accuracy_name,
    check_comparable,
    comparison_notes,
    score_of,
)
from fedloom.reports.comparison_row import ComparisonRow, metric_text, row_of_curves
from fedloom.settings.config import Config


@dataclass(frozen=True)
class Comparison:
    """Runs compared with each other: print it, plot it, or take the rows.

    notes: in what the runs differ besides method and seed.
    """

    rows: tuple[ComparisonRow, ...]
    runs: Mapping[str, Sequence[StoredRun]] = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def options(self) -> CurveOptions:
        """How accuracies are taken from the curves."""
        return self.rows[0].options

    @property
    def all_runs(self) -> list[StoredRun]:
        """Every run of every row."""
        return [run for group in self.runs.values() for run in group]

    @property
    def score(self) -> Score:
        """What the accuracies are, by the task of the runs."""
        return self.rows[0].score

    @property
    def accuracy_name(self) -> str:
        """What the accuracies are, for axes and titles: test accuracy or validation accuracy."""
        return accuracy_name(self.all_runs, self.score)

    @property
    def accuracy_title(self) -> str:
        """The same at the beginning of a title."""
        return self.accuracy_name[:1].upper() + self.accuracy_name[1:]

    @property
    def axis_name(self) -> str:
        """The same beside an axis, with its unit."""
        return f"{self.accuracy_name}, %" if self.score.is_share else self.accuracy_name

    @property
    def accuracy_heading(self) -> str:
        """The same for tables, where accuracy is understood to be on the test data."""
        return self.accuracy_name.removeprefix("test ")

    @property
    def metric_names(self) -> list[str]:
        """The metrics of all rows besides the score."""
        names = dict.fromkeys(name for row in self.rows for name in row.metrics)
        return [name for name in names if name != self.score.metric]

    def __getitem__(self, name: str) -> ComparisonRow:
        found = next((row for row in self.rows if row.name == name), None)
        if found is None:
            raise KeyError(f"no row '{name}'; the rows are {', '.join(r.name for r in self.rows)}")
        return found

    def __str__(self) -> str:
        """A plain table, then notes.

        Its columns: the name; if there are personal models, the recall over the classes of a client
        of the model it ends with, mean over clients; the accuracy of the global model in percent;
        its deviation over seeds; metrics, if there are any; rounds.
        """
        personal = any(row.personalised for row in self.rows)
        unit, metrics = self.score.unit, self.metric_names
        accuracy = f"{self.accuracy_heading}{unit}"
        heads = ["", f"personal{unit}", accuracy, "  std", *metrics, "rounds"]
        lines = [heads, *([row.name, *_plain_cells(row, metrics)] for row in self.rows)]
        if not personal:
            lines = [[name, *rest] for name, _, *rest in lines]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = [
            "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
            for line in lines
        ]
        return "\n".join([*table, *(f"note: {note}" for note in self.notes)])

    def to_json(self) -> dict[str, Any]:
        rows = [row.to_json() for row in self.rows]
        notes = list(self.notes)
        return {"format": FORMAT, **self.options.describe(), "rows": rows, "notes": notes}

    def to_pandas(self) -> Any:
        """A pandas DataFrame, a row per method or run."""
        try:
            import pandas  # type: ignore[import-untyped]
        except ImportError:
            raise UserError(
                "to_pandas() needs pandas; install it with: pip install pandas"
            ) from None
        return pandas.json_normalize([row.to_json() for row in self.rows]).set_index("name")

    def plot(self, path: Path | str | None = None, title: str | None = None) -> Any:
        """The accuracy curves as a matplotlib Figure, shown by notebooks; with a path, saved.

        title: its first line; default: "Test accuracy by round", or "Validation accuracy by round".
        """
        from fedloom.reports import plots

        first_line = title or f"{self.accuracy_title} by round"
        heading = f"{first_line}\n{described(self.all_runs)}"
        target = None if path is None else Path(path)
        return plots.curves(self.rows, target, heading, self.axis_name)

    def report(self, path: Path | str) -> Path:
        """Write the report page, one HTML file that needs no other file, and return its path.

        It is the page of `fedloom report RUN... --html FILE`: its rows are methods with their
        settings over their seeds, FedAvg first, whatever the rows of this comparison are.
        """
        from fedloom.reports.page.write import write_page

        options = self.options
        if options.target_of:  # the user gave no target; the page takes it from its own first row
            options = replace(options, targets=(), target_of="")
        return write_page(self.all_runs, options, Path(path))


def _plain_cells(row: ComparisonRow, metrics: Sequence[str]) -> list[str]:
    """Of the plain table, without the name."""
    score = row.score
    return [
        score.text(row.over_clients(score.clients)),
        score.text(row.mean),
        score.text(row.std),
        *(metric_text(row.metric(name)) for name in metrics),
        str(row.rounds),
    ]


def compare_runs(
    runs: Mapping[str, Sequence[StoredRun]],
    options: CurveOptions | None = None,
    expected: Collection[str] = (),
) -> Comparison:
    """A row per name, over its runs. Without targets, the first row's accuracy is the target.

    Raises if two runs were made with different data; other differences become notes, except in the
    settings that are expected to differ.
    """
    options = options or CurveOptions()
    if not runs:
        raise UserError("there is nothing to compare; pass at least one run")
    every = [run for group in runs.values() for run in group]
    raise_all(filter(None, (_unreadable(run, options) for run in every)), "")
    check_comparable(every)
    if not options.targets:
        first = next(iter(runs.values()))
        reached = statistics.fmean(options.accuracy(run.history.accuracy) for run in first)
        options = replace(options, targets=(reached,), target_of=next(iter(runs)))
    rows = tuple(_row(name, group, options) for name, group in runs.items())
    return Comparison(rows, runs, comparison_notes(every, expected))


def _row(name: str, runs: Sequence[StoredRun], options: CurveOptions) -> ComparisonRow:
    scores = [final_scores(run) for run in runs]
    curves = [run.history.accuracy for run in runs]
    return replace(
        row_of_curves(name, curves, options, method_title(runs[0].config)),
        rounds=min(run.history[-1].round for run in runs),
        bytes=round(_mean_total(runs, "bytes_up", "bytes_down")),
        seconds=round(_mean_total(runs, "seconds", "evaluation_seconds"), 3),
        personalised=any(map(is_personalised, runs)),
        client_scores=() if None in scores else tuple(s for s in scores if s is not None),
        seeds=tuple(run.config.seed for run in runs),
        score=score_of(runs),
        metrics=_last_metrics(runs),
    )


def _last_metrics(runs: Sequence[StoredRun]) -> dict[str, tuple[float | None, ...]]:
    """Of the last evaluation of each run, by name."""
    last = [[record for record in run.history if record.accuracy is not None][-1] for run in runs]
    names = dict.fromkeys(name for record in last for name in record.metrics)
    return {name: tuple(record.metrics.get(name) for record in last) for name in names}


def _mean_total(runs: Sequence[StoredRun], *names: str) -> float:
    return statistics.fmean(_total(run.history, names) for run in runs)


def _total(history: History, names: Sequence[str]) -> float:
    return sum(history.total(name) for name in names)


def described(runs: Sequence[StoredRun]) -> str:
    """Data, clients, partition, model and seeds in a line; what is not the same in all is left out.

    This is the second line of a plot's title.
    """
    facts = [_facts(run.config) for run in runs]
    same = [each[0] for each in zip(*facts, strict=True) if len(set(each)) == 1]
    seeds = sorted({run.config.seed for run in runs})
    return ", ".join([*same, f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds"])


def _facts(config: Config) -> list[str]:
    clients = f"{config.data.clients} clients" if config.data.clients else "a client per user"
    model = Spec(short_reference(config.model.name), config.model.args)
    data = short_reference(config.data.name)
    return [data, clients, str(complete(config.data.partition)), str(model)]


def _unreadable(run: StoredRun, options: CurveOptions) -> str | None:
    """Why a run cannot be compared, or None."""
    curve = run.history.accuracy
    if not curve:
        return (
            f"'{run.name}' has no evaluation yet; resume it first: "
            f"fedloom resume {shlex.quote(run.name)} (or leave it out)"
        )
    try:
        options.at_rounds(curve)
    except UserError as error:
        return f"'{run.name}': {error}"
    return None
