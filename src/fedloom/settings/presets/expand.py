"""What the file of a table says in short, written out: columns of several measures, rows for every choice among some words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

Raw = Mapping[str, Any]


def columns(raw: Sequence[Raw], setups: Mapping[str, Raw], reads: Mapping[str, Raw]) -> list[Raw]:
    """Every column with the settings of its setup, once for each measure of the set that it reads.

    >>> [(c["name"], c["measure"]) for c in columns([{"name": "near", "reads": "ends"}], {}, {"ends": {"end": "accuracy"}})]
    [('near end', 'accuracy')]
    """
    full = [{**setups.get(column["name"], {}), **column} for column in raw]
    return [one for column in full for one in _read(column, reads)]


def _read(column: Raw, reads: Mapping[str, Raw]) -> list[Raw]:
    rest = {key: value for key, value in column.items() if key not in ("reads", "measure")}
    if "reads" in column:
        measures = reads[column["reads"]]
        return [
            {**rest, "name": f"{column['name']} {what}", **_by_scale(word)}
            for what, word in measures.items()
        ]
    return [{**rest, **_by_scale(column.get("measure", "accuracy"))}]


def _by_scale(measure: str | Sequence[str]) -> Raw:
    """One word, or the paper's and that of the small scale."""
    return (
        {"measure": measure}
        if isinstance(measure, str)
        else dict(zip(("measure", "measure_small"), measure, strict=True))
    )


def rows(raw: Sequence[Raw], methods: Mapping[str, Raw]) -> list[Raw]:
    """Every row with its settings, once for each of its choices.

    >>> [(r["name"], r["settings"]) for r in rows([{"name": "held", "take": 1, "of": "a b"}], {"held": {"blocks": "{}"}})]
    [('a', {'blocks': 'a'}), ('b', {'blocks': 'b'})]
    """
    full = [
        {"settings": methods[row["name"]], **row} if "settings" not in row else row for row in raw
    ]
    return [one for row in full for one in (_choices(**row) if "take" in row else [row])]


def _choices(name: str, take: int, of: str, settings: Raw, **rest: Any) -> list[Raw]:
    """A row for every choice of so many words, called by them."""
    chosen = [" ".join(words) for words in combinations(of.split(), take)]
    return [
        {
            **rest,
            "name": words,
            "settings": _filled(settings, words),
            "choice": f"{take} of {len(of.split())}",
        }
        for words in chosen
    ]


def _filled(settings: Any, words: str) -> Any:
    """The settings with the words in the place of {}."""
    if isinstance(settings, Mapping):
        return {key: _filled(value, words) for key, value in settings.items()}
    return settings.replace("{}", words) if isinstance(settings, str) else settings
