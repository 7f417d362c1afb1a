"""Tuning: every method gets the same number of trials, on seeds and samples that are not reported.

A trial trains with data.validation above 0, so it is scored on training samples that were held out,
and with seeds that begin SEED_GAP after those of the settings. What did best is then trained on all
training samples with the seeds that are reported, and evaluated on the test data once.

The methods take turns: trial 1 of all, then trial 2 of all. A trial depends only on the earlier
trials of its method, so the result does not depend on how many runs there are at a time, nor on
interruptions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedloom.core.errors import RunError
from fedloom.experiment.identity import CurrentData
from fedloom.experiment.prepare import check_names
from fedloom.experiment.schedule import PlannedRun, check_methods, folder_name, plan_seeds
from fedloom.experiment.stored_run import gave_up, read_run
from fedloom.experiment.study import Study, Trial, import_optuna
from fedloom.experiment.tuning_space import check_over, check_space, search_space, with_values
from fedloom.methods.registry import build as build_method
from fedloom.metrics.curve import mean_of_all
from fedloom.metrics.measures import final_score
from fedloom.metrics.score import SCORES
from fedloom.runs.lock import Lock
from fedloom.settings.config import DEFAULTS, Config, load
from fedloom.settings.overrides import overlay
from fedloom.settings.search_space import Axis, Combination, label

RunAll = Callable[[Sequence[PlannedRun]], None]
Message = Callable[[str], None]
SEED_GAP = 1000  # tuning seeds begin this far after the reported ones, of which there are fewer
SHARE = 0.2  # of every client's training samples, held out for tuning unless the settings say
TRIALS, LOCK = "trials.sqlite", "lock"
# settings that the score of a trial does not depend on
IRRELEVANT = {"engine", "workers", "checkpoint_every"}


@dataclass(frozen=True)
class Budget:
    """What every method gets: trials, and seeds for each of them."""

    trials: int
    seeds: int = 1


@dataclass(frozen=True)
class Tuned:
    """A method with its search space and its trials."""

    method: str
    config: Config
    axes: tuple[Axis, ...]
    trials: tuple[Trial, ...]

    @property
    def best(self) -> int:
        """The number of the best trial, from 0; the first of equals."""
        known = [n for n, trial in enumerate(self.trials) if trial.score is not None]
        if not known:
            raise RunError(
                f"training gave up in every trial of '{self.method}'; "
                "use a smaller learning rate, for example --over train.lr=0.0001..0.01"
            )
        return max(known, key=lambda n: (self.trials[n].score or 0.0, -n))

    @property
    def chosen(self) -> Combination:
        return self.trials[self.best].combination

    @property
    def score(self) -> float:
        """Of the best trial, on the held-out samples; in percent, if it is a share."""
        score = self.trials[self.best].score
        assert score is not None
        return score

    @property
    def gave_up(self) -> int:
        """Trials in which training gave up."""
        return sum(trial.score is None for trial in self.trials)

    def best_so_far(self) -> list[float | None]:
        """After each trial, the best score until then."""
        best: list[float | None] = []
        for trial in self.trials:
            known = [s for s in (trial.score, best[-1] if best else None) if s is not None]
            best.append(max(known, default=None))
        return best


class Tuning:
    """The tuning of several methods in one folder. Everything is checked on construction."""

    def __init__(
        self,
        raw: Mapping[str, Any],
        methods: Sequence[str],
        over: Sequence[Axis],
        budget: Budget,
        folder: Path,
    ) -> None:
        import_optuna()
        self.folder, self.budget = folder, budget
        check_methods(methods)
        self._raw = {m: overlay(raw, [("method", m)], DEFAULTS) for m in methods}
        self._configs = {m: load(settings) for m, settings in self._raw.items()}
        for config in self._configs.values():
            check_names(config)
        check_over(over, list(self._configs.values()))
        self.axes = {m: search_space(config, over) for m, config in self._configs.items()}
        for method, axes in self.axes.items():
            check_space(self._raw[method], self._configs[method], axes)
        self._data = CurrentData()
        self.measure = self._measure()

    def run(self, run_all: RunAll, say: Message) -> list[Tuned]:
        """Make the trials that are missing; all methods with theirs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = Lock(self.folder / LOCK)
        try:
            studies = {method: self._study(method) for method in self._configs}
            for number in range(self.budget.trials):
                self._trial(number, studies, run_all, say)
            return [self._tuned(method, study) for method, study in studies.items()]
        finally:
            lock.close()

    def plan_reported(self, tuned: Sequence[Tuned], seeds: int) -> list[PlannedRun]:
        """The runs to report: the best settings of each method, evaluated on the test data."""
        plans = []
        for one in tuned:
            settings = with_values(self._raw[one.method], one.config, one.chosen)
            settings = overlay(settings, [("data.validation", 0.0)], DEFAULTS)
            name = f"{folder_name(one.method)}-trial-{one.best + 1}"
            folder = self.folder / "reported" / name
            plans += plan_seeds(one.method, settings, seeds, folder, self._data)
        return plans

    def _measure(self) -> str:
        """By what trials are judged: by personal models if any of the methods makes them."""
        configs = self._configs.values()
        personal = any(build_method(config.method_specs).personal for config in configs)
        scored = all(config.evaluate.personal for config in configs)
        return "personal" if personal and scored else "accuracy"

    def _study(self, method: str) -> Study:
        config = self._configs[method]
        trial = load(self._trial_settings(method, ()))
        about = {
            "settings": trial.model_dump(mode="json", exclude=IRRELEVANT),
            "seeds": self.budget.seeds,
            "data": self._data.used_by(trial).content.sha256,
            "code": config.code(),
            "measure": self.measure,
        }
        file = self.folder / TRIALS
        return Study(file, method, self.axes[method], config.seed, about)

    def _trial_settings(self, method: str, combination: Combination) -> dict[str, Any]:
        config = self._configs[method]
        changes = [
            ("seed", config.seed + SEED_GAP),
            ("data.validation", config.data.validation or SHARE),
        ]
        return overlay(with_values(self._raw[method], config, combination), changes, DEFAULTS)

    def _trial(
        self, number: int, studies: Mapping[str, Study], run_all: RunAll, say: Message
    ) -> None:
        """One trial of every method that has not made it yet."""
        asked, plans = {}, {}
        for method, study in studies.items():
            if len(study.trials) > number:
                continue
            asked[method] = study.ask()
            plans[method] = self._plan(method, number, asked[method])
        run_all([planned for group in plans.values() for planned in group])
        for method, combination in asked.items():
            score = self._score(plans[method])
            studies[method].tell(score)
            of = SCORES[self._configs[method].task]
            result = "gave up" if score is None else f"{score:.{of.digits(2)}f}{of.unit}"
            count = f"trial {number + 1} of {self.budget.trials}"
            say(f"{method}, {count}: {result} with {label(combination)}")

    def _plan(self, method: str, number: int, combination: Combination) -> list[PlannedRun]:
        folder = self.folder / "trials" / folder_name(method) / f"trial-{number + 1}"
        settings = self._trial_settings(method, combination)
        name = f"{method} trial {number + 1}"
        return plan_seeds(name, settings, self.budget.seeds, folder, self._data)

    def _score(self, plans: Sequence[PlannedRun]) -> float | None:
        """The mean over seeds; None if one of them gave up."""
        if any(gave_up(planned.path) for planned in plans):
            return None
        return mean_of_all([self._score_of_run(planned.path) for planned in plans])

    def _score_of_run(self, path: Path) -> float | None:
        run = read_run(path)
        scores = None if run.result is None else run.result.client_scores
        score, personal = SCORES[run.config.task], self.measure == "personal"
        return final_score(score, run.history.accuracy, scores, personal)

    def _tuned(self, method: str, study: Study) -> Tuned:
        trials = study.trials[: self.budget.trials]
        return Tuned(method, self._configs[method], tuple(self.axes[method]), tuple(trials))
