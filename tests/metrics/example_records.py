"""A round, a result and scores of clients, with a value in every field."""

from __future__ import annotations

from fedloom.core.identity import DataIdentity, MadeWith, RunIdentity, UsedData
from fedloom.metrics.client_scores import ClientScores, Spread
from fedloom.metrics.records import RoundRecord, RunResult

MADE_WITH = MadeWith("0.1", "ab" * 32, "2.9", "2.1", "3.12", "a fast one", {"MKL_CBWR": "AVX2"})
DATA = UsedData("tiny", DataIdentity(*(digit * 64 for digit in "12345"), 240, 80), "6" * 64)
IDENTITY = RunIdentity(MADE_WITH, DATA, {"own.py": "7" * 64}, ("after round 2, numpy changed",))

SCORES = ClientScores(
    Spread(0.5, 0.1, 0.25),
    Spread(0.75, 0.2, 0.125),
    (1.0, None),
    {"head": 0.5},
    ((3, 0), (1, 2), ()),
    (4, 4),
    {2: "it failed"},
    metrics={"auroc": Spread(0.875, 0.25, 0.5)},
    by_client={"auroc": (0.75, None)},
)
ROUND = RoundRecord(
    3,
    (7, 2),
    {2: "no reply"},
    0.5,
    12,
    100,
    200,
    1.5,
    0.25,
    2.0,
    0.125,
    SCORES,
    SCORES,
    "late",
    {"auroc": 0.5, "mine": None},
)
RESULT = RunResult(
    "ditto", 3, 0.25, 2.0, 4.5, "ab12", 1, "mlp", "tiny", 8, 1, 300, 600, True, SCORES, 2, SCORES,
    4, IDENTITY, {"auroc": 0.5, "mine": None}, "regression",
)  # fmt: skip
