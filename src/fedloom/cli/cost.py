"""`fedloom cost`: what methods compute, store and send, next to what a paper prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from fedloom.cli import options as o
from fedloom.cli.output import facts, megabytes, out, print_json, say, table, user_errors

if TYPE_CHECKING:
    from fedloom.diagnostics.cost.count import Convention
    from fedloom.diagnostics.cost.toy_federation import Workload
    from fedloom.inspect.cost_tables import CostTable

CONVENTIONS: tuple[Convention, Convention] = ("torch", "paper")
DEFAULT_METHOD, DEFAULT_MODEL = "fedavg", "resnet56"

PresetArgument = Annotated[
    str | None, typer.Argument(help="A paper's table, e.g. fedalign/table5.", show_default=False)
]
Shape = Annotated[
    str | None,
    typer.Option(
        "--shape", help="Shape of one sample, e.g. 3x32x32.", show_default="the model's usual one"
    ),
]
Classes = Annotated[
    int | None,
    typer.Option("--classes", help="Number of classes.", show_default="the model's usual number"),
]
Sam = Annotated[float | None, typer.Option("--sam", help="Radius of sharpness-aware minimisation.")]
Batch = Annotated[int, typer.Option("--batch", min=2, help="Batch size of a measured step.")]
ConventionName = Annotated[
    str | None,
    typer.Option(
        "--convention",
        help="torch: all products; paper: only layers and pools of the forward pass, no norms.",
        show_default="torch; for a table paper",
    ),
]
Draws = Annotated[
    int,
    typer.Option("--draws", min=8, help="Steps to average over if the method is random."),
]
NoMeasure = Annotated[
    bool,
    typer.Option(
        "--no-measure", help="Only count; time and memory of a step are not measured for a method."
    ),
]
PaperScale = Annotated[
    bool,
    typer.Option(
        "--paper-scale",
        help="Check every cell of a paper's tables at the paper's scale without training, and "
        "estimate the hours on a GPU; PRESET: a table or a paper, by default all.",
    ),
]
GpuClass = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        help="With --paper-scale: class of GPU: t4, v100, a100 or h100, at a quarter of its peak.",
        show_default="a100",
    ),
]
Tflops = Annotated[
    float | None,
    typer.Option(
        "--tflops",
        help="With --paper-scale: TFLOP/s that training sustains on your GPU, instead of --gpu.",
        show_default=False,
    ),
]


@user_errors
def cost(
    preset: PresetArgument = None,
    method: o.MethodName = None,
    model: o.ModelName = None,
    shape: Shape = None,
    classes: Classes = None,
    optimiser: o.Optimiser = None,
    sam: Sam = None,
    batch: Batch = 32,
    convention: ConventionName = None,
    draws: Draws = 64,
    no_measure: NoMeasure = False,
    paper_scale: PaperScale = False,
    gpu: GpuClass = None,
    tflops: Tflops = None,
    json_: o.Json = False,
) -> None:
    """Count computation, storage and traffic of a method, or of a paper's table.

    Example: fedloom cost --method moon --model resnet56
    """
    from fedloom.core.errors import unknown_name
    from fedloom.inspect.cost_tables import case_of

    if convention is not None and convention not in CONVENTIONS:
        raise unknown_name("convention", convention, CONVENTIONS)
    model_flags = {"--model": model, "--shape": shape, "--classes": classes}
    flags = {"--method": method, **model_flags, "--optimiser": optimiser, "--sam": sam}
    if paper_scale:
        _check_preset_alone(preset or "all tables", flags)
        _cost_at_paper_scale(preset, gpu, tflops, json_)
        return
    _check_only_at_paper_scale({"--gpu": gpu, "--tflops": tflops})
    if preset is not None:
        _check_preset_alone(preset, flags)
        _cost_of_table(preset, "torch" if convention == "torch" else "paper", draws, json_)
    else:
        o.allow_typed(method, model)
        case = case_of(model or DEFAULT_MODEL, shape, classes)
        train = {n: v for n, v in {"optimiser": optimiser, "sam": sam}.items() if v is not None}
        scene = case.scene(method or DEFAULT_METHOD, batch, train)
        row = {
            "method": method or DEFAULT_METHOD,
            **train,
            "model": case.model,
            "input": f"{' x '.join(map(str, case.shape))}, {case.classes} classes",
        }
        convention_used: Convention = "paper" if convention == "paper" else "torch"
        _cost_of_method(row, scene, convention_used, draws, not no_measure, json_)


def _check_preset_alone(preset: str, flags: Mapping[str, Any]) -> None:
    """Reject flags that say what to count when a preset says it already."""
    from fedloom.core.errors import UserError

    given = [flag for flag, value in flags.items() if value]
    if given:
        raise UserError(
            f"preset '{preset}' already says what to count; "
            f"leave {' and '.join(given)} out, or the preset"
        )


def _check_only_at_paper_scale(flags: Mapping[str, Any]) -> None:
    """Reject flags that have a meaning only with --paper-scale."""
    from fedloom.core.errors import UserError

    for flag, value in flags.items():
        if value is not None:
            raise UserError(f"{flag} {value} is for --paper-scale; add --paper-scale")


def _cost_at_paper_scale(
    name: str | None, gpu: str | None, tflops: float | None, as_json: bool
) -> None:
    from fedloom.cli.paper_scale_view import show_paper_scale
    from fedloom.core.errors import UserError
    from fedloom.diagnostics.cost.gpu import DEFAULT_GPU

    if gpu is not None and tflops is not None:
        raise UserError(f"--gpu {gpu} and --tflops {tflops:g} exclude each other; leave out one")
    show_paper_scale(name, gpu or DEFAULT_GPU, tflops, as_json)


def _cost_of_method(
    row: Mapping[str, Any],
    scene: Workload,
    convention: Convention,
    draws: int,
    with_measurement: bool,
    as_json: bool,
) -> None:
    from fedloom.diagnostics.cost.count import count_cost
    from fedloom.diagnostics.cost.measure import measure
    from fedloom.inspect.cost_tables import MILLION, describe_cost

    counted = count_cost(scene, draws)
    described = {
        **row,
        "mflops": counted.macs(convention) / MILLION,
        "params_m": counted.stored(convention) / MILLION,
        "printed_mflops": None,
        "printed_params_m": None,
        "verdict": None,
        **describe_cost(counted, convention),
    }
    if with_measurement:
        say(f"timing steps of {scene.batch} samples on one thread, compared with FedAvg's")
        measured = measure(scene)
        described |= {
            "batch": scene.batch,
            "seconds": measured.seconds,
            "seconds_to_fedavg": measured.ratio,
            "peak_bytes": measured.peak,
        }
    if as_json:
        print_json([described])
    else:
        out.print(facts(_labelled(described)))


def _labelled(row: Mapping[str, Any]) -> dict[str, str]:
    """The numbers of one method as labels and texts."""
    error = f" +- {row['macs_error']:,.0f}" if row["macs_error"] else ""
    labelled = {
        "method": row["method"],
        **{name: str(row[name]) for name in ("optimiser", "sam") if name in row},
        "model": f"{row['model']} on {row['input']}",
        "forward MACs per sample": f"{row['macs']:,.0f}{error}  (convention: {row['convention']})",
        "training MACs per sample": f"{row['training_macs']:,.0f}  (convention: torch)",
        "stored parameters": f"{row['stored_parameters']:,.0f}",
        "upload per round": megabytes(row["bytes_up"]),
        "download per round": megabytes(row["bytes_down"]),
    }
    if "seconds" in row:
        ratio = f"{row['seconds_to_fedavg']:.2f} x FedAvg's"
        where = f"(batch size {row['batch']}, one thread)"
        labelled["time per step"] = f"{row['seconds']:.3f} s, {ratio}  {where}"
        peak = megabytes(row["peak_bytes"])
        labelled["peak memory"] = f"{peak}  (tensors of a step, batch size {row['batch']})"
    return labelled


def _cost_of_table(preset: str, convention: Convention, draws: int, as_json: bool) -> None:
    from fedloom.inspect import cost_tables

    cost_table = cost_tables.table(preset)
    described = []
    for number, row in enumerate(cost_table.rows, 1):
        say(f"counting {number} of {len(cost_table.rows)}: {row.name}, {row.case}")
        described.append(cost_tables.count(cost_table, row, convention, draws).describe())
    if as_json:
        print_json(described)
        return
    cells = table(COLUMNS, [_cells(row) for row in described], right=(2, 3, 5, 6, 8, 9, 10))
    # A table cut to a narrow window would lose digits.
    Console(width=max(out.width, TABLE_WIDTH)).print(cells)
    _print_notes(cost_table, described)
    out.print(
        f"convention: {convention}; training MACs: torch (see: fedloom cost --help)",
        highlight=False,
    )


COLUMNS = (
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
)
TABLE_WIDTH = 120  # characters that the table of a paper needs
VERDICT_SIGNS = {"matches to the printed digit": "ok", "differs": "no", "undecided": "?"}


def _print_notes(cost_table: CostTable, described: Sequence[Mapping[str, Any]]) -> None:
    """What the signs mean, why numbers differ, and the notes of the cases."""
    from fedloom.inspect.cost_tables import MATCHES

    out.print(
        "ok: matches to the printed digit; no: differs; "
        "?: undecided, within the error of the draws",
        highlight=False,
    )
    for row in described:
        for name, verdict in row["verdicts"].items():
            if verdict != MATCHES:
                line = f"{row['method']}, {row['case']}, {name} {verdict}"
                out.print(line, markup=False, highlight=False)
    for name, case in cost_table.cases.items():
        if case.note:
            out.print(f"{name}: {case.note}", highlight=False)


def _cells(row: Mapping[str, Any]) -> list[str]:
    error = row["macs_error"] * row["mflops"] / row["macs"]
    mflops = f"{row['mflops']:.2f} +- {error:.2f}" if error else f"{row['mflops']:.3f}"
    signs = {
        name: VERDICT_SIGNS[verdict.partition(":")[0]] for name, verdict in row["verdicts"].items()
    }
    return [
        row["method"],
        row["case"],
        f"{row['printed_mflops']:g}",
        mflops,
        signs["mflops"],
        f"{row['printed_params_m']:.2f}",
        f"{row['params_m']:.3f}",
        signs["params_m"],
        f"{row['training_macs'] / 1e6:,.0f} M",
        megabytes(row["bytes_up"]),
        megabytes(row["bytes_down"]),
    ]
