"""Accuracy against compute, as Figure 4 of FedMLB plots it, from the folders of any runs.

Its axes: accuracy after the last round over the local computation of a client, which the number of local iterations varies. So
runs that differ in train.steps or train.epochs are the line of a method, and a run alone is a point. Beside it stands the way
there: accuracy by what all clients have computed so far.

Compute is in multiply-accumulates (MACs) of training, forward and back, as `fedloom cost` counts them for a sample, times the
samples of the steps that were made; a batch that is not full counts as full.
"""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.spec import Spec
from fedloom.diagnostics.cost.count import MIN_BATCH, count_cost
from fedloom.diagnostics.cost.toy_federation import Workload
from fedloom.experiment.build import load_data
from fedloom.experiment.parts import build_model
from fedloom.methods.registry import build as build_method
from fedloom.metrics.curve import CurveOptions
from fedloom.reports.comparison import accuracies
from fedloom.runs.folder import CONFIG, RunFolder
from fedloom.settings.config import Config, load_file

PLAIN = CurveOptions()


class Point(NamedTuple):
    """An evaluated round, the MACs of all clients until then, and the accuracy as it is read."""

    round: int
    macs: float
    accuracy: float


@dataclass(frozen=True)
class Track:
    """A run. length: of local training, as it is set. iterations, local: steps and MACs of a client in a round, in the mean.

    accuracy: at the end, as it is read.
    """

    method: str
    length: str
    iterations: float
    local: float
    points: tuple[Point, ...]
    accuracy: float


@dataclass(frozen=True)
class ComputePoint:
    """A method with local training of a length, the mean over its seeds: a point of the figure."""

    method: str
    length: str
    iterations: float
    local: float
    accuracies: tuple[float, ...]

    @property
    def accuracy(self) -> float:
        return statistics.fmean(self.accuracies)

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        known = {
            "method": self.method,
            "length": self.length,
            "iterations": self.iterations,
            "local_macs": self.local,
        }
        return {**known, "accuracy": self.accuracy, "accuracies": list(self.accuracies)}


def tracks(paths: Sequence[Path], reading: CurveOptions = PLAIN) -> list[Track]:
    """Each run against compute; what is the same in several runs is counted once."""
    counted: dict[str, float] = {}
    return [_track(path, reading, counted) for path in paths]


def _track(path: Path, reading: CurveOptions, counted: dict[str, float]) -> Track:
    config, lines = (
        load_file(path / CONFIG),
        RunFolder.read_only(path).metrics(),
    )
    curve = accuracies(lines)
    if not curve:
        raise UserError(f"'{path}' has no evaluation yet; go on with: fedloom resume {path}")
    work = config.train.batch * _sample_macs(config, counted)
    steps = {line["round"]: line["steps"] for line in lines}
    done = dict(zip(steps, itertools.accumulate(steps.values()), strict=True))
    iterations = done[max(done)] / sum(
        len(line["participants"]) - len(line["refused"]) for line in lines
    )
    points = tuple(Point(r, work * done[r], y) for r, y in sorted(reading.line(curve).items()))
    return Track(
        _title(config),
        _length(config),
        iterations,
        work * iterations,
        points,
        reading.accuracy(curve),
    )


def _sample_macs(config: Config, counted: dict[str, float]) -> float:
    """MACs of training on one sample."""
    label = json.dumps([_title(config), config.model_dump(mode="json", include={"model", "data"})])
    if label not in counted:
        data, method = load_data(config), build_method(config.words)

        def build(device: torch.device) -> Any:
            return build_model(config.model, data, Key.root(0), torch.float32, device)

        counted[label] = count_cost(
            Workload(method, build, data.shape, len(data.classes), MIN_BATCH)
        ).training_macs
    return counted[label]


def _title(config: Config) -> str:
    """The method with its arguments, as on the command line."""
    return "+".join(map(_called, config.words))


def _length(config: Config) -> str:
    train = config.train
    count = f"{train.epochs} epochs" if train.steps is None else f"{train.steps} steps"
    return f"{count} of batches of {train.batch}"


def _called(word: Spec) -> str:
    return (
        f"{word.name}({', '.join(f'{k}={v}' for k, v in word.args.items())})"
        if word.args
        else word.name
    )


def compute_points(found: Sequence[Track]) -> list[ComputePoint]:
    """The points of the figure: method after method as they come, with growing local compute."""
    groups: dict[str, dict[str, list[Track]]] = {}
    for t in found:
        groups.setdefault(t.method, {}).setdefault(t.length, []).append(t)
    return [
        s
        for lengths in groups.values()
        for s in sorted(map(_spot, lengths.values()), key=lambda s: s.local)
    ]


def _spot(seeds: Sequence[Track]) -> ComputePoint:
    iterations, local = (
        statistics.fmean(getattr(t, what) for t in seeds) for what in ("iterations", "local")
    )
    return ComputePoint(
        seeds[0].method, seeds[0].length, iterations, local, tuple(t.accuracy for t in seeds)
    )


def draw(found: Sequence[Track], path: Path) -> None:
    """Both pictures, side by side, a colour a method."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import EngFormatter
    except ImportError:
        raise UserError(
            'pictures need matplotlib; install it with: pip install "fedloom[plots]"'
        ) from None
    figure = Figure(figsize=(11, 4.4), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for number, (method, ends) in enumerate(_by_method(compute_points(found))):
        colour = f"C{number}"
        left.plot(
            [s.local for s in ends],
            [100 * s.accuracy for s in ends],
            "o-",
            color=colour,
            label=method,
        )
        for t in (t for t in found if t.method == method):
            right.plot(
                [p.macs for p in t.points],
                [100 * p.accuracy for p in t.points],
                color=colour,
                lw=1.2,
            )
    left.set(
        xlabel="MACs of a client in a round",
        ylabel="test accuracy, %",
        title="After the last round",
    )
    right.set(xlabel="MACs of all clients so far", title="On the way")
    left.legend(frameon=False)
    for axes in (left, right):
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.grid(color="#e6e6e6", lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _by_method(ends: Sequence[ComputePoint]) -> Iterator[tuple[str, list[ComputePoint]]]:
    for method, group in itertools.groupby(ends, key=lambda s: s.method):
        yield method, list(group)
