"""`fedloom reproduce --claims`: every claim of the papers with its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedloom.cli.output import out, print_json, print_table, table

if TYPE_CHECKING:
    from fedloom.claims.judgement import Judgement
    from fedloom.claims.verdict import Verdict

COLUMNS = (
    "claim", "verdict", "fair", "mean", "interval", "asked", "seeds", "more", "what the paper says",
)  # fmt: skip
LEGEND = (
    "verdict: from the paired t interval over seeds, 95 % (90 % where a claim of equality agrees, "
    "99 % after an extension); *: holds after Holm's correction for all tested claims of the "
    "paper\n"
    "asked: where the whole interval must lie for the claim to agree; it is a direction and a "
    "minimum size, not the paper's number\n"
    "fair: whether the runs met the gate of their suite; runs before the suites were judged "
    "afterwards\n"
    "mean, interval: of the difference or ratio that settles the claim; counted: a cost without "
    "error\n"
    "more: how many seeds would decide the claim if mean and spread stayed the same, at 99 % as "
    "after an extension; --json adds what was compared, the gate, the suite and a sentence"
)


def show_claims(paper: str | None, as_json: bool) -> None:
    """Print the claims of all papers, or of one, with their verdicts."""
    from fedloom.claims.claim import PAPERS
    from fedloom.claims.evidence import verdicts

    found = verdicts(paper)
    if as_json:
        print_json([verdict.describe() for verdict in found])
        return
    for name in PAPERS:
        of_paper = [verdict for verdict in found if verdict.claim.paper == name]
        if of_paper:
            _print_paper(name, of_paper)
    out.print(LEGEND, markup=False, highlight=False)
    out.print(summary(found), markup=False, highlight=False)


def _print_paper(name: str, found: Sequence[Verdict]) -> None:
    title = f"{name}: {summary(found)}"
    print_table(table(COLUMNS, [_cells(verdict) for verdict in found], title, right=(3, 6, 7)))
    out.print()


def summary(found: Sequence[Verdict]) -> str:
    """How many claims have which verdict, in one line."""
    from fedloom.claims.evidence import counts_in_words, surviving_holm

    surviving, tested = surviving_holm(found)
    return (
        f"{counts_in_words(found)}; of {tested} tested with an error, "
        f"{surviving} stay decided after Holm's correction"
    )


def _cells(verdict: Verdict) -> list[str]:
    name = verdict.claim.id.partition("/")[2]
    star = "*" if verdict.survives_holm else ""
    if verdict.judgement is None:
        return [name, verdict.outcome, "", "", "", "", "", "", verdict.claim.text]
    fair = "yes" if verdict.fair else "no"
    numbers = _numbers(verdict.judgement)
    return [name, f"{verdict.outcome}{star}", fair, *numbers, verdict.claim.text]


def _numbers(found: Judgement) -> list[str]:
    """Mean, interval, what was asked, seeds, and the seeds that would decide."""
    from fedloom.claims.sentences import asked, number

    mean = "" if found.mean is None else number(found, found.mean)
    if found.is_counted:
        return [mean, "counted", asked(found.comparison), "", ""]
    ends = [number(found, end) for end in found.interval or ()]
    interval = f"[{', '.join(ends)}]" if ends else ""
    return [mean, interval, asked(found.comparison), str(found.seeds), _more(found)]


def _more(found: Judgement) -> str:
    """How many seeds would decide; empty if it is decided or if more seeds would not help."""
    from fedloom.claims.sentences import seeds_in_words

    if found.outcome != "not decided" or found.reason:
        return ""
    return "new suite" if found.is_extended else seeds_in_words(found.seeds_to_decide)
