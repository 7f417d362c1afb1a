"""Accuracy against compute, as Figure 4 of FedMLB plots it, for any runs.

Left: accuracy after the last round against the compute of one client in one round, which the
number of local steps varies. Runs that differ in train.steps or train.epochs form the line of a
method, and a single run is a point. Right: accuracy against what all clients have computed so far.

Compute is counted in multiply-accumulates (MACs) of training, forward and backward, as `fedloom
cost` counts them per sample, times the samples of the local steps. A partial batch counts as full.
"""

from __future__ import annotations

import itertools
import json
import shlex
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.diagnostics.cost.count import MIN_BATCH, count_cost
from fedloom.diagnostics.cost.toy_federation import Workload
from fedloom.experiment.build import build_model, load_data, named_data
from fedloom.experiment.build_solver import build_rule
from fedloom.experiment.identity import check_same_content
from fedloom.experiment.stored_run import StoredRun
from fedloom.methods.registry import build as build_method
from fedloom.metrics.curve import CurveOptions
from fedloom.metrics.score import ACCURACY, Score
from fedloom.reports.colours import styles
from fedloom.settings.config import Config

PLAIN = CurveOptions()
REMEDY = "put the earlier data back, or leave out --compute"


class Point(NamedTuple):
    """An evaluated round, the MACs of all clients so far, and the accuracy."""

    round: int
    macs: float
    accuracy: float


@dataclass(frozen=True)
class ComputeCurve:
    """One run against compute.

    local_training: its length as set. local_steps, local_macs: of one client in one round, on
    average. accuracy: at the end.
    """

    method: str
    local_training: str
    local_steps: float
    local_macs: float
    points: tuple[Point, ...]
    accuracy: float


@dataclass(frozen=True)
class ComputePoint:
    """A method with one length of local training, averaged over its seeds."""

    method: str
    local_training: str
    local_steps: float
    local_macs: float
    accuracies: tuple[float, ...]

    @property
    def accuracy(self) -> float:
        return statistics.fmean(self.accuracies)

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "local_training": self.local_training,
            "local_steps": self.local_steps,
            "local_macs": self.local_macs,
            "accuracy": self.accuracy,
            "accuracies": list(self.accuracies),
        }


def compute_curves(
    runs: Sequence[StoredRun],
    options: CurveOptions = PLAIN,
    counted: dict[str, float] | None = None,
) -> list[ComputeCurve]:
    """Each run against compute; the cost of a sample is counted once for runs that share it.

    counted: what earlier calls have counted, which is added to.
    """
    counted = {} if counted is None else counted
    return [_compute_curve(run, options, counted) for run in runs]


def _compute_curve(
    run: StoredRun, options: CurveOptions, counted: dict[str, float]
) -> ComputeCurve:
    curve = run.history.accuracy
    if not curve:
        raise UserError(
            f"'{run.name}' has no evaluation yet; resume it: fedloom resume {shlex.quote(run.name)}"
        )
    step_macs = run.config.train.batch * _sample_macs(run, counted)
    steps = list(itertools.accumulate(record.steps for record in run.history))
    done = dict(zip((record.round for record in run.history), steps, strict=True))
    replies = sum(len(record.participants) - len(record.rejected) for record in run.history)
    local_steps = steps[-1] / max(replies, 1)  # of no reply, if every client has failed
    smoothed = sorted(options.smoothed(curve).items())
    return ComputeCurve(
        method=_title(run.config),
        local_training=_local_training(run.config),
        local_steps=local_steps,
        local_macs=step_macs * local_steps,
        points=tuple(Point(r, step_macs * done[r], y) for r, y in smoothed),
        accuracy=options.accuracy(curve),
    )


def _sample_macs(run: StoredRun, counted: dict[str, float]) -> float:
    """MACs of training on one sample; raises if the data of the run are not the same now."""
    config = run.config
    included: dict[str, Any] = {"model": True, "data": True, "train": {"sam"}}
    label = json.dumps([_title(config), config.model_dump(mode="json", include=included)])
    if label not in counted:
        whole = run.dataset or named_data(config.data.name)
        check_same_content(run.name, run.identity, whole, REMEDY)
        data, method = load_data(config, whole), build_method(config.method_specs)

        def build(device: torch.device) -> Any:
            return build_model(config.model, data, Key.root(0), torch.float32, device)

        counted[label] = count_cost(
            Workload(
                method, build, data.shape, len(data.classes), MIN_BATCH, build_rule(config.train)
            )
        ).training_macs
    return counted[label]


def _title(config: Config) -> str:
    """The method with its arguments, as on the command line."""
    return "+".join(map(str, config.method_specs))


def _local_training(config: Config) -> str:
    train = config.train
    count = f"{train.epochs} epochs" if train.steps is None else f"{train.steps} steps"
    return f"{count} of batches of {train.batch}"


def compute_points(curves: Sequence[ComputeCurve]) -> list[ComputePoint]:
    """The points of the left figure: method by method, with growing local compute."""
    methods: dict[str, dict[str, list[ComputeCurve]]] = {}
    for curve in curves:
        methods.setdefault(curve.method, {}).setdefault(curve.local_training, []).append(curve)
    points = []
    for lengths in methods.values():
        points += sorted(map(_mean_over_seeds, lengths.values()), key=lambda p: p.local_macs)
    return points


def _mean_over_seeds(seeds: Sequence[ComputeCurve]) -> ComputePoint:
    return ComputePoint(
        seeds[0].method,
        seeds[0].local_training,
        statistics.fmean(curve.local_steps for curve in seeds),
        statistics.fmean(curve.local_macs for curve in seeds),
        tuple(curve.accuracy for curve in seeds),
    )


def plot(
    curves: Sequence[ComputeCurve],
    path: Path,
    axis_name: str = "test accuracy, %",
    score: Score = ACCURACY,
) -> None:
    """Both figures side by side, one colour per method."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import EngFormatter
    except ImportError:
        raise UserError(
            'plots need matplotlib; install it with: pip install "fedloom[plots]"'
        ) from None
    figure = Figure(figsize=(11, 4.4), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    groups = list(_by_method(compute_points(curves)))
    for (method, points), style in zip(groups, styles([m for m, _ in groups]), strict=True):
        colour, scale = style.light, score.scale
        macs, accuracies = zip(*((p.local_macs, scale * p.accuracy) for p in points), strict=True)
        left.plot(macs, accuracies, "o-", color=colour, label=method)
        for curve in (c for c in curves if c.method == method):
            so_far = [(p.macs, scale * p.accuracy) for p in curve.points]
            right.plot(*zip(*so_far, strict=True), color=colour, lw=1.2)
    left.set(xlabel="MACs per client and round", ylabel=axis_name)
    left.set_title("After training")
    right.set(xlabel="MACs of all clients so far", title="During training")
    left.legend(frameon=False)
    figure.suptitle(f"{score.title} against compute (MACs: multiply-accumulates of training)")
    for axes in (left, right):
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.grid(color="#e6e6e6", lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _by_method(points: Sequence[ComputePoint]) -> Iterator[tuple[str, list[ComputePoint]]]:
    for method, group in itertools.groupby(points, key=lambda p: p.method):
        yield method, list(group)
