"""The runs that a claim without a suite needs: its cells, looked up in all of its tables."""

from __future__ import annotations

from collections.abc import Sequence

from fedloom.claims.claim import Claim
from fedloom.claims.suites import RunGroup
from fedloom.core.errors import UserError
from fedloom.metrics.measures import is_measure
from fedloom.settings.paper_table import Column, Table
from fedloom.settings.presets import names, preset


def run_groups(claim: Claim, seeds: Sequence[int]) -> tuple[RunGroup, ...]:
    """The cells that a claim compares, by the table that has them; no others.

    A row such as "2 of 5" stands for all rows that are choices of that size.
    """
    rows_at: dict[tuple[str, str], dict[str, None]] = {}
    for row, column in claim.cells:
        table, rows = _place(claim, row, column)
        rows_at.setdefault((table, column), {}).update(dict.fromkeys(rows))
    columns_of: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (table, column), found in rows_at.items():
        columns_of.setdefault((table, tuple(found)), []).append(column)
    return tuple(
        RunGroup(table, rows, tuple(columns), tuple(seeds))
        for (table, rows), columns in columns_of.items()
    )


def _place(claim: Claim, row: str, column: str) -> tuple[str, list[str]]:
    """The first of the claim's tables that has this cell, and the rows that the row stands for."""
    for name in claim.preset.names:
        table = preset(name).table if name in names() else None
        found = None if table is None else _column(table, column)
        if table is None or found is None:
            continue
        rows = [each.name for each in table.rows if row in (each.name, each.choice)]
        if rows and not is_measure(found.measure_small or found.measure):
            raise UserError(
                f"'{claim.id}' compares column '{column}', which cannot be computed from a run's "
                f"accuracies; run the table with: fedloom reproduce {name}, and look into its runs "
                "with: fedloom analyze RUN"
            )
        if rows:
            return name, rows
    raise UserError(
        f"'{claim.id}' compares row '{row}' in column '{column}', which no table here has, so it "
        f"cannot be run; run the table with: fedloom reproduce {claim.preset.name}"
    )


def _column(table: Table, name: str) -> Column | None:
    return next((column for column in table.columns if column.name == name), None)
