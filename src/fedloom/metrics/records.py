"""Typed records of a run: a RoundRecord per line of metrics.jsonl, a RunResult in result.json.

Scores are fractions between 0 and 1, except for R2 and other metrics. "Recall" of a class is the
share of its test samples that are classified correctly. Importing this module does not import
torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import Any, overload

from fedloom.core.errors import RunError, UserError
from fedloom.core.identity import RunIdentity
from fedloom.metrics.record_checks import is_required, record_check
from fedloom.metrics.score import SCORES

FORMAT = 2  # of the records; another one is rejected when it is read
Json = dict[str, Any]


@dataclass(frozen=True)
class Spread:
    """Scores of all clients in three numbers; worst_tenth is the mean of the worst tenth."""

    mean: float
    std: float
    worst_tenth: float


@dataclass(frozen=True)
class ClientScores:
    """How models do on the label distributions of the clients.

    label_weighted_accuracy  per client: accuracy weighted by how often the client has each class
    mean_class_recall        per client: mean recall over the classes that the client has
    class_recall             recall of each class; of personal models the mean over the clients that
                             have the class, None where no client has it
    group_recall             recall of the most frequent third of the classes (head), the middle and
                             the tail; empty if all classes are equally frequent
    correct, test_samples    personal models only: correct predictions by client and class, out of
                             this many test samples of each class
    own_test_samples         the same by client, if each is scored on test samples of its own
    unscored                 clients that could not be scored, or whose own test samples are missing
                             in the global model's scores, with the reason
    metrics                  each metric over the clients, where every client has a model or test
                             samples of its own; a client in which it is not defined does not count
    by_client                the same for every client, None where it is not defined

    What is said of classes is there for classification only, and None or empty otherwise.
    """

    label_weighted_accuracy: Spread | None = None
    mean_class_recall: Spread | None = None
    class_recall: tuple[float | None, ...] = ()
    group_recall: Mapping[str, float] = field(default_factory=dict)
    correct: tuple[tuple[int, ...], ...] = ()
    test_samples: tuple[int, ...] = ()
    unscored: Mapping[int, str] = field(default_factory=dict)
    own_test_samples: tuple[tuple[int, ...], ...] = ()
    metrics: Mapping[str, Spread] = field(default_factory=dict)
    by_client: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)

    def spread_of(self, score: str) -> Spread | None:
        """A score of classes or a metric over the clients; None if it is not known."""
        of_classes = {
            "label_weighted_accuracy": self.label_weighted_accuracy,
            "mean_class_recall": self.mean_class_recall,
        }
        return of_classes.get(score) or self.metrics.get(score)

    def tested(self, client: int) -> tuple[int, ...]:
        """The test samples of each class on which a client's own model is scored."""
        return self.own_test_samples[client] if self.own_test_samples else self.test_samples

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> ClientScores:
        """The scores that a record holds, which has been checked."""
        return cls(
            _spread(facts.get("label_weighted_accuracy")),
            _spread(facts.get("mean_class_recall")),
            tuple(facts.get("class_recall", ())),
            dict(facts.get("group_recall", {})),
            tuple(tuple(row) for row in facts.get("correct", ())),
            tuple(facts.get("test_samples", ())),
            {int(client): why for client, why in facts.get("unscored", {}).items()},
            tuple(tuple(row) for row in facts.get("own_test_samples", ())),
            {name: Spread(**spread) for name, spread in facts.get("metrics", {}).items()},
            {name: tuple(values) for name, values in facts.get("by_client", {}).items()},
        )

    def spreads(self) -> ClientScores:
        """The spreads alone, for a line of the metrics."""
        of_classes = self.label_weighted_accuracy, self.mean_class_recall
        return ClientScores(*of_classes, metrics=self.metrics)


def _spread(facts: Mapping[str, float] | None) -> Spread | None:
    return None if facts is None else Spread(**facts)


EMPTY_SPREAD = Spread(0.0, 0.0, 0.0)
EMPTY_SCORES = ClientScores(
    EMPTY_SPREAD, EMPTY_SPREAD, group_recall=dict.fromkeys(("head", "middle", "tail"), 0.0)
)


@dataclass(frozen=True)
class RoundRecord:
    """One round. What is None was not evaluated in this round.

    round            counted from 1
    participants     the clients that were asked
    rejected         clients whose reply was not used, with the reason
    skipped          why the whole round was not used and the model stayed as it was
    train_loss       mean over the local steps, weighted by the clients' samples; None if it is not
                     finite, and in a round that was skipped
    steps            local steps of all clients together
    accuracy         of the global model on the test data, or what is the score of another task
                     (metrics/score.py); test_loss: its mean loss
    metrics          of the global model on the test data, by name; None where one is not defined
    global_model     the global model as the clients meet it
    personal_models  the clients' own models, where the method has them and they were scored
    """

    round: int
    participants: tuple[int, ...]
    rejected: Mapping[int, str]
    train_loss: float | None
    steps: int
    bytes_up: int
    bytes_down: int
    seconds: float
    accuracy: float | None = None
    test_loss: float | None = None
    evaluation_seconds: float | None = None
    global_model: ClientScores | None = None
    personal_models: ClientScores | None = None
    skipped: str | None = None
    metrics: Mapping[str, float | None] = field(default_factory=dict)

    def to_json(self) -> Json:
        return to_json(self)

    @classmethod
    def from_json(
        cls, facts: Mapping[str, Any], place: str = "a line of metrics.jsonl"
    ) -> RoundRecord:
        """The record that a line of metrics.jsonl holds. place: file and line, for messages."""
        known = _checked(cls, facts, place)
        known["participants"] = tuple(known["participants"])
        known["rejected"] = {int(client): why for client, why in known["rejected"].items()}
        return cls(**known)


@dataclass(frozen=True)
class RunResult:
    """The summary of a finished run.

    accuracy, test_loss   of the global model in the last evaluation; no loss if it is not finite.
                          `accuracy` is the score of the task, which `score_name` names
    metrics               of the global model in the last evaluation, by name
    weights_sha256        identifies the final weights of the global model
    clients, rejected     number of clients, and of replies that were not used in all rounds
    skipped               number of rounds that were not used
    rounds_to_target      first round that reached evaluate.target; None if none did
    personalised          whether the method gives every client a model of its own
    personal_models       their scores; None if there are none or evaluate.personal is off
    identity              what the result depends on besides the settings
    task                  what is learned; None for classification
    """

    method: str
    rounds: int
    accuracy: float
    test_loss: float | None
    seconds: float
    weights_sha256: str
    seed: int
    model: str
    data: str
    clients: int
    rejected: int
    bytes_up: int
    bytes_down: int
    personalised: bool
    global_model: ClientScores
    rounds_to_target: int | None = None
    personal_models: ClientScores | None = None
    skipped: int = 0
    identity: RunIdentity | None = None
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    task: str | None = None

    def to_json(self) -> Json:
        return to_json(self)

    @classmethod
    def from_json(cls, facts: Mapping[str, Any], place: str = "result.json") -> RunResult:
        """The summary that result.json holds. place: the file, for messages."""
        known = _checked(cls, facts, place)
        if known.get("identity") is not None:
            known["identity"] = RunIdentity.from_json(known["identity"])
        return cls(**known)

    @property
    def score_name(self) -> str:
        """What `accuracy` is: accuracy, label accuracy, R2 or token accuracy."""
        return SCORES[self.task or "classification"].name

    @property
    def client_scores(self) -> ClientScores | None:
        """Of the models that clients end with: their own if the method has them, else global."""
        return self.personal_models if self.personalised else self.global_model


class History(Sequence[RoundRecord]):
    """The records of all rounds, in order."""

    def __init__(self, records: Sequence[RoundRecord] = ()) -> None:
        self._records = list(records)

    @overload
    def __getitem__(self, index: int) -> RoundRecord: ...

    @overload
    def __getitem__(self, index: slice) -> History: ...

    def __getitem__(self, index: int | slice) -> RoundRecord | History:
        found = self._records[index]
        return History(found) if isinstance(found, list) else found

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[RoundRecord]:
        return iter(self._records)

    def __repr__(self) -> str:
        curve = self.accuracy
        last = f", accuracy {curve[max(curve)]:.4f}" if curve else ""
        return f"<History of {len(self)} rounds{last}>"

    @property
    def accuracy(self) -> dict[int, float]:
        """Accuracy of the global model by round, where it was evaluated."""
        return {r.round: r.accuracy for r in self._records if r.accuracy is not None}

    def total(self, name: str) -> float:
        """The sum of a numeric field over the rounds, such as bytes_up or seconds."""
        return sum(getattr(record, name) or 0 for record in self._records)

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a row per round; nested scores become columns with dots."""
        try:
            import pandas  # type: ignore[import-untyped]
        except ImportError:
            raise UserError(
                "history.to_pandas() needs pandas; install it with: pip install pandas"
            ) from None
        return pandas.json_normalize([record.to_json() for record in self._records])


def to_json(record: Any) -> Json:
    """A record as JSON, with its format version.

    Fields that are None are left out, and numbers that are not finite, which JSON has no way to
    write, become null.
    """
    return {"format": FORMAT, **_plain(record)}


def _plain(value: Any) -> Any:
    """Dataclasses as dictionaries without their empty fields, mappings with text as keys."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no NaN
    if is_dataclass(value):
        items = {f: getattr(value, f.name) for f in fields(value)}
        return {f.name: _plain(item) for f, item in items.items() if _is_written(f, item)}
    return value


def _is_written(field: Field[Any], value: Any) -> bool:
    """None and empty collections are left out where they are what a reader assumes anyway."""
    return is_required(field) or (value is not None and value not in ((), {}))


def _checked(cls: Any, facts: Mapping[str, Any], place: str) -> Json:
    """The fields of a record, its scores as objects; raises for another format or wrong fields."""
    if facts.get("format") != FORMAT:
        raise RunError(
            f"{place} has record format {facts.get('format', 'none')}, and this version of fedloom "
            f"reads format {FORMAT}; use the version that wrote it"
        )
    given = {name: value for name, value in facts.items() if name != "format"}
    if (problem := record_check(cls)(given, "")) is not None:
        raise RunError(f"{place} is damaged: {problem}; restore the file from a copy")
    for name in ("global_model", "personal_models"):
        if given.get(name) is not None:
            given[name] = ClientScores.from_json(given[name])
    return given
