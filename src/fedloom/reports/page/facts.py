"""What the page shows, gathered once: the comparison, and what the data on this machine add.

Nothing of a run is executed: only packaged methods and models are looked at for their cost, and
data that are missing or have changed leave a reason in place of the picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fedloom.core.errors import RunError, UserError
from fedloom.experiment.stored_run import StoredRun
from fedloom.metrics.score import ACCURACY, Score
from fedloom.reports.client_scores import ClientData, client_data, mean_class_recall
from fedloom.reports.colours import BASELINE, Style, styles
from fedloom.reports.comparison import Comparison
from fedloom.reports.comparison_row import ComparisonRow
from fedloom.reports.compute_curve import ComputeCurve, compute_curves

REMEDY = "put the earlier data back"
# What settings of a stranger, or data that are gone, can lead to: the page says it and goes on.
PROBLEMS = (UserError, RunError, OSError, ValueError, RuntimeError, ArithmeticError, MemoryError)


@dataclass(frozen=True)
class Measure:
    """A score of every row and seed, as a share; title: what it is, in words."""

    name: str
    title: str
    values: Mapping[str, Mapping[int, float]]


@dataclass
class Kept:
    """What is computed once and reused each time the page is drawn."""

    clients: dict[str, ClientData | str] = field(default_factory=dict)
    macs: dict[str, float] = field(default_factory=dict)


class Facts:
    """A comparison and all that the sections of the page ask about it."""

    def __init__(self, comparison: Comparison, kept: Kept | None = None) -> None:
        self.comparison, self.rows, self.runs = comparison, comparison.rows, comparison.runs
        self._kept = kept or Kept()
        every = styles([row.method or row.name for row in self.rows])
        self.styles: dict[str, Style] = {
            row.name: style for row, style in zip(self.rows, every, strict=True)
        }

    @property
    def all_runs(self) -> list[StoredRun]:
        """Every run of every row."""
        return self.comparison.all_runs

    @property
    def score(self) -> Score:
        """What rows are compared by."""
        return self.comparison.score

    @property
    def is_finished(self) -> bool:
        """Whether every run has reached its last round."""
        return all(run.result is not None for run in self.all_runs)

    @cached_property
    def baseline(self) -> ComparisonRow:
        """The row that others are compared with: FedAvg if it is there, else the first."""
        return next((row for row in self.rows if row.method == BASELINE), self.rows[0])

    @cached_property
    def measures(self) -> list[Measure]:
        """The score that rows are ranked by comes first: of the clients' own models, if any."""
        accuracy = {
            row.name: dict(zip(row.seeds, row.accuracies, strict=True)) for row in self.rows
        }
        name = self.comparison.accuracy_heading
        found = [Measure(name, f"{name} of the global model", accuracy)]
        if any(row.personalised for row in self.rows):
            what, title = (
                "recall",
                "mean recall over the classes of each client, of the model it ends with",
            )
            if self.score is not ACCURACY:
                what, title = (
                    self.score.name,
                    f"{self.score.name} of the model that a client ends with",
                )
            found.insert(0, Measure(f"clients' {what}", title, self._client_scores()))
        return found

    def _client_scores(self) -> dict[str, dict[int, float]]:
        """The mean over clients, for every row and seed where it is known."""
        found = {}
        for row in self.rows:
            of_seeds = zip(row.seeds, row.client_values(self.score.clients), strict=False)
            found[row.name] = {seed: value for seed, value in of_seeds if value is not None}
        return found

    @cached_property
    def first_runs(self) -> dict[str, StoredRun]:
        """A run of each row, all with the same seed and so the same clients, where there are."""
        shared = set.intersection(*(set(row.seeds) for row in self.rows))
        seed = min(shared, default=None)
        chosen = {
            name: next((run for run in group if run.config.seed == seed), group[0])
            for name, group in self.runs.items()
        }
        first = next(iter(chosen.values())).config
        return {
            name: run
            for name, run in chosen.items()
            if (run.config.data, run.config.seed) == (first.data, first.seed)
        }

    @cached_property
    def clients(self) -> ClientData | str:
        """What the clients of these runs hold; in words, why that is not known."""
        run = next(iter(self.first_runs.values()))
        label = f"{run.config.seed} {run.config.data.model_dump_json()}"
        if label not in self._kept.clients:
            self._kept.clients[label] = _client_data(run)
        return self._kept.clients[label]

    @cached_property
    def class_recalls(self) -> dict[str, list[float | None]]:
        """Recall by class, the mean over seeds, of the rows in which clients were scored."""
        scored = [row for row in self.rows if row.client_scores]
        found = {row.name: mean_class_recall(row.client_scores) for row in scored}
        sizes = {len(recalls) for recalls in found.values()}
        return found if len(sizes) == 1 and sizes != {0} else {}

    def class_names(self, size: int) -> list[str]:
        """The names of the classes; their numbers where the data are not here."""
        known = () if isinstance(self.clients, str) else self.clients.classes
        return list(known) if len(known) == size else [f"class {n}" for n in range(size)]

    @cached_property
    def compute(self) -> dict[str, list[ComputeCurve]] | str:
        """Every row against compute; in words, why that is not known."""
        foreign = [run for run in self.all_runs if run.config.references]
        if foreign:
            return f"'{foreign[0].name}' uses code of its own, and this page runs none"
        try:
            return {
                name: compute_curves(group, self.comparison.options, self._kept.macs)
                for name, group in self.runs.items()
            }
        except PROBLEMS as problem:
            return str(problem)


def _client_data(run: StoredRun) -> ClientData | str:
    try:
        return client_data(run, REMEDY)
    except PROBLEMS as problem:
        return str(problem)
