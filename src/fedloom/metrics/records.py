"""Typed records of a run: a RoundRecord per line of metrics.jsonl, a RunResult in result.json.

Scores are fractions between 0 and 1, except for R2 and other metrics. Importing this module does
not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedloom.core.identity import RunIdentity
from fedloom.metrics.client_scores import ClientScores
from fedloom.metrics.record_json import Json, checked_fields, to_json
from fedloom.metrics.score import SCORES


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
        known = checked_fields(cls, facts, place)
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
        known = checked_fields(cls, facts, place)
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
