"""Every claim with its verdict.

If several result files have the figures that a claim compares, the fair one with the most seeds
counts. A file with too few seeds to decide comes after every file with enough, fair or not; this
order was chosen when the results of the first twelve tables were known, and before any suite had a
verdict. Among equals the suite that the claim names counts, then the first by name. Fair tests with
enough seeds and another outcome are kept with it, for the reader to see. Holm's correction is
applied within a paper, to all claims but those about counted costs, which have no error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from fedloom.claims.claim import PAPERS, Claim, claims
from fedloom.claims.judgement import Outcome
from fedloom.claims.result_files import ResultFile, packaged_results
from fedloom.claims.statistics import FEWEST_SEEDS, survives_holm
from fedloom.claims.verdict import Verdict, verdict

OUTCOMES: tuple[Outcome, ...] = ("agrees", "differs", "not decided", "not tested")
PLURALS = {"agrees": "agree", "differs": "differ"}


def verdicts(
    paper: str | None = None, results: Sequence[ResultFile] | None = None
) -> list[Verdict]:
    """The verdicts on all claims, or on those of one paper.

    results: by default the result files of the package.
    """
    files = packaged_results() if results is None else results
    found = [best_verdict(claim, files) for claim in claims(paper)]
    return [v for name in PAPERS for v in _with_holm([v for v in found if v.claim.paper == name])]


def best_verdict(claim: Claim, results: Iterable[ResultFile]) -> Verdict:
    """The verdict of the result file that tests the claim best, with fair tests that differ."""
    tests = [test for result in results if (test := verdict(claim, result)) is not None]
    if not tests:
        return Verdict(claim, "not tested")
    best = max(tests, key=_strength)
    others = (t for t in tests if t.fair and _has_enough(t) and t.outcome != best.outcome)
    return replace(best, others=tuple(others))


def _has_enough(test: Verdict) -> bool:
    return test.claim.rule.is_counted or test.seeds >= FEWEST_SEEDS


def _strength(test: Verdict) -> tuple[bool, bool, bool, int, bool]:
    enough = _has_enough(test)
    is_own_suite = test.suite == test.claim.suite
    return (enough and test.fair, enough, test.fair, test.seeds, is_own_suite)


def _with_holm(found: Sequence[Verdict]) -> list[Verdict]:
    p_values = {v.claim.id: v.p for v in found if v.p is not None}
    surviving = survives_holm(p_values)
    return [
        replace(v, survives_holm=v.is_decided and v.claim.id in surviving) if v.p is not None else v
        for v in found
    ]


def counts(found: Iterable[Verdict]) -> dict[str, int]:
    """How many claims have each outcome, how many are decided, and how many by a fair test."""
    listed = list(found)
    by_outcome = Counter(v.outcome for v in listed)
    decided = [v for v in listed if v.is_decided]
    return {
        "claims": len(listed),
        **{outcome: by_outcome[outcome] for outcome in OUTCOMES},
        "decided": len(decided),
        "decided fairly": sum(v.fair for v in decided),
    }


def counts_in_words(found: Iterable[Verdict]) -> str:
    """How many claims have each outcome, in one sentence without a full stop."""
    numbers = counts(found)
    outcomes = ", ".join(f"{numbers[name]} {PLURALS.get(name, name)}" for name in OUTCOMES)
    return (
        f"{numbers['claims']} claims: {outcomes}; {numbers['decided']} are decided, "
        f"{numbers['decided fairly']} of them by a fair test"
    )


def surviving_holm(found: Iterable[Verdict]) -> tuple[int, int]:
    """How many verdicts hold after Holm's correction, and how many were tested with an error."""
    tested = [v for v in found if v.survives_holm is not None]
    return sum(v.survives_holm is True for v in tested), len(tested)
