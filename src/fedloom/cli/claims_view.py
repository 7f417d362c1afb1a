"""Claims of the papers with their verdicts: all of them, or those that some runs decide."""

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
    "99 % after an extension); *: holds after Holm's correction for all claims of the paper that "
    "are tested here\n"
    "asked: where the whole interval must lie for the claim to agree; it is a direction and a "
    "minimum size, not the paper's number\n"
    "fair: whether the runs met the gate of their suite; runs before the suites were judged "
    "afterwards\n"
    "mean, interval: of the difference or ratio that settles the claim; counted: a cost without "
    "error\n"
    "more: how many seeds would decide the claim if mean and spread stayed the same, at 99 % as "
    "after an extension"
)
JSON_ADDS = "--json adds what was compared, the gate, the suite and a sentence"


def show_claims(paper: str | None, as_json: bool) -> None:
    """Print the claims of all papers, or of one, with their verdicts."""
    from fedloom.claims.evidence import verdicts

    found = verdicts(paper)
    if as_json:
        print_json([verdict.describe() for verdict in found])
        return
    for name, of_paper in _by_paper(found).items():
        _print_paper(f"{name}: {summary(of_paper)}", of_paper)
        out.print()
    out.print(f"{LEGEND}; {JSON_ADDS}", markup=False, highlight=False)
    out.print(summary(found), markup=False, highlight=False)


def show_verdicts(found: Sequence[Verdict]) -> None:
    """Print the claims that some runs decide, and why any of them was not a fair test."""
    for name, of_paper in _by_paper(found).items():
        _print_paper(f"{name}: claims that these runs decide", of_paper)
    unfair = [verdict for verdict in found if verdict.judgement is not None and not verdict.fair]
    for gate in dict.fromkeys(verdict.gate for verdict in unfair):
        names = ", ".join(verdict.claim.id for verdict in unfair if verdict.gate == gate)
        out.print(f"not a fair test of {names}: {gate}", markup=False, highlight=False)
    out.print(LEGEND, markup=False, highlight=False)


def _by_paper(found: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    """In the order in which the papers are listed."""
    from fedloom.claims.claim import PAPERS

    papers = {name: [each for each in found if each.claim.paper == name] for name in PAPERS}
    return {name: of_paper for name, of_paper in papers.items() if of_paper}


def _print_paper(title: str, found: Sequence[Verdict]) -> None:
    print_table(table(COLUMNS, [_cells(verdict) for verdict in found], title, right=(3, 6, 7)))


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
