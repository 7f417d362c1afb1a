"""The forms of a rule: which cells are compared, and where their difference must lie.

A cell is a row and a column of a paper's table, written "row @ column"; without the column it is
that of the rule, or the only one of the claim's preset. Every form becomes comparisons of a
difference by seed with a region. The claim agrees if all differences lie in their regions, and
differs if one lies outside, both beyond doubt (verdict.py).

better, than, min_gain                      a gain of more than min_gain, in every column
not_better, than, max_gain                  no gain of max_gain or more
not_worse, than, max_loss                   no loss of max_loss or more
a, b, within                                equal within +-within
gain_of, over, at_least, at_most            a gain in this range
gain_of, over, larger_at, than_at, min_gain the gain in one column exceeds that in another
of, to, at_least, at_most                   a ratio in this range
order, first, slack                         each is above the next; first = "smallest": below
over, direction, slack                      the last is above the first ("rises") or below it
                                            ("falls"), and no step goes back by more than slack
best_in, out                                the best of some is above each of the others
reaches, misses                             one reaches a target that the other does not
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from fedloom.claims.group_rules import Best, GainDifference, Monotone, Order, Reaches
from fedloom.claims.pair_rules import Equal, Gain, GainRange, NotBetter, NotWorse, Ratio
from fedloom.claims.rule import Rule
from fedloom.core.errors import UserError

# By the key that only this form has. Where a key occurs in two forms, the first that fits counts.
FORMS: dict[str, type[Rule]] = {
    "better": Gain,
    "not_better": NotBetter,
    "not_worse": NotWorse,
    "within": Equal,
    "of": Ratio,
    "order": Order,
    "direction": Monotone,
    "best_in": Best,
    "larger_at": GainDifference,
    "gain_of": GainRange,
    "reaches": Reaches,
}


def parse_rule(raw: Mapping[str, Any]) -> Rule:
    """The rule that a table of a claims file describes; a UserError says what is wrong with it.

    >>> parse_rule({"better": "fedmix", "than": "fedavg", "metric": "accuracy", "min_gain": 1.0})
    Gain(metric='accuracy', column=None, scale='linear', better='fedmix', than='fedavg', \
min_gain=1.0, columns=(), unpaired=False)
    """
    form = next((FORMS[key] for key in FORMS if key in raw), None)
    if form is None:
        raise UserError(f"a rule needs one of these keys: {', '.join(FORMS)}; it has {list(raw)}")
    try:
        return form.model_validate(raw)
    except ValidationError as error:
        problems = [f"{_path(e['loc'])}: {e['msg']}" for e in error.errors()]
        raise UserError(f"the rule is not of the form '{form.__name__}': {problems[0]}") from None


def _path(location: Sequence[int | str]) -> str:
    return ".".join(map(str, location)) or "rule"
