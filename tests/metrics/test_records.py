"""What a result says of its own score, and of the models that clients end with."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

from metrics.example_records import RESULT, SCORES


def test_the_score_has_the_name_of_the_task() -> None:
    assert RESULT.score_name == "R2"
    assert replace(RESULT, task=None).score_name == "accuracy"


def test_the_scores_of_clients_are_those_of_the_models_they_end_with() -> None:
    other = replace(SCORES, test_samples=())
    personal = replace(RESULT, global_model=other)
    assert personal.client_scores is SCORES
    assert replace(personal, personal_models=None).client_scores is None
    assert replace(personal, personalised=False, personal_models=None).client_scores is other


def test_records_do_not_import_torch() -> None:
    program = "import sys, fedloom.metrics.history; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
