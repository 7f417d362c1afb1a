"""The trials of one method, chosen by Optuna and stored in an SQLite file.

A search that is interrupted and continued makes the same trials as one that is not: what is chosen
depends only on the trials that are done, since every choice has a sampler with a seed of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedloom.core.errors import RunError, UserError
from fedloom.core.key import Key
from fedloom.data.sources.errors import missing_extra
from fedloom.settings.search_space import Axis, Combination, Range

ABOUT = "fedloom"  # name of the attribute that says what the trials were made with


@dataclass(frozen=True)
class Trial:
    """A combination of values, and its score; None if training gave up."""

    combination: Combination
    score: float | None = None


class Study:
    """The trials of a method so far, and the next one.

    about: what else the scores depend on. A file with trials of something else is an error.
    """

    def __init__(
        self, file: Path, name: str, axes: Sequence[Axis], seed: int, about: Mapping[str, Any]
    ) -> None:
        self._optuna = import_optuna()
        self._axes, self._seed = axes, seed
        self._study = _open(self._optuna, file, name)
        _check_same(self._study, {**about, "space": [str(axis) for axis in axes]}, file)
        self._asked: Any = None
        state = self._optuna.trial.TrialState
        for trial in self._study.get_trials(states=(state.RUNNING,)):
            self._study.tell(trial.number, state=state.FAIL)  # its process was killed

    @property
    def trials(self) -> list[Trial]:
        """Those that are done, in order."""
        state = self._optuna.trial.TrialState
        done = self._study.get_trials(states=(state.COMPLETE, state.PRUNED))
        return [Trial(self._combination(trial.params), trial.value) for trial in done]

    def ask(self) -> Combination:
        """What to try next; tell its score before asking again."""
        key = Key.root(self._seed).fold("tune", len(self.trials))
        self._study.sampler = self._optuna.samplers.TPESampler(seed=key.below(2**32))
        space = {axis.setting: _distribution(self._optuna, axis) for axis in self._axes}
        self._asked = self._study.ask(space)
        return self._combination(self._asked.params)

    def tell(self, score: float | None) -> None:
        """The score of what was asked last; None if training gave up, which is the worst."""
        if score is None:
            self._study.tell(self._asked, state=self._optuna.trial.TrialState.PRUNED)
        else:
            self._study.tell(self._asked, score)

    def _combination(self, chosen: Mapping[str, Any]) -> Combination:
        return tuple((axis.setting, _value(axis, chosen[axis.setting])) for axis in self._axes)


def import_optuna() -> Any:
    """Optuna, without its messages for every trial."""
    try:
        import optuna
    except ImportError:
        raise missing_extra("fedloom tune", "Optuna", "tune") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _open(optuna: Any, file: Path, name: str) -> Any:
    """The study of that name in the file, which is made if it does not exist."""
    from sqlalchemy.engine import URL
    from sqlalchemy.exc import SQLAlchemyError

    address = URL.create("sqlite", database=str(file.resolve())).render_as_string()
    try:
        return optuna.create_study(
            storage=address, study_name=name, direction="maximize", load_if_exists=True
        )
    except (SQLAlchemyError, RuntimeError) as error:
        cause = str(error).splitlines()[0]
        raise RunError(
            f"the trials in '{file}' cannot be read ({cause}); restore it from a copy, or choose "
            "another --out"
        ) from None


def _check_same(study: Any, about: Mapping[str, Any], file: Path) -> None:
    """Raise if the trials of a study were made with other settings, data or code."""
    stored = study.user_attrs.get(ABOUT)
    if stored is None:
        study.set_user_attr(ABOUT, json.dumps(about))
        return
    then = json.loads(stored)
    differing = [name for name in about if json.dumps(then.get(name)) != json.dumps(about[name])]
    if differing:
        raise UserError(
            f"'{file}' holds trials of '{study.study_name}' with other {' and '.join(differing)}; "
            "repeat the earlier command, or choose another --out"
        )


def _distribution(optuna: Any, axis: Axis) -> Any:
    """An axis as Optuna takes it; values are named by their text."""
    values = axis.values
    if not isinstance(values, Range):
        return optuna.distributions.CategoricalDistribution([str(value) for value in values])
    if values.integers:
        return optuna.distributions.IntDistribution(values.low, values.high, log=values.log)
    return optuna.distributions.FloatDistribution(values.low, values.high, log=values.log)


def _value(axis: Axis, chosen: Any) -> Any:
    values = axis.values
    if isinstance(values, Range):
        return values.rounded(chosen)
    return next(value for value in values if str(value) == chosen)
