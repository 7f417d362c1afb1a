"""`fedloom analyze`: curvature, client alignment, drift, accuracy by user and leakage of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fedloom.cli import options as o
from fedloom.cli.output import err, facts, out, print_json, say, table, user_errors

Only = Annotated[
    str | None,
    typer.Option(
        "--only",
        help="Comma-separated parts: "
        "eigen, trace, diagonal, pairs, landscape, drift, local, leak; default: all.",
        show_default=False,
    ),
]
Clients = Annotated[
    int | None,
    typer.Option(
        "--clients",
        min=2,
        help="Replay this many clients, drawn from all; default: those of the round.",
        show_default=False,
    ),
]
Leak = Annotated[
    bool,
    typer.Option(
        "--leak",
        help="What averages sent by clients reveal about their samples; same as --only leak.",
    ),
]
REPORT_SECONDS = 5.0  # between two progress lines where there is no terminal
NOISE_WARNING = 0.1  # share of noise from which on a figure is marked

Figures = dict[str, Any]


@user_errors
def analyze(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    only: Only = None,
    leak: Leak = False,
    samples: Annotated[
        int, typer.Option("--samples", min=1, help="Training samples, the same for all figures.")
    ] = 640,
    probes: Annotated[
        int, typer.Option("--probes", min=3, help="Random probes for traces and diagonals.")
    ] = 100,
    minutes: Annotated[
        float, typer.Option("--minutes", min=0, help="Time for all parts; 0: no limit.")
    ] = 10.0,
    clients: Clients = None,
    seed: Annotated[
        int, typer.Option("--seed", help="Seed for samples and probes; not the run's seed.")
    ] = 0,
    double: Annotated[bool, typer.Option("--double", help="Compute curvature in float64.")] = False,
    trust: o.Trust = False,
    json_: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Analyse a run: sharpness, client alignment, drift and leakage.

    Example: fedloom analyze runs/fedprox-s1 --only eigen,trace
    """
    from fedloom.experiment.reopen import reopened
    from fedloom.inspect.analysis import analyze as analyze_run
    from fedloom.inspect.analysis_files import save
    from fedloom.inspect.analysis_inputs import PARTS, AnalysisOptions

    if leak:
        only = "leak" if only is None else f"{only},leak"
    parts = PARTS if only is None else tuple(filter(None, map(str.strip, only.split(","))))
    options = AnalysisOptions(parts, samples, probes, minutes or None, clients, seed, double)
    o.trust_runs(trust, folder)
    with reopened(folder, say) as run, _progress() as watch:
        result = analyze_run(run, options, watch)
    saved_in = save(folder, result, say)
    if result.figures["cut_short"]:
        unfinished = ", ".join(result.figures["cut_short"])
        say(f"note: out of time in {unfinished}; these are incomplete, raise --minutes")
    if json_:
        print_json({**result.figures, "out": str(saved_in)})
    else:
        _show(result.figures, saved_in)


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """A progress bar per step on a terminal; elsewhere a line every few seconds."""
    if not err.is_terminal:
        last_reported: dict[str, float] = {}
        yield lambda step, done, total: _report_line(last_reported, step, done, total)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err) as bars:
        tasks: dict[str, Any] = {}

        def watch(step: str, done: int, total: int | None) -> None:
            if step not in tasks:
                tasks[step] = bars.add_task(step, total=total)
            bars.update(tasks[step], completed=done)

        yield watch


def _report_line(last_reported: dict[str, float], step: str, done: int, total: int | None) -> None:
    """Print a step's progress when it starts, when it ends, and every few seconds."""
    now = time.monotonic()
    if now - last_reported.get(step, -REPORT_SECONDS) >= REPORT_SECONDS or done == total:
        last_reported[step] = now
        say(f"{step}: {done}" if total is None else f"{step}: {done}/{total}")


def _show(figures: Figures, saved_in: Path) -> None:
    """Print all parts of the analysis."""
    at_round = f"round {figures['round']} of {figures['rounds']}"
    lines = {
        "run": f"{figures['method']}, {figures['model']}, {at_round}",
        "data": f"{figures['samples']:,} training samples, loss {figures['loss']:.4f}",
    }
    for part, part_lines in _LINES.items():
        if part in figures:
            lines |= part_lines(figures[part])
    out.print(facts(lines | {"seconds": figures["seconds"], "folder": str(saved_in)}))
    if "drift" in figures:
        out.print(_drift_table(figures["drift"]))
        out.print(_cka_table(figures["drift"]))


def _eigen_lines(part: Figures) -> dict[str, str]:
    if not part["values"]:
        bound = part["largest_at_least"]
        return {"eigenvalues": f"none converged; the largest is at least {bound:.4g}"}
    pairs = zip(part["values"], part["residuals"], strict=True)
    return {"eigenvalues": ", ".join(f"{value:.4g} ± {residual:.1g}" for value, residual in pairs)}


def _trace_lines(part: Figures) -> dict[str, str]:
    return {
        f"trace, {name}": f"{e['value']:.4g} ± {e['standard_error']:.2g} ({e['probes']} probes)"
        for name, e in part.items()
    }


def _diagonal_lines(part: Figures) -> dict[str, str]:
    text = f"norm {part['norm']:.4g}, from {part['lowest']:.3g} to {part['highest']:.3g}"
    return {"diagonal": text + _noise_warning([part["noise_share"]])}


def _alignment_lines(part: Figures) -> dict[str, str]:
    lines = {}
    for kind, key in (("per tensor", "per_tensor"), ("true diagonal", "diagonal")):
        warning = _noise_warning(part[key]["noise_shares"])
        for name in ("H_N", "H_D"):
            indicator = part[key][name]
            pairs = _number(indicator["mean_over_pairs"])
            error = _number(indicator["standard_error"], 2)
            matrix = _number(indicator["mean_over_matrix"])
            lines[f"{name}, {kind}"] = (
                f"{pairs} ± {error} over pairs, {matrix} over the full matrix{warning}"
            )
    return lines


def _landscape_lines(part: Figures) -> dict[str, str]:
    if not part["points"]:
        return {"landscape": "not computed: it needs two eigenvectors"}
    low, high, span = part["lowest_loss"], part["highest_loss"], part["span"]
    return {"landscape": f"loss {low:.4g} to {high:.4g} within {span} of the model"}


def _local_lines(part: Figures) -> dict[str, str]:
    """Accuracy of users on their own test samples, by their number of training samples."""
    count, lowest = len(part["users"]), 100 * part["lowest"]
    lines = {"users": f"{count:,}: accuracy {_mean_and_std(part)}, lowest {lowest:.2f} %"}
    for group in part["groups"]:
        low, high = group["min_training_samples"], group["max_training_samples"]
        sizes = f"{low} or more" if high is None else f"{low} to {high}"
        lines[f"users with {sizes} samples"] = (
            f"{group['users']:,}: accuracy {_mean_and_std(group)}" if group["users"] else "none"
        )
    return lines


def _mean_and_std(scores: Figures) -> str:
    return f"{100 * scores['mean']:.2f} ± {100 * scores['std']:.2f} %"


def _leak_lines(part: Figures) -> dict[str, str]:
    """Averages against the samples in them (members) and others of the same classes."""
    averages, samples, block = part["averages"], part["samples"], part["block"]
    of = "" if block is None else f" of the outputs of '{block}', at the last weights"
    lines = {
        "averages sent": f"{averages:,}{of}; compared with {samples:,} members and as many others"
    }
    for measure, unit in (("psnr", " dB"), ("ssim", "")):
        sides = [
            f"{side} {_number(v['mean'])}, at most {_number(v['largest'])}{unit}"
            for side, v in part[measure].items()
        ]
        lines[f"nearest, {measure.upper()}"] = "; ".join(sides)
    for attack, auc in part["auc"].items():
        value, error = auc["value"], auc["standard_error"]
        lines[f"membership, {attack}"] = f"AUC {value:.3f} ± {error:.2g} (0.5 is guessing)"
    return lines


_LINES = {
    "eigen": _eigen_lines,
    "trace": _trace_lines,
    "diagonal": _diagonal_lines,
    "pairs": _alignment_lines,
    "landscape": _landscape_lines,
    "local": _local_lines,
    "leak": _leak_lines,
}


def _drift_table(part: Figures) -> Any:
    """How far each client's model moved; a dash where there was no time to evaluate it."""
    columns = ["client", "samples", "update", "from mean", "cosine", "accuracy %"]
    rows = [["server", "", "", "", "", f"{100 * part['server']['accuracy']:.2f}"]]
    for client in part["clients"]:
        names = ("update_norm", "distance_to_mean", "cosine_to_mean")
        accuracy = f"{100 * client['accuracy']:.2f}" if "accuracy" in client else "-"
        rows.append(
            [
                str(client["client"]),
                f"{client['samples']:,}",
                *(_number(client[name]) for name in names),
                accuracy,
            ]
        )
    return table(columns, rows, right=range(1, len(columns)))


def _cka_table(part: Figures) -> Any:
    """Similarity of the clients' features to the server's, by block."""
    evaluated = [client["cka"] for client in part["clients"] if "cka" in client]
    rows = []
    for block in evaluated[0] if evaluated else ():
        values = [cka[block] for cka in evaluated if cka[block] is not None]
        if values:
            rows.append([block, _number(sum(values) / len(values)), _number(min(values))])
    return table(["block", "CKA to server, mean", "lowest"], rows, right=(1, 2))


def _number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


def _noise_warning(shares: list[float | None]) -> str:
    """A warning if much of an estimate's squared norm is noise. None: nothing but noise."""
    worst = max((1.0 if share is None else share for share in shares), default=0.0)
    if worst < NOISE_WARNING:
        return ""
    return f" ({100 * worst:.0f} % of its squared norm is noise; raise --probes)"
