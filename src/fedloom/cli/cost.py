"""`fedloom cost`: what methods compute, store and send, counted while they run, beside what a paper prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from fedloom.cli import options as o
from fedloom.cli.output import facts, megabytes, out, print_json, say, table, user_errors

if TYPE_CHECKING:
    from fedloom.diagnostics.cost.count import Convention
    from fedloom.diagnostics.cost.toy_federation import Workload

CONVENTIONS: tuple[Convention, Convention] = ("torch", "paper")

PresetArgument = Annotated[
    str | None, typer.Argument(help="A paper's table, e.g. fedalign/table5.", show_default=False)
]
Shape = Annotated[
    str | None,
    typer.Option(
        "--shape", help="Of a sample, e.g. 3x32x32.", show_default="the model's usual one"
    ),
]
Classes = Annotated[
    int | None,
    typer.Option("--classes", help="Number of classes.", show_default="the model's usual ones"),
]
Batch = Annotated[int, typer.Option("--batch", min=2, help="Samples of a measured step.")]
Way = Annotated[
    str | None,
    typer.Option(
        "--convention",
        help="torch: all products; paper: layers and pools going forward, no norms.",
        show_default="torch; of a table paper",
    ),
]
Draws = Annotated[
    int, typer.Option("--draws", min=8, help="Steps to average over where a method draws.")
]
Measure = Annotated[
    bool,
    typer.Option(
        "--measure/--no-measure", help="Also time steps, and weigh their memory; not of a table."
    ),
]


@user_errors
def cost(
    preset: PresetArgument = None,
    method: o.MethodName = None,
    model: o.ModelName = None,
    shape: Shape = None,
    classes: Classes = None,
    batch: Batch = 32,
    convention: Way = None,
    draws: Draws = 64,
    measure: Measure = True,
    json_: o.Json = False,
) -> None:
    """Count work, storage and traffic of a method, or of a paper's table. Example: fedloom cost --method moon --model resnet56"""
    from fedloom.core.errors import UserError, unknown_name
    from fedloom.inspect.cost_tables import case_of

    if convention is not None and convention not in CONVENTIONS:
        raise unknown_name("convention", convention, CONVENTIONS)
    if preset is not None:
        if given := [
            f
            for f, v in {
                "--method": method,
                "--model": model,
                "--shape": shape,
                "--classes": classes,
            }.items()
            if v
        ]:
            raise UserError(
                f"preset '{preset}' says itself what is counted; leave {' and '.join(given)} out, or the preset"
            )
        _table(preset, "torch" if convention == "torch" else "paper", draws, json_)
    else:
        case = case_of(model or "resnet56", shape, classes)
        scene = case.scene(method or "fedavg", batch)
        row = {
            "method": method or "fedavg",
            "model": case.model,
            "input": _words(case.shape, case.classes),
        }
        _one(row, scene, "paper" if convention == "paper" else "torch", draws, measure, json_)


def _words(shape: tuple[int, ...], classes: int) -> str:
    return f"{' x '.join(map(str, shape))}, {classes} classes"


def _one(
    row: Mapping[str, Any],
    scene: Workload,
    convention: Convention,
    draws: int,
    measured: bool,
    as_json: bool,
) -> None:
    from fedloom.diagnostics.cost.count import count_cost as counted
    from fedloom.diagnostics.cost.measure import measure
    from fedloom.inspect.cost_tables import MILLION, figures

    found = counted(scene, draws)
    nothing = {"printed_mflops": None, "printed_params_m": None, "verdict": None}
    numbers = {
        "mflops": found.macs(convention) / MILLION,
        "params_m": found.stored(convention) / MILLION,
        **nothing,
    }
    taken: dict[str, Any] = {}
    if measured:
        say(f"timing steps of {scene.batch} samples on one thread, beside FedAvg's")
        m = measure(scene)
        taken = {
            "batch": scene.batch,
            "seconds": m.seconds,
            "seconds_to_fedavg": m.ratio,
            "peak_bytes": m.peak,
        }
    described = {**row, **numbers, **figures(found, convention), **taken}
    print_json([described]) if as_json else out.print(facts(_for_people(described)))


def _for_people(row: Mapping[str, Any]) -> dict[str, str]:
    error = f" +- {row['macs_error']:,.0f}" if row["macs_error"] else ""
    said = {
        "method": row["method"],
        "model": f"{row['model']} on {row['input']}",
        "forward MACs a sample": f"{row['macs']:,.0f}{error}  (convention: {row['convention']})",
        "training MACs a sample": f"{row['training_macs']:,.0f}  (convention: torch)",
        "stored parameters": f"{row['stored_parameters']:,.0f}",
        "up a round": megabytes(row["bytes_up"]),
        "down a round": megabytes(row["bytes_down"]),
    }
    if "seconds" in row:
        said["time a step"] = (
            f"{row['seconds']:.3f} s, {row['seconds_to_fedavg']:.2f} x FedAvg's  (batch {row['batch']}, one thread)"
        )
        said["peak memory"] = (
            f"{megabytes(row['peak_bytes'])}  (tensors of a step, batch {row['batch']})"
        )
    return said


def _table(preset: str, convention: Convention, draws: int, as_json: bool) -> None:
    from fedloom.inspect import cost_tables as room

    prepared = room.table(preset)
    lines = []
    for number, row in enumerate(prepared.rows, 1):
        say(f"counting {number} of {len(prepared.rows)}: {row.name}, {row.case}")
        lines.append(room.count(prepared, row, convention, draws))
    described = [line.describe() for line in lines]
    if as_json:
        print_json(described)
        return
    columns = [
        "method",
        "on",
        "FLOPs",
        "ours",
        "",
        "params (M)",
        "ours",
        "",
        "training",
        "up",
        "down",
    ]
    cells = table(columns, [_cells(d) for d in described], right=(2, 3, 5, 6, 8, 9, 10))
    Console(width=max(out.width, WIDE)).print(cells)  # no digit is lost in a narrow window
    out.print(
        "ok: matches to the printed digit; no: differs; ?: undecided, within the error of the draws",
        highlight=False,
    )
    for d in described:
        for what, said in d["verdicts"].items():
            if said != room.SAME:
                out.print(
                    f"{d['method']}, {d['case']}, {what} {said}", markup=False, highlight=False
                )
    for name, case in prepared.cases.items():
        if case.note:
            out.print(f"{name}: {case.note}", highlight=False)
    out.print(
        f"convention: {convention}; training MACs: torch (see: fedloom cost --help)",
        highlight=False,
    )


WIDE = 120  # columns that the table of a paper takes
_SIGN = {"matches to the printed digit": "ok", "differs": "no", "undecided": "?"}


def _cells(row: Mapping[str, Any]) -> list[str]:
    error = row["macs_error"] * row["mflops"] / row["macs"]
    ours = f"{row['mflops']:.2f} +- {error:.2f}" if error else f"{row['mflops']:.3f}"
    printed, stored = f"{row['printed_mflops']:g}", f"{row['printed_params_m']:.2f}"
    sent = megabytes(row["bytes_up"]), megabytes(row["bytes_down"])
    work = f"{row['training_macs'] / 1e6:,.0f} M"
    flops, params = (_SIGN[said.partition(":")[0]] for said in row["verdicts"].values())
    return [
        row["method"],
        row["case"],
        printed,
        ours,
        flops,
        stored,
        f"{row['params_m']:.3f}",
        params,
        work,
        *sent,
    ]
