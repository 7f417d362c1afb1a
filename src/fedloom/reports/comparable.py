"""Whether runs can be compared: on the same data, and in what else they differ."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from fedloom.core.errors import UserError
from fedloom.core.identity import UNSET, shortened
from fedloom.experiment.stored_run import StoredRun
from fedloom.metrics.score import SCORES, Score
from fedloom.reports.by_method import flattened

# What a comparison is about, or what cannot change a result.
EXPECTED = ("method", "seed", "engine", "workers", "checkpoint_every")
SHOWN_NAMES = 3
VALIDATED = (
    "accuracies and recalls are on training samples that were held out (data.validation), "
    "not on the test data"
)


def check_comparable(runs: Sequence[StoredRun]) -> None:
    """Raise if two of the runs were made with different data, or evaluated on different data.

    The split among clients depends on seed and settings, so it counts only where these are equal.
    """
    _check_same_evaluation(runs)
    _check_same_task(runs)
    known = [run for run in runs if run.identity is not None and run.identity.data is not None]
    same_split: dict[str, StoredRun] = {}
    for run in known:
        _check_pair(known[0], run, partition=False)
        label = f"{run.config.seed} {run.config.data.model_dump_json()}"
        _check_pair(same_split.setdefault(label, run), run, partition=True)


def _check_same_evaluation(runs: Sequence[StoredRun]) -> None:
    """Raise if some runs were evaluated on the test data and some on held-out samples."""
    validated = [run for run in runs if run.config.data.validation]
    tested = [run for run in runs if not run.config.data.validation]
    if validated and tested:
        raise UserError(
            f"'{tested[0].name}' was evaluated on the test data, and '{validated[0].name}' on "
            f"held-out training samples (data.validation={validated[0].config.data.validation:g}), "
            "so their accuracies cannot be compared; compare runs with data.validation=0, or runs "
            "with data.validation above 0"
        )


def _check_same_task(runs: Sequence[StoredRun]) -> None:
    """Raise if runs learn different tasks, and so have different scores."""
    other = next((run for run in runs if run.config.task != runs[0].config.task), None)
    if other is not None:
        raise UserError(
            f"'{runs[0].name}' has the task {runs[0].config.task}, and '{other.name}' the task "
            f"{other.config.task}, so their scores cannot be compared; compare runs of one task"
        )


def score_of(runs: Sequence[StoredRun]) -> Score:
    """What the accuracies of comparable runs are: the score of their task."""
    return SCORES[runs[0].config.task]


def accuracy_name(runs: Sequence[StoredRun], score: Score) -> str:
    """What the accuracies of comparable runs are: on the test data or on held-out samples."""
    validated = any(run.config.data.validation for run in runs)
    return f"{'validation' if validated else 'test'} {score.name}"


def _check_pair(one: StoredRun, other: StoredRun, partition: bool) -> None:
    assert one.identity is not None and other.identity is not None
    ours, theirs = one.identity.data, other.identity.data
    assert ours is not None and theirs is not None
    if differing := ours.differences(theirs, partition):
        raise UserError(
            f"'{one.name}' was made with data {ours}, and '{other.name}' with {theirs}: "
            f"{' and '.join(differing)} differ; compare runs on the same data"
        )


def comparison_notes(runs: Sequence[StoredRun], expected: Collection[str] = ()) -> tuple[str, ...]:
    """What a reader of the comparison should know: everything but the data that is not the same.

    expected: settings that the comparison is about, which need no note.
    """
    names = [run.name for run in runs]
    tables = [{**_settings(run), **_made_with(run), **_code(run)} for run in runs]
    validated = any(run.config.data.validation for run in runs)
    return (
        *_differences(names, tables, expected),
        *_single_notes(runs),
        *([VALIDATED] if validated else []),
    )


def _single_notes(runs: Sequence[StoredRun]) -> Iterator[str]:
    """What is to be said about one run alone."""
    for run in runs:
        if run.identity is None:
            yield f"'{run.name}' does not record its data, so they could not be compared"
        else:
            yield from (f"'{run.name}': {change}" for change in run.identity.changes)


def _differences(
    names: Sequence[str], tables: Sequence[Mapping[str, str]], expected: Collection[str]
) -> Iterator[str]:
    """A line for each entry that is not the same in all tables, with every value and its runs."""
    for key in dict.fromkeys(key for table in tables for key in table):
        having: dict[str, list[str]] = {}
        for name, table in zip(names, tables, strict=True):
            having.setdefault(table.get(key, UNSET), []).append(f"'{name}'")
        is_expected = any(f"{key}.".startswith(f"{name}.") for name in expected)
        if len(having) > 1 and not is_expected:
            values = [f"{value} in {_listed(where)}" for value, where in having.items()]
            yield f"{key} differs: {'; '.join(values)}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - SHOWN_NAMES
    return ", ".join(names[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


def _settings(run: StoredRun) -> dict[str, str]:
    """All settings by their dotted names."""
    table = run.config.model_dump(mode="json", exclude=set(EXPECTED))
    return {path: repr(value) for path, value in flattened(table).items() if value is not None}


def _made_with(run: StoredRun) -> dict[str, str]:
    return {} if run.identity is None else run.identity.made_with.described()


def _code(run: StoredRun) -> dict[str, str]:
    """The user's own files, by their path."""
    code = {} if run.identity is None else run.identity.code
    return {f"the code of '{place}'": shortened(sha) for place, sha in code.items()}
