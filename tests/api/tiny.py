"""An experiment so small that it takes a tenth of a second."""

from typing import Any

import fedloom as fl

SETTINGS: dict[str, Any] = {
    "data": "tiny",
    "model": "mlp(layers=1,width=4)",
    "clients": 8,
    "per_round": 3,
    "rounds": 3,
    "batch": 10,
}


def experiment(**changes: Any) -> fl.Experiment:
    return fl.Experiment(**{**SETTINGS, **changes})


def sha(run: fl.Run) -> str:
    """What identifies the final weights."""
    assert run.result is not None
    return run.result.weights_sha256
