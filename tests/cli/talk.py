"""The command line inside this process, and a run so small that it takes a tenth of a second."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from fedloom.cli.main import app

TINY = (
    "--data",
    "tiny",
    "--model",
    "mlp(layers=1,width=4)",
    "--clients",
    "8",
    "--per-round",
    "3",
    "--set",
    "train.batch=10",
)


@dataclass(frozen=True)
class Said:
    """What a command has printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def flat(self) -> str:
        """stderr in one line, without the frames and line breaks of a narrow terminal."""
        return " ".join(self.err.replace("│", " ").split())

    @property
    def json(self) -> Any:
        """The one JSON value on stdout."""
        (line,) = self.out.splitlines()
        return json.loads(line)


def fedloom(*words: object, code: int = 0) -> Said:
    """Run a command that must end with this exit code, and not with a traceback."""
    result = CliRunner().invoke(app, [str(w) for w in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise AssertionError(
            f"traceback of: fedloom {' '.join(map(str, words))}"
        ) from result.exception
    assert result.exit_code == code, result.stderr
    assert "Traceback" not in result.stderr or "--debug" in words, result.stderr
    return Said(result.exit_code, result.stdout, result.stderr)


def run(out: Path, *words: object, rounds: int = 3) -> dict[str, Any]:
    """The result of a tiny run."""
    return dict(fedloom("run", *TINY, "--rounds", rounds, "--out", out, "--json", *words).json)


def lines(folder: Path) -> list[dict[str, Any]]:
    """The metrics of a run as they stand in its file, without what depends on the clock."""
    every = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.endswith("seconds")} for line in every]


def saved_rounds(folder: Path) -> list[int]:
    """The rounds of which there is a checkpoint."""
    return sorted(int(p.stem.partition("-")[2]) for p in folder.glob("checkpoint/MANIFEST-*.json"))


def write_tiny(file: Path) -> Path:
    """Four noisy patterns of 8 x 8 pixels, 60 samples each to train on and 20 to test with."""
    draws = np.random.default_rng(7)
    labels = np.arange(320) % 4
    patterns = draws.integers(0, 255, (4, 1, 8, 8))
    pixels = np.clip(patterns[labels] + draws.normal(0, 60, (320, 1, 8, 8)), 0, 255).astype(
        np.uint8
    )
    np.savez(
        file, x_train=pixels[:240], y_train=labels[:240], x_test=pixels[240:], y_test=labels[240:]
    )
    return file
