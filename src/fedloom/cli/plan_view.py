"""What `fedloom reproduce` shows before runs start: which, how long each should take, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fedloom.cli.output import say

if TYPE_CHECKING:
    from fedloom.claims.estimate import Estimate, RunEstimate
    from fedloom.experiment.schedule import PlannedRun


class Choice(NamedTuple):
    """The runs to make now, and how many are left for later."""

    now: list[PlannedRun]
    left: int
    facts: dict[str, Any]


def choose_runs(plans: Sequence[PlannedRun], hours: float | None, jobs: int) -> Choice:
    """Estimate the runs, show them, and choose those that fit into the hours."""
    from fedloom.claims.estimate import estimate
    from fedloom.experiment.schedule import unfinished

    if to_time := unfinished(plans):
        say(f"estimating {len(to_time)} runs: a few steps of each new kind are timed")
    found = estimate(plans)
    within = found.within(hours, jobs)
    for line in _lines(found, within, hours, jobs):
        say(line)
    to_do = {each.run.path for each in found.runs}
    chosen = {each.run.path for each in within}
    now = [run for run in plans if run.path not in to_do or run.path in chosen]
    return Choice(now, len(found.runs) - len(within), _facts(found, within, jobs))


def _facts(found: Estimate, within: Sequence[RunEstimate], jobs: int) -> dict[str, Any]:
    return {
        "finished": found.finished,
        "runs": [
            {
                "run": each.run.title,
                "folder": str(each.run.path),
                "seconds": round(each.seconds, 1),
                "shares_rounds": each.shared,
                "rate": each.rate.source,
                "seconds_per_round": round(each.rate.round, 4),
            }
            for each in found.runs
        ],
        "core_seconds": round(found.seconds, 1),
        "jobs": jobs,
        "within_hours": len(within),
    }


def _lines(
    found: Estimate, within: Sequence[RunEstimate], hours: float | None, jobs: int
) -> list[str]:
    from fedloom.claims.estimate import in_words

    total = len(found.runs) + found.finished + found.gave_up
    lines = [f"plan: {total} runs, {found.finished} finished, {len(found.runs)} to do"]
    if found.gave_up:
        lines.append(f"  {found.gave_up} runs gave up, since their training diverged")
    for title, group in _by_title(found.runs).items():
        seconds = in_words(sum(each.seconds for each in group) / len(group))
        shared = sum(each.shared for each in group)
        reuse = f", {shared} with the rounds of another run" if shared else ""
        lines.append(f"  {title}: {len(group)} x {seconds}{reuse} ({group[0].rate.source})")
    if found.runs:
        several = f"{in_words(found.seconds / jobs)} with {jobs} at a time"
        single = "less where a run uses several cores"
        core = in_words(found.seconds)
        lines.append(f"estimate: {core} of one core, {several if jobs > 1 else single}")
    if hours is not None and len(within) < len(found.runs):
        done = in_words(sum(each.seconds for each in within) / jobs)
        left = len(found.runs) - len(within)
        lines.append(
            f"--hours {hours:g}: {len(within)} runs now ({done}), {left} left for later; "
            "the same command continues"
        )
    return lines


def _by_title(runs: Sequence[RunEstimate]) -> dict[str, list[RunEstimate]]:
    """The runs by what they run, whatever the seed."""
    groups: dict[str, list[RunEstimate]] = {}
    for each in runs:
        title = " ".join(filter(None, (each.run.method, each.run.column)))
        groups.setdefault(title, []).append(each)
    return groups
