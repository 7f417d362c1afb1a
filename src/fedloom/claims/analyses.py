"""Analyses of a suite's finished runs, for columns such as the largest eigenvalue of the Hessian.

Each is a process of its own whose folder is written in one go, so an interruption loses no finished
analysis.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fedloom.claims.plan_suite import SuitePlan
from fedloom.claims.suites import Analysis
from fedloom.core.child_process import module_command
from fedloom.core.errors import RunError, shortened
from fedloom.experiment.stored_run import is_finished
from fedloom.runs.folder_layout import ANALYSIS, CONFIG


def run_analyses(plan: SuitePlan, jobs: int, say: Callable[[str], None]) -> None:
    """Analyse every finished run of the suite that needs it and has no such analysis yet."""
    todo = {
        run.path: cell.group.analysis
        for cell in plan.cells
        for run in cell.cell.runs
        if cell.group.analysis is not None and _is_missing(run.path, cell.group.analysis)
    }
    if not todo:
        return
    say(f"{len(todo)} runs to analyse, {jobs} at a time")
    with ThreadPoolExecutor(jobs) as pool:
        problems = list(filter(None, pool.map(lambda item: _analyse(*item), todo.items())))
    if problems:
        raise RunError(
            f"{len(problems)} runs could not be analysed; {problems[0]}; "
            "repeat the command to continue"
        )


def _is_missing(path: Path, wanted: Analysis) -> bool:
    if not (path / CONFIG).exists() or not is_finished(path):
        return False
    return not has_analysis(path, wanted)


def has_analysis(path: Path, wanted: Analysis) -> bool:
    """Whether a run has an analysis of these parts at this cost."""
    file = path / ANALYSIS / "analysis.json"
    if not file.exists():
        return False
    options = json.loads(file.read_text(encoding="utf-8")).get("options", {})
    same_cost = (options.get("samples"), options.get("probes")) == (wanted.samples, wanted.probes)
    return same_cost and set(wanted.only) <= set(options.get("only", ()))


def _analyse(path: Path, wanted: Analysis) -> str | None:
    """Why a run could not be analysed; None if it was."""
    parts, samples, probes = ",".join(wanted.only), str(wanted.samples), str(wanted.probes)
    command = module_command("fedloom", "analyze", str(path), "--only", parts, "--minutes", "0")
    command += ["--samples", samples, "--probes", probes]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    said = done.stderr.strip().splitlines()[-1:] or ["no message"]
    return f"'{path}': {shortened(said[0])}"
