"""Joins two result files of one suite, because a suite may run in parts on several machines.

`fedloom reproduce --suite ID --seed 1` makes the runs of one seed and a result file for it,
`fedloom reproduce CLAIM` those of a claim's rows. `merged` joins such files, `merged_log` and
`merged_settings` the files of a row (row_files.py). Where both have a run, the earlier file counts:
a figure that was reported is not replaced by running it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedloom.claims.row_files import SEEDS, SHARED
from fedloom.core.errors import UserError

Json = dict[str, Any]
SAME = ("format", "suite", "scale")  # files that differ here are not of one suite


def merged(old: Json, new: Json) -> Json:
    """The result file with the runs of both; a UserError if they are not of the same suite."""
    for name in SAME:
        if old[name] != new[name]:
            raise UserError(
                f"two result files of suite '{new['suite']}' differ in {name}: {old[name]!r} and "
                f"{new[name]!r}; run all seeds with the same version"
            )
    if runs_of(new) <= runs_of(old):
        return old
    runs = {(run["file"], run["seed"]): run for run in (*new["runs"], *old["runs"])}
    finished = {run["folder"] for run in runs.values()}
    gave_up = {*old["gave_up"], *new["gave_up"]} - finished
    return {
        **new,
        "commit": ", ".join(dict.fromkeys([*old["commit"].split(", "), new["commit"]])),
        # each says that the suite was the present one then, so the earlier commit had fixed it
        "fixed_at": old["fixed_at"] if new["fixed_at"] else "",
        "gate": _both_gates(old, new),
        "extended": old["extended"] or new["extended"],
        "figures": _figures(old["figures"], new["figures"]),
        "machine": _machines(old["machine"], new["machine"]),
        "runs": sorted(runs.values(), key=lambda run: (run["seed"], run["file"])),
        "gave_up": sorted(gave_up),
    }


def runs_of(result: Json) -> set[tuple[str, int]]:
    """Its finished runs: the file of their row, and their seed."""
    return {(run["file"], run["seed"]) for run in result["runs"]}


def _seeds_of(result: Json) -> set[int]:
    return {run["seed"] for run in result["runs"]}


def _both_gates(old: Json, new: Json) -> Json:
    """A condition is about the mean over seeds: it holds for all if it holds for both parts.

    If it holds for one part only, it is not known: the files have no figures to average. Further
    rows of the same seeds do not change it, because the baseline's runs are the earlier ones.
    """
    if _seeds_of(new) <= _seeds_of(old) and old["gate"]["met"] is not None:
        return dict(old["gate"])
    met = {True, False} if old["gate"]["met"] != new["gate"]["met"] else {new["gate"]["met"]}
    parts = (
        f"seeds {', '.join(map(str, sorted(_seeds_of(part))))}: {part['gate']['why']}"
        for part in (old, new)
    )
    return {"met": met.pop() if len(met) == 1 else None, "why": "; ".join(parts)}


def _figures(old: Sequence[Json], new: Sequence[Json]) -> list[Json]:
    found: dict[tuple[str, str, str], Json] = {}
    for figure in (*old, *new):
        cell = (figure["preset"], figure["row"], figure["column"])
        seeds = {**figure["by_seed"], **found.get(cell, {"by_seed": {}})["by_seed"]}
        found[cell] = {**figure, "by_seed": dict(sorted(seeds.items(), key=lambda s: int(s[0])))}
    return list(found.values())


def _machines(old: Mapping[str, Any], new: Mapping[str, Any]) -> Json:
    """Facts that differ become lists."""
    facts: Json = {}
    for name in {**old, **new}:
        values: list[Any] = []
        for given in (old.get(name), new.get(name)):
            for value in given if isinstance(given, list) else [given]:
                if value is not None and value not in values:
                    values.append(value)
        facts[name] = values[0] if len(values) == 1 else values
    return facts


def merged_log(old: str, new: str) -> str:
    """The log of a row with the lines of both, by seed."""
    (head, old_lines), (new_head, new_lines) = _parts(old), _parts(new)
    if head != new_head:
        raise UserError(f"two logs of one row begin differently: {head} and {new_head}")
    lines = {**new_lines, **old_lines}
    return "\n".join([*head, *(line for seed in sorted(lines) for line in lines[seed])]) + "\n"


def _parts(text: str) -> tuple[list[str], dict[int, list[str]]]:
    """The first lines of a log, and the others by seed."""
    lines = text.splitlines()
    count = 2 if lines[0].startswith(SHARED) else 1
    by_seed: dict[int, list[str]] = {}
    for line in lines[count:]:
        by_seed.setdefault(int(line.partition(",")[0]), []).append(line)
    return lines[:count], by_seed


def merged_settings(old: str, new: str) -> str:
    """The settings of a row, which must be equal, with the seeds of both in its first lines."""
    (old_seeds, old_text), (new_seeds, new_text) = _settings(old), _settings(new)
    if old_text != new_text:
        raise UserError("the settings of a row differ between two result files of its suite")
    seeds = ", ".join(map(str, sorted(old_seeds | new_seeds)))
    return new.replace(f"{SEEDS}{_seed_words(new)}", f"{SEEDS}{seeds}", 1)


def _settings(text: str) -> tuple[set[int], str]:
    seeds = {int(word) for word in _seed_words(text).split(", ")}
    return seeds, text.partition("\n\n")[2]


def _seed_words(text: str) -> str:
    return text.partition(SEEDS)[2].partition(".")[0]
