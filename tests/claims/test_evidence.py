"""Every claim's verdict, computed once more from the committed result files by other code."""

import subprocess
import sys
from pathlib import Path

import pytest

from claims.oracle import expected, raw_claims, raw_results
from claims.result_text import figure
from claims.result_text import result as result_file
from fedloom.claims.claim import claims
from fedloom.claims.evidence import best_verdict, counts, verdicts
from fedloom.claims.result_files import ResultFile, packaged_results
from fedloom.claims.suites import suites
from fedloom.diagnostics.cost.count import count_cost
from fedloom.inspect import cost_tables

ROOT = Path(__file__).parents[2]
EARLIER = ROOT / "scripts" / "earlier_results.py"
RAW_CLAIMS, RAW_RESULTS = raw_claims(), raw_results()
EARLIER_RUNS = [result for result in packaged_results() if result.suite not in suites()]
DECIDED, DECIDED_FAIRLY = 77, 54  # at least this many: new results should decide more
VERDICTS = {found.claim.id: found for found in verdicts()}
OVER_FEDAVG = next(claim for claim in claims() if claim.id == "fedmix/cifar10-over-fedavg")


@pytest.mark.parametrize("name", RAW_CLAIMS)
def test_every_verdict_is_recomputed_from_the_result_files(name: str) -> None:
    pytest.importorskip("scipy.stats", reason="needs scipy to compare with")
    ours = VERDICTS[name]
    assert (ours.outcome, ours.fair, ours.seeds) == expected(RAW_CLAIMS[name], RAW_RESULTS)


def test_the_counts_add_up() -> None:
    numbers = counts(VERDICTS.values())
    outcomes = [numbers[o] for o in ("agrees", "differs", "not decided", "not tested")]
    assert sum(outcomes) == numbers["claims"] == 180
    assert numbers["decided"] == outcomes[0] + outcomes[1] >= DECIDED
    assert numbers["decided"] >= numbers["decided fairly"] >= DECIDED_FAIRLY


@pytest.mark.parametrize(
    ("name", "outcome", "interval"),
    [
        ("fedmlb/over-fedavg", "agrees", (1.36, 3.40)),
        ("fedmlb/feddyn-best-server", "agrees", (3.32, 11.11)),
        ("fedafa/c10-over-finetuning", "agrees", (11.77, 17.46)),
        ("fedafa/generated-features-help", "agrees", (0.38, 1.10)),
        ("fedafa/c10-over-local-features", "differs", (-0.25, 0.46)),
        ("fedafa/c10-over-crt", "not decided", (-7.38, 1.00)),
        ("fedmlb/fedavgm-over-fedavg", "not decided", (-0.74, 3.76)),
    ],
)
def test_the_earlier_runs(name: str, outcome: str, interval: tuple[float, float]) -> None:
    """As computed by hand when the claims were collected; of the earlier runs alone."""
    claim = next(one for one in claims() if one.id == name)
    found = best_verdict(claim, EARLIER_RUNS)
    assert found.outcome == outcome
    assert found.judgement is not None
    assert found.judgement.interval == pytest.approx(interval, abs=0.006)


def tried(suite: str, met: bool, seeds: int, gain: float) -> ResultFile:
    """FedMix over FedAvg by this gain, nearly the same on every seed."""
    base = [10.0 + seed for seed in range(seeds)]
    ours = [b + gain + 0.01 * (b % 3) for b in base]
    gate = {"met": met, "why": "tried"}
    return result_file(figure("fedmix", ours), figure("fedavg", base), suite=suite, gate=gate)


@pytest.mark.parametrize(
    ("files", "winner"),
    [
        ([("a", False, 8, 5.0), ("b", True, 3, 5.0)], "b"),  # fair before many seeds
        ([("a", True, 3, 5.0), ("b", True, 5, 5.0)], "b"),  # then the most seeds
        ([("a", True, 2, 5.0), ("b", False, 3, 5.0)], "b"),  # two seeds decide nothing
        ([("a", True, 3, 5.0), ("mix-cnn", True, 3, 5.0)], "mix-cnn"),  # the claim's own suite
        ([("a", True, 3, 5.0), ("b", True, 3, 5.0)], "a"),
    ],
)
def test_the_fair_file_with_the_most_seeds_counts(files: list, winner: str) -> None:
    assert best_verdict(OVER_FEDAVG, [tried(*file) for file in files]).suite == winner


def test_fair_tests_that_contradict_are_kept() -> None:
    files = [
        tried("a", True, 5, 5.0),
        tried("b", True, 3, -5.0),
        tried("c", True, 3, 5.0),  # the same verdict
        tried("d", False, 3, -5.0),  # not fair
        tried("e", True, 2, 5.0),  # decides nothing with two seeds
    ]
    found = best_verdict(OVER_FEDAVG, files)
    assert (found.suite, found.outcome) == ("a", "agrees")
    assert [(other.suite, other.outcome) for other in found.others] == [("b", "differs")]
    (described,) = found.describe()["others"]
    assert described["suite"] == "b" and described["sentence"].startswith("differs: fedmix")


def test_holm_marks_only_what_survives_the_number_of_tests() -> None:
    found = {v.claim.id: v for v in verdicts("fedmix", [tried("a", True, 3, 5.0)])}
    assert found[OVER_FEDAVG.id].survives_holm is True  # the only test
    assert all(v.survives_holm is None for n, v in found.items() if n != OVER_FEDAVG.id)
    marked = [v for v in VERDICTS.values() if v.survives_holm]
    assert marked and all(v.is_decided and v.p is not None for v in marked)
    tested = [v for v in VERDICTS.values() if v.claim.paper == "fedafa" and v.p is not None]
    smallest = min(tested, key=lambda v: v.p or 0)
    assert bool(smallest.survives_holm) == ((smallest.p or 0) <= 0.05 / len(tested))


def test_the_result_files_of_the_earlier_runs_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, EARLIER, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("result", EARLIER_RUNS, ids=lambda result: result.suite)
def test_the_gates_of_the_earlier_runs_do_not_depend_on_what_came_out(result: ResultFile) -> None:
    reasons = [result.gate.why, *(gate.why for gate in result.gate_by_claim.values())]
    assert [why for why in reasons if "effect" in why] == []


@pytest.mark.parametrize("name", ["fedafa-table1", "fedmix-shakespeare"])
def test_tables_whose_claims_need_the_same_have_one_gate(name: str) -> None:
    (result,) = [result for result in EARLIER_RUNS if result.suite == name]
    assert (result.gate.met, result.gate_by_claim) == (False, {})


@pytest.mark.parametrize("row", ["FedAvg", "FedProx", "MOON", "FedAlign"])
def test_counted_costs_are_recomputed(row: str) -> None:
    (stored,) = [result for result in RAW_RESULTS if result["suite"] == "cost"]
    figures = {
        f["column"]: f["by_seed"]["0"]
        for f in stored["figures"]
        if (f["preset"], f["row"]) == ("fedalign/cost-table5", row)
    }
    table = cost_tables.table("fedalign/table5")
    (of_row,) = [one for one in table.rows if one.name == row]
    counted = cost_tables.count(table, of_row, "paper", 8).cost
    assert figures == {"mflops": counted.macs("paper"), "params_m": counted.stored("paper")}


@pytest.mark.parametrize("method", ["fedavg", "fedgkd", "fedmlb"])
def test_counted_traffic_is_recomputed(method: str) -> None:
    (stored,) = [result for result in RAW_RESULTS if result["suite"] == "cost"]
    (figure_of_method,) = [
        f
        for f in stored["figures"]
        if (f["preset"], f["row"], f["column"]) == ("cost", method, "bytes_up_and_down")
    ]
    counted = count_cost(cost_tables.case_of("resnet8", None, None).scene(method, 2))
    assert figure_of_method["by_seed"] == {"0": counted.bytes_up + counted.bytes_down}
