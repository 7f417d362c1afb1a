"""Claims about costs: no run decides them, but commands that count or time; which ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedloom.claims.claim import Claim

BENCHMARK = "python -m benchmarks."
CHECKOUT = "  (in a checkout of the repository: the benchmarks are not part of the package)"
TIMED = "step_seconds"


def check_has_runs(name: str) -> None:
    """Raise for a claim that a cost decides, with the commands that give its figures."""
    from fedloom.claims.claim import claims
    from fedloom.claims.suites import suites
    from fedloom.core.errors import UserError

    for claim in claims():
        if claim.id == name and claim.suite is not None and not suites()[claim.suite].runs:
            commands = as_lines(_commands(claim, suites()[claim.suite].commands))
            raise UserError(f"'{name}' is decided by a cost, not by runs; try:\n{commands}")


def _commands(claim: Claim, of_suite: Sequence[str]) -> Sequence[str]:
    """Those that give the figures of one claim: its own, or those for its table."""
    if claim.preset.command is not None:
        return [claim.preset.command]
    if claim.rule.metric == TIMED:
        return [each for each in of_suite if f"{BENCHMARK}steps --only {claim.paper}" in each]
    table = claim.preset.name.replace("/cost-", "/")
    return [each for each in of_suite if table in each]


def as_lines(commands: Sequence[str]) -> str:
    """One command per line, and what the benchmarks need."""
    lines = [f"  {each}" for each in commands]
    if any(each.startswith(BENCHMARK) for each in commands):
        lines.append(CHECKOUT)
    return "\n".join(lines)
