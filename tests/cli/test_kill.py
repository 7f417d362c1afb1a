"""kill -9 at any moment of a run or of a resume: the final weights are those without a kill."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cli.forks import KILLED, Forks, forks
from cli.talk import TINY, lines, saved_rounds
from fedloom.core.key import Key

pytestmark = pytest.mark.xdist_group("kill")  # so that one server of forks serves all
ROUNDS = 20
STATEFUL = (
    "fedavg",
    "scaffold",
    "feddyn",
    "fedadam",
)  # nothing; clients and server; both; server alone


@pytest.fixture(scope="module")
def play(home: Path) -> Iterator[Forks]:
    with forks(home) as server:
        yield server


@dataclass(frozen=True)
class Whole:
    """A run without a kill, and the seconds it took."""

    result: dict[str, Any]
    lines: list[dict[str, Any]]
    seconds: float


@pytest.fixture(scope="module")
def wholes(play: Forks, home: Path) -> dict[str, Whole]:
    return {method: undisturbed(play, method, home / f"whole-{method}") for method in STATEFUL}


def undisturbed(play: Forks, method: str, out: Path) -> Whole:
    lived = play(*command(method, out))
    assert lived.status == 0, lived.said.err
    return Whole(lived.said.json, lines(out), lived.seconds)


def command(method: str, out: Path) -> list[object]:
    return ["run", *TINY, "--method", method, "--rounds", ROUNDS, "--out", out, "--json"]


def go_on(method: str, out: Path) -> list[object]:
    """What a user would do: resume, or begin again where the kill came before there was a run."""
    return ["resume", out, "--json"] if (out / "config.toml").exists() else command(method, out)


def fraction(*path: str | int) -> float:
    """The moment of a kill as a fraction of a time: random, and the same in every session."""
    return Key.root(5).fold(*path).seed % 1000 / 1000


def last_saved(out: Path) -> int:
    return max(saved_rounds(out), default=0)


def reported(err: str) -> list[int]:
    """The rounds that a command reports to have done."""
    return [int(number) for number in re.findall(rf": round (\d+)/{ROUNDS},", err)]


def assert_ends_like(whole: Whole, play: Forks, method: str, out: Path) -> None:
    """Go on to the end: from the last checkpoint, and to the same weights by the same rounds."""
    before = last_saved(out)
    lived = play(*go_on(method, out))
    assert lived.status == 0, lived.said.err
    assert lived.said.json["weights_sha256"] == whole.result["weights_sha256"]
    assert lines(out) == whole.lines
    assert reported(lived.said.err) == list(range(before + 1, ROUNDS + 1))


@pytest.mark.parametrize("kills", [3, pytest.param(13, marks=pytest.mark.long)])
@pytest.mark.parametrize("method", STATEFUL)
def test_a_killed_run_ends_as_if_nothing_had_happened(
    method: str, kills: int, play: Forks, wholes: dict[str, Whole], home: Path
) -> None:
    """Only kills between the first checkpoint and the last round count; all must end well.

    The pace follows a machine that has become slower or faster since the undisturbed run.
    """
    whole, amidst, trial = wholes[method], 0, 0
    pace = whole.seconds
    while amidst < kills:
        trial += 1
        assert trial <= 8 * kills, (
            f"only {amidst} of {trial - 1} kills fell into the middle of a run"
        )
        out = home / f"killed-{method}-{kills}-{trial}"
        lived = play(*command(method, out), kill_after=pace * fraction(method, kills, trial))
        assert max(reported(lived.said.err), default=0) <= last_saved(out), (
            "a round was reported that was not safe yet"
        )
        amidst += lived.status == KILLED and 0 < last_saved(out) < ROUNDS
        pace *= 1.4 if last_saved(out) == 0 else 0.7 if lived.status == 0 else 1.0
        assert_ends_like(whole, play, method, out)
        shutil.rmtree(out)


@pytest.mark.parametrize("method", STATEFUL)
def test_a_resume_can_be_killed_again_and_again(
    method: str, play: Forks, wholes: dict[str, Whole], home: Path
) -> None:
    """One run, killed many times: first after two or three more rounds, then at random times."""
    whole, out, reached = wholes[method], home / f"again-{method}", [0]
    for attempt in range(12):
        chance = fraction("again", method, attempt)
        further = min(reached[-1] + 2 + round(chance), ROUNDS - 1)
        moment = (
            {"die_at_line": further}
            if attempt < 2 or attempt % 2 == 0
            else {"kill_after": whole.seconds / 4 * (0.5 + chance)}
        )
        lived = play(*go_on(method, out), **moment)
        if lived.status != KILLED:
            break
        reached.append(last_saved(out))
    assert sorted(reached) == reached, "a kill has cost a checkpoint"
    assert sum(0 < r < ROUNDS for r in reached) >= 2, (
        f"too few kills fell into the middle of the run: {reached}"
    )
    assert_ends_like(whole, play, method, out)
