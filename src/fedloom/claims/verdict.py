"""One claim and the figures of one result file.

The claim agrees if all comparisons of its rule agree, and differs if one of them does
(judgement.py). It is a fair test if the gate of the runs was met.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from fedloom.claims import statistics as st
from fedloom.claims.claim import Claim
from fedloom.claims.judgement import Judgement, Outcome, judge
from fedloom.claims.result_files import ResultFile
from fedloom.claims.sentences import asked, describe


@dataclass(frozen=True)
class Verdict:
    """A claim's verdict. fair: the gate was met; gate: what the gate says.

    judgement: of the comparison that settles it, or that is furthest from being settled.
    p: None for counted costs, which have no error. survives_holm: decided even after Holm's
    correction for all tested claims of the paper; None where there is nothing to correct.
    others: fair tests by other result files, with another outcome.
    """

    claim: Claim
    outcome: Outcome
    fair: bool = False
    gate: str = ""
    suite: str | None = None
    judgement: Judgement | None = None
    p: float | None = None
    survives_holm: bool | None = None
    others: tuple[Verdict, ...] = ()

    @property
    def is_decided(self) -> bool:
        """Whether the figures agree with the claim or differ from it."""
        return self.outcome in ("agrees", "differs")

    @property
    def seeds(self) -> int:
        """The seeds that both sides of the comparison have."""
        return self.judgement.seeds if self.judgement else 0

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        if self.judgement is None:
            return "not tested: no result file has all the figures"
        said = f"{self.outcome}: {describe(self.judgement)}"
        return said if self.fair else f"{said}; not a fair test: {self.gate}"

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        found = self.judgement
        return {
            "id": self.claim.id,
            "paper": self.claim.paper,
            "where": self.claim.where,
            "text": self.claim.text,
            "verdict": self.outcome,
            "fair": self.fair,
            "gate": self.gate,
            "compared": found.comparison.label if found else None,
            "asked": asked(found.comparison) if found else None,
            "mean": found.mean if found else None,
            "interval": list(found.interval) if found and found.interval else None,
            "level": found.level if found and found.interval else None,
            "seeds": self.seeds,
            "seeds_to_decide": found.seeds_to_decide if found else None,
            "p": self.p,
            "survives_holm": self.survives_holm,
            "suite": self.suite,
            "sentence": self.sentence,
            "others": [
                {"suite": other.suite, "verdict": other.outcome, "sentence": other.sentence}
                for other in self.others
            ],
        }


def verdict(claim: Claim, result: ResultFile) -> Verdict | None:
    """The verdict of one result file; None if it lacks a figure that the rule compares."""
    read = result.reader(claim)
    if read is None:
        return None
    level = st.LEVEL_AFTER_EXTENSION if result.extended else st.LEVEL
    comparisons = claim.rule.comparisons(read, claim.preset.only_column)
    judgements = [judge(c, level, claim.rule.is_counted) for c in comparisons]
    if not all(j.seeds for j in judgements):
        return None
    outcome, settling = _combine(judgements)
    gate = result.gate_of(claim)
    p = None if claim.rule.is_counted else _joint_p(outcome, judgements)
    return Verdict(claim, outcome, gate.met is True, gate.why, result.suite, settling, p)


def _combine(judgements: list[Judgement]) -> tuple[Outcome, Judgement]:
    """The outcome of all comparisons, and the one that settles it."""
    outside = [j for j in judgements if j.outcome == "differs"]
    if outside:
        return "differs", min(outside, key=lambda j: j.p)
    required = [j for j in judgements if j.comparison.required]
    open_ones = [j for j in required if j.outcome != "agrees"]
    if open_ones:
        return "not decided", max(open_ones, key=_seeds_missing)
    return "agrees", max(required, key=lambda j: j.p)


def _seeds_missing(found: Judgement) -> float:
    """How far a comparison is from being decided: infinitely, if seeds alone would not do."""
    return math.inf if found.seeds_to_decide is None else found.seeds_to_decide


def _joint_p(outcome: Outcome, judgements: list[Judgement]) -> float:
    """All comparisons must agree, so the largest p counts; if any may differ, Bonferroni's."""
    if outcome == "differs":
        smallest = min(j.p for j in judgements if j.outcome == "differs")
        return min(1.0, len(judgements) * smallest)
    return max(j.p for j in judgements if j.comparison.required)
