"""A comparison on the terminal: table, JSON and plots."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from fedloom.cli.output import megabytes, out, print_json, print_table, say, table
from fedloom.metrics.curve import averaged_evaluations, rounds_to
from fedloom.metrics.score import ACCURACY

if TYPE_CHECKING:
    from fedloom.metrics.curve import CurveOptions
    from fedloom.reports.comparison import Comparison
    from fedloom.reports.comparison_row import ComparisonRow


@dataclass(frozen=True)
class Plots:
    """What is plotted besides curves and classes.

    client: the one whose classes are shown; None for all. by: a setting whose effect is shown.
    compute: accuracy against compute.
    """

    client: int | None = None
    by: str | None = None
    compute: bool = False

    def first_flag(self) -> str | None:
        """The first plot that was asked for, as its option; None if none was."""
        given = {"--client": self.client is not None, "--by": self.by, "--compute": self.compute}
        return next((flag for flag, asked in given.items() if asked), None)


def show(
    kind: str,
    folders: Mapping[str, Sequence[Path]],
    options: CurveOptions,
    plot_folder: Path | None,
    as_json: bool,
    wanted: Plots | None = None,
) -> None:
    """Compare the runs in these folders, a row per name; plots only if they have a folder."""
    comparison = compared(folders, options)
    plots = {} if plot_folder is None else plot(comparison, plot_folder, wanted or Plots())
    if as_json:
        print_json(to_json(comparison, plots, plot_folder))
    else:
        print_comparison(kind, comparison, plots)


def compared(folders: Mapping[str, Sequence[Path]], options: CurveOptions) -> Comparison:
    """The comparison of the runs in these folders, a row per name."""
    from fedloom.experiment.stored_run import read_run
    from fedloom.reports.comparison import compare_runs

    runs = {name: [read_run(path) for path in paths] for name, paths in folders.items()}
    return compare_runs(runs, options)


def to_json(
    comparison: Comparison, plots: Mapping[str, str], plot_folder: Path | None
) -> dict[str, Any]:
    """The comparison and the paths of its plots, of which some may not exist."""
    nothing = dict.fromkeys(("curves", "classes"))
    folder = None if plot_folder is None else str(plot_folder)
    return {**comparison.to_json(), "plots": {**nothing, **plots}, "folder": folder}


def plot(comparison: Comparison, folder: Path, wanted: Plots) -> dict[str, str]:
    """Draw the plots that can be drawn; their paths by what they show."""
    from fedloom.reports import compute_curve, personal_plot, plots
    from fedloom.reports.client_scores import by_class
    from fedloom.reports.comparison import described
    from fedloom.reports.sweep import by_setting, score_name

    rows, runs = comparison.rows, comparison.runs
    draw: dict[str, Callable[[Path], object]] = {"curves": comparison.plot}
    recalls = by_class({row.name: row.client_scores for row in rows}, runs, wanted.client)
    if recalls is not None:
        methods = [row.method for row in rows]
        title = f"{recalls.title}\n{described(comparison.all_runs)}"
        draw["classes"] = lambda path: plots.changes(*recalls[:2], path, title, methods)
    if any(row.personalised for row in rows) and all(row.client_scores for row in rows):
        draw["personal"] = lambda path: personal_plot.plot(comparison, path)
    if wanted.compute:
        curves = compute_curve.compute_curves(comparison.all_runs, comparison.options)
        name, score = comparison.axis_name, comparison.score
        draw["compute"] = lambda path: compute_curve.plot(curves, path, name, score)
    if wanted.by is not None:
        figures, what = by_setting(comparison.all_runs, wanted.by), score_name(comparison)
        heading = f"{what[:1].upper()}{what[1:]} by {wanted.by}"
        draw["effects"] = lambda path: plots.effects(figures, path, heading, comparison.score.axis)
    paths = {name: folder / f"{name}.png" for name in draw}
    return {name: str(paths[name]) for name, make in draw.items() if drawn(make, paths[name])}


def drawn(make: Callable[[Path], object], path: Path) -> bool:
    """Whether a plot could be drawn; if not, the reason is printed."""
    from fedloom.core.errors import UserError

    try:
        make(path)
    except UserError as missing:
        say(f"note: {missing}")
        return False
    return True


CLIENT_LEGEND = (
    "personal: recall averaged over the classes that a client has, of its own model (or of the "
    "global one if the method makes no other), mean over clients; worst tenth: of clients; "
    "weighted: accuracy weighted by a client's labels; accuracy: of the global model"
)
OTHER_LEGEND = (
    "personal: {score} of a client's own model (or of the global one if the method makes no "
    "other), mean over clients; worst tenth: of clients; {score}: of the global model"
)


def print_comparison(kind: str, comparison: Comparison, plots: Mapping[str, str]) -> None:
    """The table with a sparkline per curve, and how its columns are computed."""
    rows = comparison.rows
    personal = any(row.personalised for row in rows)
    columns = _columns(kind, comparison, personal)
    values = [y for row in rows for _, y in row.smoothed]
    bounds = min(values), max(values)
    ranking = [_ranked_by(row, personal) for row in rows]
    metrics = comparison.metric_names
    cells = [
        _cells(row, score == max(ranking), personal, bounds, metrics)
        for row, score in zip(rows, ranking, strict=True)
    ]
    print_table(table(columns, cells, right=range(1, len(columns) - 1)))
    out.print(_legend(rows), highlight=False)
    if personal:
        name, of_classes = comparison.score.name, comparison.score is ACCURACY
        legend = CLIENT_LEGEND if of_classes else OTHER_LEGEND.format(score=name)
        out.print(legend, highlight=False)
    for note in comparison.notes:
        out.print(f"note: {note}", highlight=False, markup=False)
    for name, path in plots.items():
        out.print(f"{name}: {path}", highlight=False)


def _columns(kind: str, comparison: Comparison, personal: bool) -> list[str]:
    options, score = comparison.options, comparison.score
    weighted = [f"weighted{score.unit}"] if score is ACCURACY else []
    return [
        kind,
        *([f"personal{score.unit}", "worst tenth", *weighted] if personal else ()),
        f"{comparison.accuracy_heading}{score.unit}",
        "std",
        *comparison.metric_names,
        *(f"at {r}" for r in options.at),
        *(f"to {score.text(t, 1)}{score.unit}" for t in options.targets),
        "sent",
        "seconds",
        "by round",
    ]


def _ranked_by(row: ComparisonRow, personal: bool) -> float:
    """The score by which the best row is found: of personal models where there are any."""
    if not personal:
        return row.mean
    found = row.over_clients(row.score.clients)
    return -math.inf if found is None else found


def _client_scores(row: ComparisonRow) -> list[float | None]:
    """Of the models that clients end with: the mean, the worst tenth, and weighted by labels."""
    found = [row.over_clients(row.score.clients, of) for of in ("mean", "worst_tenth")]
    weighted = [row.over_clients("label_weighted_accuracy")] if row.score is ACCURACY else []
    return [*found, *weighted]


def _cells(
    row: ComparisonRow,
    best: bool,
    personal: bool,
    bounds: tuple[float, float],
    metrics: Sequence[str],
) -> list[str]:
    from fedloom.reports.comparison_row import metric_text
    from fedloom.reports.plots import sparkline

    score = row.score
    return [
        f"[bold]{escape(row.name)}[/bold]" if best else escape(row.name),
        *(map(score.text, _client_scores(row)) if personal else ()),
        score.text(row.mean),
        score.text(row.std) if len(row.accuracies) > 1 else "-",
        *(metric_text(row.metric(name)) for name in metrics),
        *(score.text(statistics.fmean(seeds)) for seeds in row.at),
        *(rounds_to(seeds, row.rounds) for seeds in row.reached),
        megabytes(row.bytes),
        f"{row.seconds:.1f}",
        sparkline([y for _, y in row.smoothed], *bounds, width=16),
    ]


def _legend(rows: Sequence[ComparisonRow]) -> str:
    """How the columns are computed."""
    options = rows[0].options
    name = rows[0].score.name
    what = f"{name}, at" if options.at else name
    sparse = any(len(row.curve) < row.rounds for row in rows)
    how = _smoothing(options, [len(row.curve) for row in rows])
    note = " (not every round has one)" if sparse else ""
    metrics = (
        "metrics: last evaluation; " if any(set(r.metrics) - {r.score.metric} for r in rows) else ""
    )
    return (
        f"{what}: {how}{note}; std: over seeds; {metrics}"
        "to: first round that reaches it, N+ if a seed does not within N"
    )


def _smoothing(options: CurveOptions, evaluations: Sequence[int]) -> str:
    if options.ema is None:
        return averaged_evaluations(evaluations)
    begun = {"first": "starting from the first", "debiased": "debiased"}[options.start]
    return f"moving average {options.ema:g} per round, {begun}"
