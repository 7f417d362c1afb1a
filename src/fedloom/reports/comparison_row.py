"""A row of a comparison: a method over its seeds, or a single run."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedloom.metrics.client_scores import ClientScores
from fedloom.metrics.curve import Curve, CurveOptions, mean_of_all
from fedloom.metrics.score import ACCURACY, Score


@dataclass(frozen=True)
class ComparisonRow:
    """A method over its seeds, or a single run.

    accuracies     at the end of training, one per seed
    curve          mean accuracy over seeds by round; smoothed: the same as the options smooth it
    at             for each round of the options, the accuracy per seed
    reached        for each target of the options, the first round that reached it per seed, or None
    rounds         rounds that all seeds have completed
    bytes          uploads and downloads, the mean over seeds; seconds likewise
    personalised   whether clients have models of their own
    method         with its arguments; it decides the colour of the row in every picture
    seeds          of the runs, in the order of the accuracies
    band           round, lowest and highest value over seeds of the smoothed curve
    client_scores  of the models that clients end with, per seed; empty unless known for all seeds
    score          what the accuracies are
    metrics        of the global model in the last evaluation, per seed; None where not defined
    """

    name: str
    options: CurveOptions
    accuracies: tuple[float, ...]
    curve: tuple[tuple[int, float], ...]
    smoothed: tuple[tuple[int, float], ...]
    at: tuple[tuple[float, ...], ...]
    reached: tuple[tuple[int | None, ...], ...]
    rounds: int
    bytes: int
    seconds: float
    personalised: bool = False
    client_scores: tuple[ClientScores, ...] = ()
    method: str = ""
    seeds: tuple[int, ...] = ()
    band: tuple[tuple[int, float, float], ...] = ()
    score: Score = ACCURACY
    metrics: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """Mean accuracy over seeds."""
        return statistics.fmean(self.accuracies)

    @property
    def std(self) -> float:
        """Sample standard deviation over seeds; 0 for one seed."""
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else 0.0

    def over_clients(self, score: str, of: str = "mean") -> float | None:
        """A score of the models that the clients end with, the mean over seeds; None if unknown."""
        values = self.client_values(score, of)
        return mean_of_all(values) if values else None

    def client_values(self, score: str, of: str = "mean") -> list[float | None]:
        """A score of the models that the clients end with, by seed; empty if none was scored.

        Clients that share the global model and its test samples all have its metrics.
        """
        spreads = [scores.spread_of(score) for scores in self.client_scores]
        shared = () if self.personalised or of == "std" else self.metrics.get(score, ())
        same = shared or [None] * len(spreads)
        pairs = zip(spreads, same, strict=True)
        return [value if spread is None else getattr(spread, of) for spread, value in pairs]

    @property
    def has_client_scores(self) -> bool:
        """Whether scores differ between clients."""
        return any(scores.spread_of(self.score.clients) for scores in self.client_scores)

    def metric(self, name: str) -> float | None:
        """A metric of the global model, the mean over seeds; None if a seed has none."""
        values = self.metrics.get(name, ())
        return mean_of_all(values) if values else None

    def to_json(self) -> dict[str, Any]:
        at = zip(self.options.at, self.at, strict=True)
        targets = zip(self.options.targets, self.reached, strict=True)
        return {
            "name": self.name,
            "accuracy": self.mean,
            "std": self.std,
            "accuracies": list(self.accuracies),
            "rounds": self.rounds,
            "at_rounds": [
                {"round": r, "accuracy": statistics.fmean(each), "seeds": list(each)}
                for r, each in at
            ],
            "to_targets": [
                {"target": t, "rounds": mean_of_all(each), "seeds": list(each)}
                for t, each in targets
            ],
            "bytes": self.bytes,
            "seconds": self.seconds,
            "personalised": self.personalised,
            "client_scores": self._client_scores() if self.client_scores else None,
            **({} if self.score is ACCURACY else {"score": self.score.name}),
            **({"metrics": {m: self.metric(m) for m in self.metrics}} if self.metrics else {}),
        }

    def _client_scores(self) -> dict[str, Any]:
        of_classes = ("mean_class_recall", "label_weighted_accuracy")
        names = [*(of_classes if self.score is ACCURACY else ()), *self.client_metrics]
        return {
            score: {of: self.over_clients(score, of) for of in ("mean", "std", "worst_tenth")}
            for score in names
        }

    @property
    def client_metrics(self) -> list[str]:
        """The metrics that are known over the clients of some seed."""
        return list(dict.fromkeys(name for s in self.client_scores for name in s.metrics))


def metric_text(value: float | None) -> str:
    """A metric in a table; "-" where it is not defined."""
    return "-" if value is None else f"{value:.4g}"


def row_of_curves(
    name: str, curves: Sequence[Curve], options: CurveOptions, method: str = ""
) -> ComparisonRow:
    """A row of which nothing but the curves is known, one per seed."""
    return ComparisonRow(
        name=name,
        options=options,
        accuracies=tuple(options.accuracy(c) for c in curves),
        curve=_mean(curves),
        smoothed=_mean([options.smoothed(c) for c in curves]),
        at=tuple(zip(*(options.at_rounds(c) for c in curves), strict=True)),
        reached=tuple(zip(*(options.reached(c) for c in curves), strict=True)),
        rounds=min(max(c) for c in curves),
        bytes=0,
        seconds=0.0,
        method=method,
        band=_band([options.smoothed(c) for c in curves]),
    )


def _mean(curves: Sequence[Curve]) -> tuple[tuple[int, float], ...]:
    """Over the rounds that all curves have."""
    shared = sorted(set.intersection(*(set(c) for c in curves)))
    return tuple((r, statistics.fmean(c[r] for c in curves)) for r in shared)


def _band(curves: Sequence[Curve]) -> tuple[tuple[int, float, float], ...]:
    """Lowest and highest value over the rounds that all curves have; empty for a single curve."""
    if len(curves) < 2:
        return ()
    shared = sorted(set.intersection(*(set(c) for c in curves)))
    return tuple((r, min(c[r] for c in curves), max(c[r] for c in curves)) for r in shared)
