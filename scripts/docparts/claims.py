"""What the papers claim, with the verdicts of the result files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from docparts import suites as suite_section
from docparts.earlier import EARLIER, earlier_link
from docparts.markdown import table, unbroken
from docparts.result_store import all_results
from fedloom.claims.claim import PAPERS, Claim, PrintedNumber
from fedloom.claims.evidence import (
    OUTCOMES,
    counts,
    counts_in_words,
    surviving_holm,
    verdicts,
)
from fedloom.claims.judgement import Judgement
from fedloom.claims.sentences import asked, number, repetitions, what_would_decide
from fedloom.claims.statistics import LEVEL
from fedloom.claims.suites import suites
from fedloom.claims.verdict import Verdict

TITLES = {"fedalign": "FedAlign", "fedmlb": "FedMLB", "fedmix": "FedMix", "fedafa": "FedAFA"}
HEADLINES = (
    "fedalign/fedalign-over-fedavg",
    "fedmlb/over-fedavg",
    "fedmlb/adds-to-feddyn",
    "fedmix/cifar10-over-fedavg",
    "fedmix/cifar10-over-naivemix",
    "fedafa/c10-over-finetuning",
    "fedafa/c10-over-crt",
    "fedafa/c10-over-local-features",
    "fedafa/c100-over-finetuning",
    "fedafa/c100-over-crt",
    "fedafa/c100-over-local-features",
)
HOLM = "after Holm"
HOLM_MEANS = """\
After Holm: how many claims stay decided after Holm's correction, of all that were tested with an \
error; counted costs have none."""
COSTS = "README.md"  # the page of the suite of costs, which three papers share


def paper(name: str) -> Callable[[Path], str]:
    """All claims of a paper: those that were tested, then the others."""

    def markdown(root: Path) -> str:
        every = [v for v in _verdicts(root) if v.claim.paper == name]
        tested = [v for v in every if v.judgement is not None]
        untested = [v for v in every if v.judgement is None]
        parts = [f"{counts_in_words(every)}.", _tested(tested, f"{name}.md")]
        return "\n\n".join([*parts, _untested(untested, f"{name}.md")])

    return markdown


def headlines(root: Path) -> str:
    """The main claims of the papers."""
    found = {v.claim.id: v for v in _verdicts(root)}
    return _tested([found[name] for name in HEADLINES], "README.md", with_paper=True)


def overview(root: Path) -> str:
    """How many claims of each paper have which verdict."""
    every = _verdicts(root)
    heads = ["paper", "claims", *OUTCOMES, "decided", "by a fair test", HOLM]
    groups = {TITLES[name]: [v for v in every if v.claim.paper == name] for name in PAPERS}
    rows = [_count_cells(title, of_paper) for title, of_paper in groups.items()]
    return f"{table(heads, [*rows, _count_cells('all', every)])}\n\n{HOLM_MEANS}"


def _count_cells(title: str, found: Sequence[Verdict]) -> list[str]:
    numbers = counts(found)
    surviving, tested = surviving_holm(found)
    keys = ("claims", *OUTCOMES, "decided", "decided fairly")
    return [title, *(str(numbers[key]) for key in keys), f"{surviving} of {tested}"]


def _verdicts(root: Path) -> list[Verdict]:
    return verdicts(results=all_results(root))


def _tested(found: Sequence[Verdict], page: str, with_paper: bool = False) -> str:
    """A table of verdicts, and why some tests are not fair."""
    reasons = list(dict.fromkeys(v.gate for v in found if v.judgement and not v.fair))
    heads = ["claim", "verdict", "ours", "paper", "runs"]
    rows = [_cells(v, page, reasons, with_paper) for v in found]
    notes = "\n".join(f"{n}. {reason}" for n, reason in enumerate(reasons, 1))
    text = table(heads, rows)
    return f"{text}\n\nNot a fair test, because:\n\n{notes}" if notes else text


def _cells(v: Verdict, page: str, reasons: Sequence[str], with_paper: bool) -> list[str]:
    claim = v.claim
    paper_name = f"{TITLES[claim.paper]}: " if with_paper else ""
    said = f"{paper_name}{claim.text} ({claim.where})<br>`{claim.id}`"
    runs = _runs(v.suite or claim.suite, page)
    if v.judgement is None:
        return [said, v.outcome, "", _printed(claim), runs]
    fair = "fair test" if v.fair else f"not a fair test ({reasons.index(v.gate) + 1})"
    star = "\\*" if v.survives_holm else ""
    outcome = f"**{v.outcome}**{star}<br>{fair}{''.join(_other(o, page) for o in v.others)}"
    return [said, outcome, _ours(v.judgement), _printed(claim), runs]


def _other(v: Verdict, page: str) -> str:
    """Another fair test that says something else."""
    assert v.judgement is not None  # it was tested
    found = f"{v.outcome}, {_figure(v.judgement)}".removesuffix(", ")
    return f"<br>another fair test, {_runs(v.suite, page)}: {found}"


def _ours(found: Judgement) -> str:
    """What was compared, its mean and interval, what was asked, and the seeds."""
    lines = [text for text in (found.comparison.label, _figure(found)) if text]
    seeds = "counted" if found.is_counted else repetitions(found)
    more = what_would_decide(found)
    lines.append(f"asked: {asked(found.comparison)}")
    return "<br>".join([*lines, f"{seeds}; {more}" if more else seeds])


def _figure(found: Judgement) -> str:
    """The mean and its interval, with the level if it is not the usual; empty if neither exists."""
    mean = "" if found.mean is None else number(found, found.mean)
    if found.interval is None or found.is_counted:
        return mean
    low, high = (number(found, end) for end in found.interval)
    level = "" if found.level == LEVEL else f" ({100 * found.level:.0f} %)"
    return unbroken(f"{mean} [{low}, {high}]{level}")


def _printed(claim: Claim) -> str:
    return "<br>".join(map(_printed_number, claim.printed)) or "no number"


def _printed_number(printed: PrintedNumber) -> str:
    values = printed.value if printed.value is not None else " to ".join(printed.values)
    against = f" against {', '.join(printed.against)}" if printed.against else ""
    return f"{printed.label}: {values}{against}"


def _runs(name: str | None, page: str) -> str:
    """A link to the section of the suite or of the earlier table that has the figures."""
    if name is None:
        return ""
    if name in EARLIER:
        return earlier_link(name, page)
    (owner,) = {COSTS if suites()[name].commands else f"{suites()[name].papers[0]}.md"}
    return suite_section.link(name, "" if owner == page else owner)


def _untested(found: Sequence[Verdict], page: str) -> str:
    if not found:
        return ""
    rows = [
        [f"{v.claim.text} ({v.claim.where})", _printed(v.claim), _runs(v.claim.suite, page)]
        for v in found
    ]
    title = f"<summary>Claims that were not tested: {len(found)}</summary>"
    inner = table(["claim", "paper", "suite that would test it"], rows)
    return f'<details markdown="1">\n{title}\n\n{inner}\n\n</details>'
