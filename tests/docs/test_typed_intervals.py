"""Intervals that are typed into sentences are those of the result files, rounded once."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence

import pytest
from reading import ROOT

from fedloom.claims.result_files import ResultFile, packaged_results
from fedloom.claims.statistics import estimate
from fedloom.metrics.paired import t_quantile

PAGES = (
    "guides/which-method.md",
    "tutorials/long-tail.md",
    *(f"results/{name}.md" for name in ("fedalign", "fedmlb", "fedmix", "fedafa")),
)
NUMBER = r"([+-]?\d+\.\d+)"
TYPED = re.compile(rf"{NUMBER}(?: points)?(?: of recall)?\s\[{NUMBER},\s{NUMBER}\]")
WRITTEN_BY_THE_PROGRAM = re.compile(r"<!-- begin .*?<!-- end [^>]*-->", re.DOTALL)

Triple = tuple[float, float, float]


def typed(page: str) -> list[tuple[str, str, str]]:
    text = WRITTEN_BY_THE_PROGRAM.sub("", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    return TYPED.findall(text)


def triples(results: Sequence[ResultFile]) -> Iterator[Triple]:
    """The mean and the 95 % and 90 % intervals of every pair of cells, also as ratios."""
    series = [
        {seed: value for seed, value in figure.by_seed.items() if value is not None}
        for result in results
        for figure in result.figures
    ]
    for ours, theirs in itertools.permutations(series, 2):
        yield from of_pair(ours, theirs)


def of_pair(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Iterator[Triple]:
    seeds = [seed for seed in ours if seed in theirs]
    found = estimate([ours[seed] - theirs[seed] for seed in seeds])
    if found is None:
        return
    for level in (0.95, 0.9):
        half = t_quantile((1 + level) / 2, found.freedom) * found.error
        yield found.mean, found.mean - half, found.mean + half
    if all(ours[seed] > 0 and theirs[seed] > 0 for seed in seeds):
        ratio = estimate([math.log(ours[seed] / theirs[seed]) for seed in seeds])
        assert ratio is not None
        low, high = ratio.interval()
        yield math.exp(ratio.mean), math.exp(low), math.exp(high)


@pytest.fixture(scope="module")
def computed() -> list[Triple]:
    by_scale: dict[str, list[ResultFile]] = {}  # suites of one scale share runs
    for result in packaged_results():
        by_scale.setdefault(result.scale, []).append(result)
    return [triple for results in by_scale.values() for triple in triples(results)]


def is_rounded(text: str, value: float) -> bool:
    digits = len(text.partition(".")[2])
    return abs(float(text) - value) <= 0.5 * 10**-digits + 1e-9


@pytest.mark.parametrize("page", PAGES)
def test_typed_intervals_are_computed_ones(page: str, computed: list[Triple]) -> None:
    wrong = [
        f"{mean} [{low}, {high}]"
        for mean, low, high in typed(page)
        if not any(
            is_rounded(mean, m) and is_rounded(low, lo) and is_rounded(high, hi)
            for m, lo, hi in computed
        )
    ]
    assert wrong == []


def test_sentences_have_intervals() -> None:
    assert len(typed("guides/which-method.md")) > 40
    assert sum(len(typed(page)) for page in PAGES) > 60


def test_a_bound_that_is_rounded_twice_is_found() -> None:
    assert is_rounded("-0.4", -0.4457) and is_rounded("-0.45", -0.4457)
    assert not is_rounded("-0.5", -0.4457)
