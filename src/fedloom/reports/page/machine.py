"""What the results depend on besides the settings: machine, versions and data."""

from __future__ import annotations

from fedloom.experiment.stored_run import StoredRun
from fedloom.reports.page.facts import Facts
from fedloom.reports.page.html import Html, element, note, section, table
from fedloom.reports.page.numbers import several

UNKNOWN = "not recorded"


def machine(facts: Facts) -> Html:
    """Machine and versions, a column for each combination that occurs; and the data."""
    return section(
        "Machine, versions and data", "machine", _versions(facts), *_data(facts), _code(facts)
    )


def _versions(facts: Facts) -> Html:
    made: dict[tuple[tuple[str, str], ...], list[StoredRun]] = {}
    for run in facts.all_runs:
        described = {} if run.identity is None else run.identity.made_with.described()
        made.setdefault(tuple(described.items()), []).append(run)
    names = list(dict.fromkeys(name for known in made for name, _ in known))
    heads = [several(len(runs), "run") for runs in made.values()]
    rows = [[name, *(dict(known).get(name, UNKNOWN) for known in made)] for name in names]
    return table(["", *heads], rows, words=1 + len(heads)) if rows else note(UNKNOWN)


def _data(facts: Facts) -> list[Html]:
    rows: dict[str, list[object]] = {}
    for run in facts.all_runs:
        used = None if run.identity is None else run.identity.data
        if used is not None:
            label = f"{run.config.seed} {used.partition}"
            rows[label] = [
                used.name,
                run.config.seed,
                f"{used.content.train_samples:,}",
                f"{used.content.test_samples:,}",
                element("code", used.content.sha256[:16]),
                element("code", used.partition[:16]),
            ]
    columns = ["data", "seed", "training samples", "test samples", "sha256", "sha256 of the split"]
    unknown = note("The runs do not record their data.")
    return [element("h3", "Data"), table(columns, list(rows.values())) if rows else unknown]


def _code(facts: Facts) -> Html | None:
    """The user's own files, with their checksums."""
    found = {
        (place, sha)
        for run in facts.all_runs
        if run.identity is not None
        for place, sha in run.identity.code.items()
    }
    if not found:
        return None
    return table(["own code", "sha256"], [list(each) for each in sorted(found)], words=2)
