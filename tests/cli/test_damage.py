"""Every file of a run is damaged: `resume` ends as the undamaged run did, or says why not."""

import contextlib
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.forks import KILLED, forks
from cli.talk import TINY, fedloom, lines, run, saved_rounds
from fedloom.cli.main import app
from fedloom.core.key import Key

pytestmark = pytest.mark.xdist_group("damage")  # so that what is damaged is made once
ROUNDS, STOP = 7, 5


@dataclass(frozen=True)
class Runs:
    """A finished run, the same one killed after its fourth save and fifth line, and their output.

    folded: the killed one with the log of its database merged into the file, as SQLite readers do.
    """

    finished: Path
    half: Path
    folded: Path
    said: str
    sha256: str
    lines: list[dict[str, Any]]


@pytest.fixture(scope="module")
def runs(home: Path) -> Runs:
    finished, half = home / "finished", home / "half"
    result = run(finished, "--method", "scaffold", rounds=ROUNDS)
    with forks(home) as play:
        lived = play(
            "run",
            *TINY,
            "--method",
            "scaffold",
            "--rounds",
            ROUNDS,
            "--out",
            half,
            die_at_line=STOP,
        )
    assert lived.status == KILLED and saved_rounds(half) == [STOP - 3, STOP - 2, STOP - 1]
    return Runs(
        finished,
        half,
        fold(shutil.copytree(half, home / "folded")),
        lived.said.err,
        result["weights_sha256"],
        lines(finished),
    )


def fold(folder: Path) -> Path:
    with contextlib.closing(sqlite3.connect(folder / "clients.sqlite")) as database:
        database.execute("PRAGMA journal_mode = DELETE")
    return folder


def files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file())


def test_every_kind_of_file_exists(runs: Runs) -> None:
    database = {"clients.sqlite", "clients.sqlite-wal", "clients.sqlite-shm"}
    manifests = {f"MANIFEST-{r}.json" for r in saved_rounds(runs.half)}
    states = {f"round-{r}.safetensors" for r in saved_rounds(runs.half)}
    assert {p.name for p in files(runs.half)} == {
        "config.toml",
        "metrics.jsonl",
        "lock",
        *database,
        *manifests,
        *states,
    }
    assert "result.json" in {p.name for p in files(runs.finished)}


def test_a_reported_round_is_saved(runs: Runs) -> None:
    assert f"round {STOP - 1}/{ROUNDS}" in runs.said and f"round {STOP}/{ROUNDS}" not in runs.said


def damage(file: Path, key: Key) -> str:
    """One of four kinds of damage; the key decides which one and where."""
    data, draw = bytearray(file.read_bytes()), key.fold("where").seed
    how = ("flip", "cut", "zero", "delete")[key.fold("how").seed % 4]
    start = draw % max(len(data), 1)
    if how == "delete":
        file.unlink()
        return "delete"
    if how == "flip" and data:
        data[start] ^= 1 << key.fold("bit").seed % 8
    elif how == "cut":
        del data[start:]
    elif how == "zero":
        end = min(len(data), start + 1 + key.fold("length").seed % 500)
        data[start:end] = bytes(end - start)
    file.write_bytes(data)
    return f"{how} at {start}"


def verdict(folder: Path, runs: Runs) -> str:
    """'ended' as it should, 'said' why it does not, or what is wrong with the answer."""
    result = CliRunner().invoke(app, ["resume", str(folder), "--json"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return f"traceback: {result.exception!r}"
    if result.exit_code in (1, 2):
        *_, last = result.stderr.strip().splitlines()
        spoken = last.startswith(("error: ", "failed: ")) and str(folder) in last
        return "said" if spoken else f"no sentence: {last}"
    if result.exit_code != 0 or runs.sha256 not in result.stdout:
        return f"wrong weights, exit code {result.exit_code}"
    return "ended" if lines(folder) == runs.lines else "other metrics"


def damaged(base: Path, names: str, cases: int, desk: Path) -> Iterator[tuple[str, Path]]:
    """Copies of a run, each with one file of such a name damaged, file after file."""
    targets = [p.relative_to(base) for p in files(base) if p.match(names)]
    for case in range(cases):
        folder = shutil.copytree(base, desk / f"{base.name}-{case}")
        target = targets[case % len(targets)]
        how = damage(folder / target, Key.root(11).fold(base.name, case))
        yield f"case {case}: {target}, {how}", folder
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("which", "names", "cases"),
    [("half", "*", 100), ("folded", "clients.sqlite", 30), ("finished", "*", 24)],
)
def test_damage_is_repaired_or_reported(
    which: str, names: str, cases: int, runs: Runs, desk: Path
) -> None:
    met = {
        name: verdict(folder, runs)
        for name, folder in damaged(getattr(runs, which), names, cases, desk)
    }
    assert {name: v for name, v in met.items() if v not in ("ended", "said")} == {}
    count = Counter(met.values())
    assert count.total() == cases and min(count["ended"], count["said"]) >= cases // 20, count


EDITS = [
    ("metrics.jsonl", '"round": 2', '"rounf": 2'),
    ("metrics.jsonl", '"round": 2', '"round": "2"'),
    ("metrics.jsonl", f'"round": {STOP}', f'"rounf": {STOP}'),
    ("metrics.jsonl", f'"round": {STOP}', f'"round": "{STOP}"'),
    ("metrics.jsonl", '"accuracy": 0.', '"accuracy": 1.'),
    ("config.toml", "rounds = 7", "rounds = 9"),
    ("config.toml", "width = 4", "width = 5"),
    ("config.toml", "seed = 0", "seed = 1"),
    ("config.toml", "per_round = 3", "per_round = 33"),
    ("config.toml", 'name = "scaffold"', 'name = "scaffolt"'),
    ("config.toml", 'name = "tiny"', 'name = "tinx"'),
    ("config.toml", "[guard]", "[guards]"),
]


@pytest.mark.parametrize(("name", "old", "new"), EDITS, ids=lambda text: text)
def test_an_edited_line_is_noticed(name: str, old: str, new: str, runs: Runs, desk: Path) -> None:
    """Lines after the last checkpoint are written again; those before it must be as they were."""
    folder = shutil.copytree(runs.half, desk / "edited")
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))
    assert verdict(folder, runs) == ("ended" if str(STOP) in old else "said")


def test_going_back_to_an_earlier_checkpoint_is_reported(runs: Runs, desk: Path) -> None:
    folder = shutil.copytree(runs.half, desk / "back")
    newest = folder / "checkpoint" / f"round-{STOP - 1}.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    said = fedloom("resume", folder)
    assert runs.sha256 in said.out
    assert f"{newest.name} is damaged" in said.err and f"resuming from round {STOP - 2}" in said.err


def test_an_undamaged_copy_resumes_from_its_last_checkpoint(runs: Runs, desk: Path) -> None:
    shutil.copytree(runs.half, desk / "copy")
    said = fedloom("resume", "copy")
    assert runs.sha256 in said.out
    assert f"round {STOP}/{ROUNDS}" in said.err and f"round {STOP - 1}/{ROUNDS}" not in said.err
