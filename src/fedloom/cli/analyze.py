"""`fedloom analyze`: curvature, alignment, drift, users and leaks of a run, on fixed data and within a budget."""

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
        help="Parts, by commas: eigen, trace, diagonal, pairs, landscape, drift, local, leak.",
        show_default=False,
    ),
]
Clients = Annotated[
    int | None,
    typer.Option(
        "--clients",
        min=2,
        help="Clients to replay, drawn from all; default: those of the round.",
        show_default=False,
    ),
]
Leak = Annotated[
    bool,
    typer.Option(
        "--leak", help="What averages sent by clients show of their samples: --only leak."
    ),
]
EVERY = 5.0  # seconds between two plain lines


@user_errors
def analyze(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    only: Only = None,
    leak: Leak = False,
    samples: Annotated[
        int, typer.Option("--samples", min=1, help="Training samples, the same for every figure.")
    ] = 640,
    probes: Annotated[
        int, typer.Option("--probes", min=3, help="Random probes for traces and diagonals.")
    ] = 100,
    minutes: Annotated[
        float, typer.Option("--minutes", min=0, help="Time for all parts; 0: no limit.")
    ] = 10.0,
    clients: Clients = None,
    seed: Annotated[
        int, typer.Option("--seed", help="Of samples, probes and starts; not that of the run.")
    ] = 0,
    double: Annotated[bool, typer.Option("--double", help="Curvature in float64.")] = False,
    json_: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Look into a run: sharpness, client alignment and drift. Example: fedloom analyze runs/fedprox-s1 --only eigen,trace"""
    from fedloom.experiment.reopen import reopened
    from fedloom.inspect.analysis import PARTS, AnalysisOptions
    from fedloom.inspect.analysis import analyze as look
    from fedloom.inspect.analysis_files import keep

    if leak:
        only = "leak" if only is None else f"{only},leak"
    parts = (
        PARTS if only is None else tuple(name.strip() for name in only.split(",") if name.strip())
    )
    wish = AnalysisOptions(parts, samples, probes, minutes or None, clients, seed, double)
    with reopened(folder, say) as run, _watching() as watch:
        found = look(run, wish, watch)
    place = keep(folder, found, say)
    if found.figures["cut"]:
        say(
            f"note: out of time in {', '.join(found.figures['cut'])}; these end with what they had, --minutes gives them more"
        )
    if json_:
        print_json({**found.figures, "out": str(place)})
    else:
        _show(found.figures, place)


@contextmanager
def _watching() -> Iterator[Callable[[str, int, int | None], None]]:
    """A bar for each part on a terminal; elsewhere a line when a part begins, and every few seconds."""
    if not err.is_terminal:
        said: dict[str, float] = {}
        yield lambda part, done, total: _line(said, part, done, total)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err) as shown:
        tasks: dict[str, Any] = {}

        def watch(part: str, done: int, total: int | None) -> None:
            if part not in tasks:
                tasks[part] = shown.add_task(part, total=total)
            shown.update(tasks[part], completed=done)

        yield watch


def _line(said: dict[str, float], part: str, done: int, total: int | None) -> None:
    now = time.monotonic()
    if now - said.get(part, -EVERY) >= EVERY or done == total:
        said[part] = now
        say(f"{part}: {done}{'' if total is None else f'/{total}'}")


def _show(figures: dict[str, Any], place: Path) -> None:
    """Every part that there is, in the order it is read."""
    head = {
        "run": f"{figures['method']}, {figures['model']}, round {figures['round']} of {figures['rounds']}"
    }
    head["data"] = f"{figures['samples']:,} training samples, loss {figures['loss']:.4f}"
    for part, lines in _LINES.items():
        head |= lines(figures[part]) if part in figures else {}
    out.print(facts(head | {"seconds": figures["seconds"], "folder": str(place)}))
    if "drift" in figures:
        out.print(_drift(figures["drift"]))
        out.print(_features(figures["drift"]))


def _eigen(found: dict[str, Any]) -> dict[str, str]:
    if not found["values"]:
        return {
            "eigenvalues": f"none converged; the largest is at least {found['largest_at_least']:.4g}"
        }
    pairs = zip(found["values"], found["residuals"], strict=True)
    return {"eigenvalues": ", ".join(f"{value:.4g} ± {residual:.1g}" for value, residual in pairs)}


def _trace(found: dict[str, Any]) -> dict[str, str]:
    return {
        f"trace, {name}": f"{e['value']:.4g} ± {e['error']:.2g} ({e['probes']} probes)"
        for name, e in found.items()
    }


def _diagonal(found: dict[str, Any]) -> dict[str, str]:
    return {
        "diagonal": f"norm {found['norm']:.4g}, from {found['least']:.3g} to {found['largest']:.3g}{_noise([found['noise']])}"
    }


def _pairs(found: dict[str, Any]) -> dict[str, str]:
    kinds = (("per tensor", found["per_tensor"]), ("true diagonal", found["diagonal"]))
    return {
        f"{name}, {of}": f"{_number(kind[name]['pairs'])} ± {_number(kind[name]['error'], 2)} over pairs, "
        f"{_number(kind[name]['full'])} over the full matrix{_noise(kind['noise'])}"
        for of, kind in kinds
        for name in ("H_N", "H_D")
    }


def _landscape(found: dict[str, Any]) -> dict[str, str]:
    if not found["points"]:
        return {"landscape": "no eigenvectors to look along"}
    return {
        "landscape": f"loss {found['lowest']:.4g} to {found['highest']:.4g} within {found['span']} of the model"
    }


def _local(found: dict[str, Any]) -> dict[str, str]:
    """How users fare, each on test samples of its own, by how many samples it trained on."""
    lines = {
        "users": f"{len(found['users']):,}: accuracy {_spread(found)}, at least {100 * found['least']:.2f} %"
    }
    for group in found["groups"]:
        upper = "or more" if group["below"] is None else f"to {group['below'] - 1}"
        who = f"users of {group['from']} {upper} samples"
        lines[who] = f"{group['count']:,}: accuracy {_spread(group)}" if group["count"] else "none"
    return lines


def _spread(found: dict[str, Any]) -> str:
    return f"{100 * found['mean']:.2f} ± {100 * found['std']:.2f} %"


def _leak(found: dict[str, Any]) -> dict[str, str]:
    """Averages beside the samples in them and others of the same classes; AUC 0.5 is a guess."""
    what = (
        "" if found["block"] is None else f" of what '{found['block']}' gives, at the last weights"
    )
    lines = {
        "averages sent": f"{found['averages']:,}{what}, beside {found['samples']:,} samples in them and as many others"
    }
    for name, unit in (("psnr", " dB"), ("ssim", "")):
        both = [
            f"{side} {_number(v['mean'])}, at most {_number(v['largest'])}{unit}"
            for side, v in found[name].items()
        ]
        lines[f"nearest, {name.upper()}"] = "; ".join(both)
    for name, score in found["auc"].items():
        lines[f"membership, {name}"] = (
            f"AUC {score['value']:.3f} ± {score['error']:.2g} (0.5 is a guess)"
        )
    return lines


_LINES = {
    "eigen": _eigen,
    "trace": _trace,
    "diagonal": _diagonal,
    "pairs": _pairs,
    "landscape": _landscape,
    "local": _local,
    "leak": _leak,
}


def _drift(found: dict[str, Any]) -> Any:
    """How far each client went; what was cut for lack of time has a dash."""
    columns = ["client", "samples", "update", "from mean", "cosine", "accuracy %"]
    rows = [["server", "", "", "", "", f"{100 * found['server']['accuracy']:.2f}"]]
    for c in found["clients"]:
        scored = f"{100 * c['accuracy']:.2f}" if "accuracy" in c else "-"
        rows.append(
            [
                str(c["client"]),
                f"{c['samples']:,}",
                *(_number(c[n]) for n in ("length", "distance", "cosine")),
                scored,
            ]
        )
    return table(columns, rows, right=range(1, len(columns)))


def _features(found: dict[str, Any]) -> Any:
    """Block by block, how alike the clients' features are to the server's."""
    seen = [c["cka"] for c in found["clients"] if "cka" in c]
    columns = {
        block: [s[block] for s in seen if s[block] is not None]
        for block in (seen[0] if seen else ())
    }
    rows = [[block, _number(sum(v) / len(v)), _number(min(v))] for block, v in columns.items() if v]
    return table(["block", "CKA to server, mean", "least"], rows, right=(1, 2))


def _number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


def _noise(shares: list[float | None]) -> str:
    """A warning where an estimate is noise to a tenth or more."""
    worst = max((1.0 if share is None else share for share in shares), default=0.0)
    return f" ({100 * worst:.0f} % of its square is noise; raise --probes)" if worst >= 0.1 else ""
