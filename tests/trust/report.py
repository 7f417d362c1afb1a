"""All attacks at full size, in one table: python -m trust.report [--share 0.05] [ATTACK ...]

Exits with 1 if a case ended in a traceback or in a result that was silently wrong, or if a run did
not resume after a kill or a power loss.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trust.outcomes import FAILURES, OUTCOMES, REJECTED, Outcomes


@dataclass(frozen=True)
class Attack:
    """A function of a module of this folder.

    cases: how many it makes up; None if it enumerates them, and takes a share instead. may_reject:
    whether an error is an acceptable end; after a kill or a power loss a run must resume.
    """

    module: str
    title: str
    cases: int | None = None
    may_reject: bool = True
    function: str = "attack"

    @property
    def name(self) -> str:
        """By which it is chosen."""
        return self.module if self.function == "attack" else f"{self.module}.{self.function}"


ATTACKS = [
    Attack("kills", "a kill at every durable step", may_reject=False),
    Attack("power", "power losses: lost, torn, reordered", may_reject=False),
    Attack("disk_errors", "a disk error at every step"),
    Attack("corruption", "damaged run folders", 1000),
    Attack("manifests", "resealed manifests, states, metrics", 2000),
    Attack("data_files", "damaged data folders", 1000, function="attack_stored"),
    Attack("configs", "mutated settings", 10_000),
    Attack("data_files", "mutated data files", 5000),
    Attack("wire", "mutated messages of workers", 5000),
]


def available() -> list[Attack]:
    """The attacks whose module exists."""
    return [a for a in ATTACKS if importlib.util.find_spec(f"trust.{a.module}") is not None]


def run(attack: Attack, share: float = 1.0, seed: int = 0) -> Outcomes:
    """The outcomes of an attack at full size, or of a share of its cases."""
    function: Any = getattr(importlib.import_module(f"trust.{attack.module}"), attack.function)
    wanted = inspect.signature(function).parameters
    with tempfile.TemporaryDirectory(prefix="fedloom-trust-") as folder:
        offered: dict[str, Any] = {"share": share, "seed": seed, "folder": Path(folder)}
        if attack.cases is not None:
            offered["count"] = max(1, round(share * attack.cases))
        outcomes: Outcomes = function(**{n: v for n, v in offered.items() if n in wanted})
    if unknown := outcomes.keys() - set(OUTCOMES):
        raise ValueError(f"{attack.module} reports unknown outcomes: {sorted(unknown)}")
    return outcomes


def failures(attack: Attack, outcomes: Outcomes) -> int:
    """The cases that ended as they must not."""
    bad = FAILURES if attack.may_reject else (*FAILURES, REJECTED)
    return sum(outcomes[kind] for kind in bad)


def main(words: list[str]) -> int:
    """Run the attacks that were named, or all; 1 if something failed."""
    every = available()
    parser = argparse.ArgumentParser(prog="python -m trust.report", description=__doc__)
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=", ".join(_names(every)))
    parser.add_argument("--share", type=float, default=1.0, help="share of the cases (1)")
    parser.add_argument("--seed", type=int, default=0, help="of the cases that are drawn (0)")
    given = parser.parse_args(words)
    if unknown := set(given.attacks) - set(_names(every)):
        parser.error(f"no attack '{min(unknown)}' (choices: {', '.join(_names(every))})")
    chosen = [a for a in every if not given.attacks or a.name in given.attacks]
    heads = ["attack", "cases", *(k.upper() if k in FAILURES else k for k in OUTCOMES), "seconds"]
    widths = [max(len(attack.title) for attack in chosen), *(max(6, len(h)) for h in heads[1:])]
    _print(heads, widths)
    failed = 0
    for attack in chosen:
        started = time.perf_counter()
        outcomes = run(attack, given.share, given.seed)
        _print(_row(attack.title, outcomes, time.perf_counter() - started), widths)
        failed += failures(attack, outcomes)
    return 1 if failed else 0


def _names(attacks: list[Attack]) -> list[str]:
    return [attack.name for attack in attacks]


def _row(title: str, outcomes: Outcomes, seconds: float) -> list[str]:
    counts = [str(outcomes[kind]) for kind in OUTCOMES]
    return [title, str(sum(outcomes.values())), *counts, f"{seconds:.0f}"]


def _print(row: list[str], widths: list[int]) -> None:
    """One row of the table, as soon as it is known: an attack may take minutes."""
    first, *others = row
    cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
    print("  ".join([first.ljust(widths[0]), *cells]), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
