"""Runs in groups that differ in nothing but the seed: a row per method and its settings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fedloom.core.spec import Spec
from fedloom.core.user_code import short_reference
from fedloom.experiment.stored_run import StoredRun
from fedloom.reports.colours import BASELINE
from fedloom.settings.config import Config

# What may differ within a row: the seed, and what cannot change a result.
FREE = frozenset({"seed", "engine", "workers", "checkpoint_every"})


def method_title(config: Config) -> str:
    """The method with its arguments; of a user's own file, its name without the path."""
    return "+".join(str(Spec(short_reference(s.name), s.args)) for s in config.method_specs)


def by_method(runs: Sequence[StoredRun]) -> dict[str, list[StoredRun]]:
    """The runs by the name of their row, each row in the order of its seeds.

    FedAvg comes first: others are compared with it. Rows of the same method are told apart by the
    settings in which they differ. A run that occurs twice, with all its settings and its seed,
    begins a row of its own.
    """
    groups: dict[tuple[str, int], list[StoredRun]] = {}
    seen: Counter[str] = Counter()
    for run in runs:
        settings = json.dumps(run.config.model_dump(mode="json", exclude=set(FREE)))
        alike = f"{run.config.seed} {settings}"
        groups.setdefault((settings, seen[alike]), []).append(run)
        seen[alike] += 1
    rows = sorted(groups.values(), key=lambda row: method_title(row[0].config) != BASELINE)
    names = _names([row[0] for row in rows])
    return {
        name: sorted(row, key=lambda run: run.config.seed)
        for name, row in zip(names, rows, strict=True)
    }


def _names(firsts: Sequence[StoredRun]) -> list[str]:
    """A different name for every row, given its first run."""
    titles = [method_title(run.config) for run in firsts]
    longer = [
        _with_settings(run, [r for r, t in zip(firsts, titles, strict=True) if t == title], title)
        for run, title in zip(firsts, titles, strict=True)
    ]
    count = Counter(longer)
    found: list[str] = []
    for name, run in zip(longer, firsts, strict=True):
        full = f"{name} ({run.name})" if count[name] > 1 else name
        again = sum(other.partition(" #")[0] == full for other in found)
        found.append(f"{full} #{again + 1}" if again else full)
    return found


def _with_settings(run: StoredRun, alike: Sequence[StoredRun], title: str) -> str:
    """The title and the settings by which this run differs from others of the same title."""
    tables = [
        flattened(other.config.model_dump(mode="json", exclude={*FREE, "method"}))
        for other in alike
    ]
    ours = tables[next(n for n, other in enumerate(alike) if other is run)]
    names = dict.fromkeys(name for table in tables for name in table)
    differing = [n for n in names if any(t.get(n) != ours.get(n) for t in tables)]
    return ", ".join([title, *(f"{name}={ours.get(name)}" for name in differing)])


def flattened(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """All settings by their dotted names.

    >>> flattened({"train": {"lr": 0.1}, "seed": 3})
    {'train.lr': 0.1, 'seed': 3}
    """
    flat: dict[str, Any] = {}
    for name, value in table.items():
        inner = isinstance(value, Mapping)
        flat |= flattened(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return flat
