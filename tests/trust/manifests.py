"""Contents that make no sense under checksums that are right: manifests, states, metrics, results.

Whoever can write into a run folder can recompute its checksums: they are checksums, not signatures.
So a forger who changes numbers consistently can fake a run, and nothing in the folder can show it:
other weights of the right names, shapes and types; a control variate that the server is said not to
share yet; another loss in the metrics. Nor does anyone but a method know what its clients remember,
so tensors of other shapes in a client's memory are found only if they stop its training. Such cases
are counted as "forged consistently". Everything else must lead to an earlier checkpoint or to an
error before training: wrong types, negative lengths, missing or unknown fields, other rounds,
layouts that do not fit the state, states that do not fit the model or the method, numbers that are
not finite, results that contradict the metrics, memories that are not tensors.
"""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedloom.experiment.stored_run import read_run
from fedloom.reports.comparison import compare_runs
from trust import small_run
from trust.forgeries import (
    LAST,
    forge_manifest,
    forge_memories,
    forge_metrics,
    forge_result,
    forge_state,
)
from trust.outcomes import FORGED, IDENTICAL, WRONG, Outcomes, judged
from trust.small_run import copied


def attack(count: int = 2000, seed: int = 0) -> Outcomes:
    """Of nine cases four forge manifests, two states, the others memories, metrics and results."""
    rng, outcomes = random.Random(seed), Counter[str]()
    small_run.reference()
    with small_run.workshop() as shop:
        stopped = small_run.stopped(shop / "stopped", after=LAST)
        finished = small_run.finished(shop / "finished")
        kinds = [
            *[(stopped, forge_manifest, small_run.resume)] * 4,
            *[(stopped, forge_state, small_run.resume)] * 2,
            (stopped, forge_memories, small_run.resume),
            (finished, forge_metrics, read),
            (finished, forge_result, read),
        ]
        for case in range(count):
            base, forge, use = kinds[case % len(kinds)]
            run = copied(base, shop / "run")
            done, consistent = forge(run, rng)
            outcome = judged(f"case {case}: {done}", functools.partial(_used, use, run, consistent))
            outcomes[outcome] += 1
    return outcomes


def _used(use: Callable[[Path], str], run: Path, consistent: bool) -> str:
    outcome = use(run)
    return FORGED if outcome == WRONG and consistent else outcome


def read(run: Path) -> str:
    """Read and compare a run, as reports do."""
    wanted, found = small_run.reference(), read_run(run)
    comparison = compare_runs({"run": [found]})
    assert str(comparison) and comparison.to_json()
    lines = [small_run.timeless(record.to_json()) for record in found.history]
    assert found.result is not None
    same = lines == wanted.lines and found.result == _true_result(run)
    return IDENTICAL if same else WRONG


@functools.cache
def _true_result(run: Path) -> Any:
    return read_run(run.parent / "finished").result
