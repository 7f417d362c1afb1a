"""Verdicts once more, by other code: raw TOML and JSON, numpy and scipy, rule by rule.

It covers what the committed result files test. A new form of rule in them needs a line here.
"""

import json
import math
import tomllib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2] / "src" / "fedloom" / "claims"
COUNTED = ("macs", "stored_parameters", "bytes", "bytes_up_and_down", "peak_bytes")
Raw = dict[str, Any]
Interval = tuple[float, float]


def raw_claims() -> dict[str, Raw]:
    files = [ROOT / f"{paper}.toml" for paper in ("fedalign", "fedmlb", "fedmix", "fedafa")]
    return {c["id"]: c for file in files for c in tomllib.loads(file.read_text())["claim"]}


def raw_results() -> list[Raw]:
    return [json.loads(file.read_text()) for file in sorted((ROOT / "results").glob("*.json"))]


class Missing(Exception):
    """A result file does not have a cell."""


class Table:
    """The figures of one result file, read for one claim."""

    def __init__(self, claim: Raw, result: Raw) -> None:
        self.rule, self.preset, self.result = claim["rule"], claim["preset"], result
        self.metric = self.rule["metric"]
        self.seeds = 0

    def figure(self, name: str) -> Raw:
        row, _, column = name.partition(" @ ")
        column = column or self.rule.get("column") or self.preset["columns"][0]
        for preset in (self.preset["name"], *self.preset.get("also", [])):
            for figure in self.result["figures"]:
                if (figure["preset"], figure["row"], figure["column"]) == (preset, row, column):
                    return figure
        raise Missing(name)

    def differences(self, a: str, b: str, logs: bool) -> list[float]:
        """By shared seed; not-a-number where nothing is known."""
        first, second = self.figure(a), self.figure(b)
        pairs = [(v, second["by_seed"].get(s, "-")) for s, v in first["by_seed"].items()]
        shared = [(x, y) for x, y in pairs if y != "-"]
        self.seeds = len(shared)
        if self.metric == "rounds_to_target":
            limit = first["rounds"] + 1
            shared = [
                (math.nan, 1.0) if x is None and y is None else (x or limit, y or limit)
                for x, y in shared
            ]
        return [math.log(x / y) if logs else x - y for x, y in shared]


def interval(values: list[float], level: float, counted: bool) -> Interval | None:
    """The t interval; None if it cannot decide."""
    from scipy import stats

    if counted:
        return values[0], values[0]
    if len(values) < 3 or np.isnan(values).any():
        return None
    if np.std(values) == 0:
        return None
    low, high = stats.t.interval(
        level, len(values) - 1, loc=np.mean(values), scale=stats.sem(values)
    )
    return float(low), float(high)


def outcome(claim: Raw, result: Raw) -> tuple[str, int]:
    """The verdict and the number of seeds; Missing if the file does not test the claim."""
    table, rule = Table(claim, result), claim["rule"]
    level = 0.99 if result.get("extended") else 0.95
    counted = rule["metric"] in COUNTED
    needed, forbidden = [], []
    for values, low, high, required in compared(table, rule):
        agree = 2 * level - 1 if "within" in rule else level
        inner, outer = (interval(values, x, counted) for x in (agree, level))
        edge = 1e-12 if "at_most" in rule else 0.0
        if required:
            needed.append(inner is not None and low - edge < inner[0] and inner[1] < high + edge)
        forbidden.append(outer is not None and (outer[1] < low or outer[0] > high))
    if any(forbidden):
        return "differs", table.seeds
    return "agrees" if all(needed) else "not decided", table.seeds


Compared = list[tuple[list[float], float, float, bool]]


def compared(table: Table, rule: Raw) -> Compared:
    """Differences, the region that they must lie in, and whether they must."""
    form = next(form for key, form in FORMS.items() if key in rule)
    return form(table, rule)


def gain(t: Table, r: Raw) -> Compared:
    pairs = [(r["better"], r["than"])]
    if "columns" in r:
        pairs = [(f"{r['better']} @ {c}", f"{r['than']} @ {c}") for c in r["columns"]]
    return [(t.differences(a, b, False), r["min_gain"], math.inf, True) for a, b in pairs]


def not_better(t: Table, r: Raw) -> Compared:
    found = t.differences(r["not_better"], r["than"], False)
    return [(found, -math.inf, r["max_gain"], True)]


def not_worse(t: Table, r: Raw) -> Compared:
    found = t.differences(r["not_worse"], r["than"], False)
    return [(found, -r["max_loss"], math.inf, True)]


def equal(t: Table, r: Raw) -> Compared:
    return [(t.differences(r["a"], r["b"], False), -r["within"], r["within"], True)]


def ratio(t: Table, r: Raw) -> Compared:
    low = math.log(r["at_least"]) if r["at_least"] else -math.inf
    return [(t.differences(r["of"], r["to"], True), low, math.log(r["at_most"]), True)]


def order(t: Table, r: Raw) -> Compared:
    rows = r["order"] if r["first"] == "largest" else r["order"][::-1]
    logs = r.get("scale") == "log"
    return [(t.differences(a, b, logs), -r["slack"], math.inf, True) for a, b in pairwise(rows)]


def monotone(t: Table, r: Raw) -> Compared:
    rows = r["over"] if r["direction"] == "rises" else r["over"][::-1]
    logs = r["metric"] == "rounds_to_target"
    ends = (t.differences(rows[-1], rows[0], logs), 0.0, math.inf, True)
    steps = [(t.differences(b, a, logs), -r["slack"], math.inf, False) for a, b in pairwise(rows)]
    return [ends, *(steps if len(rows) > 2 else [])]


def gains_apart(t: Table, r: Raw) -> Compared:
    large, small = (
        t.differences(f"{r['gain_of']} @ {column}", f"{r['over']} @ {column}", False)
        for column in (r["larger_at"], r["than_at"])
    )
    found = [a - b for a, b in zip(large, small, strict=True)]
    return [(found, r["min_gain"], math.inf, True)]


def gain_range(t: Table, r: Raw) -> Compared:
    found = t.differences(r["gain_of"], r["over"], False)
    return [(found, r["at_least"], r["at_most"], True)]


def best(t: Table, r: Raw) -> Compared:
    seeds = set(t.figure(r["best_in"][0])["by_seed"])

    def values(name: str) -> np.ndarray:
        by_seed = t.figure(name)["by_seed"]
        assert seeds <= set(by_seed), "a cell without a seed of the best needs a line here"
        return np.array([value for seed, value in by_seed.items() if seed in seeds])

    inside = np.array([values(name) for name in r["best_in"]])
    t.seeds = inside.shape[1]
    chosen = inside[0]
    if len(inside) > 1:
        others = [np.delete(inside, s, axis=1).mean(axis=1) for s in range(t.seeds)]
        chosen = np.array([inside[np.argmax(mean), s] for s, mean in enumerate(others)])
    return [(list(chosen - values(name)), 0.0, math.inf, True) for name in r["out"]]


def reaches(t: Table, r: Raw) -> Compared:
    """As a share; fewer than six seeds cannot decide it."""
    first, second = (list(t.figure(r[key])["by_seed"].values()) for key in ("reaches", "misses"))
    t.seeds = len(first)
    assert t.seeds < 6, "write the exact interval of a share here"
    return [([math.nan] * len(second), 0.5, math.inf, True)]


FORMS: dict[str, Callable[[Table, Raw], Compared]] = {
    "better": gain,
    "not_better": not_better,
    "not_worse": not_worse,
    "within": equal,
    "of": ratio,
    "order": order,
    "direction": monotone,
    "best_in": best,
    "larger_at": gains_apart,
    "gain_of": gain_range,
    "reaches": reaches,
}


def expected(claim: Raw, results: list[Raw]) -> tuple[str, bool, int]:
    """The verdict, whether it is fair, and the seeds, of the result file that tests it best."""
    suites = tomllib.loads((ROOT / "suites.toml").read_text())["suite"]
    planned = {suite["id"]: suite["claims"] for suite in suites}
    tests = []
    for result in results:
        try:
            found, seeds = outcome(claim, result)
        except Missing:
            continue
        gate = result.get("gate_by_claim", {}).get(claim["id"], result["gate"])
        if claim["id"] not in planned.get(result["suite"], [claim["id"]]):
            gate = {"met": None}
        fair, enough = gate["met"] is True, seeds >= 3 or claim["rule"]["metric"] in COUNTED
        own_suite = result["suite"] == claim.get("suite")
        tests.append(((enough and fair, enough, fair, seeds, own_suite), found, fair, seeds))
    if not tests:
        return "not tested", False, 0
    _, found, fair, seeds = max(tests, key=lambda test: test[0])
    return found, fair, seeds
