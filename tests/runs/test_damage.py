"""Damage to every kind of file: the run falls back or raises; it is never silently wrong."""

import os
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fedloom.core.errors import RunError, UserError
from fedloom.runs.folder import RunFolder
from runs import toy

LAST = 5
CASES = 120
SUMMARY = {"accuracy": 0.5, "rounds": LAST}


@pytest.fixture(scope="module")
def runs(module_disk: Path) -> list[Path]:
    """A finished run, and one that was killed with its database still in the log."""
    finished = toy.made(module_disk / "finished", LAST)
    with RunFolder.open(finished) as folder:
        folder.finish(SUMMARY)
    killed = module_disk / "killed"

    def work(done: toy.Done) -> None:
        toy.run_rounds(RunFolder.create(killed, toy.CONFIG), 1, LAST)
        os._exit(9)

    assert toy.in_child(work)[0] == 9
    return [finished, killed]


def files(run: Path) -> list[Path]:
    return sorted(p for p in run.rglob("*") if p.is_file())


def test_the_runs_have_every_kind_of_file(runs: list[Path]) -> None:
    kinds = {p.name.split("-")[0] + p.suffix for run in runs for p in files(run)}
    assert kinds == {
        *(
            "config.toml.toml",
            "metrics.jsonl.jsonl",
            "clients.sqlite.sqlite",
            "clients.sqlite.sqlite-wal",
            "result.json.json",
        ),
        *("clients.sqlite.sqlite-shm", "MANIFEST.json", "round.safetensors", "lock"),
        "frozen.safetensors.safetensors",
    }


def damage(path: Path, rng: np.random.Generator) -> str:
    """Apply one of four kinds of damage; return which."""
    data = bytearray(path.read_bytes())
    how = ("flip", "cut", "delete", "zero")[rng.integers(4)]
    start = int(rng.integers(max(len(data), 1)))
    if how == "delete":
        path.unlink()
        return how
    if how == "flip" and data:
        data[start] ^= 1 << int(rng.integers(8))
    if how == "cut":
        del data[start:]
    if how == "zero":
        end = min(len(data), start + int(rng.integers(1, 400)))
        data[start:end] = bytes(end - start)
    path.write_bytes(data)
    return how


def outcome(path: Path) -> str:
    """What happens with the damaged run; `assert_resumes` compares every value."""
    try:
        start = toy.assert_resumes(path, last=LAST + 2)
    except (RunError, UserError) as error:
        assert str(path) in str(error) and ";" in str(error), error
        return "said"
    return "unaffected" if start == LAST else "fell back"


def assert_result_true(path: Path, genuine: bool) -> None:
    try:
        with RunFolder.open(path) as folder:
            assert folder.result() in ([None, SUMMARY] if genuine else [None])
    except (RunError, UserError) as error:
        assert str(path) in str(error)


def test_damage_is_never_silent(runs: list[Path], disk: Path) -> None:
    rng, met = np.random.default_rng(20), Counter()
    for case in range(CASES):
        run = runs[case % 2]
        path = shutil.copytree(run, disk / str(case))
        targets = files(path)
        target = targets[(case // 2) % len(targets)]
        damage(target, rng)
        assert_result_true(path, genuine=run is runs[0])
        met[outcome(path)] += 1
        shutil.rmtree(path)
    assert sum(met.values()) == CASES
    assert min(met[kind] for kind in ("said", "fell back", "unaffected")) >= 10, met


def test_damage_is_never_silent_for_readers_either(runs: list[Path], disk: Path) -> None:
    """For reports: metrics and states of a run that is not resumed."""
    rng, met = np.random.default_rng(21), Counter()
    for case in range(40):
        path = shutil.copytree(runs[0], disk / str(case))
        target = (
            path / "metrics.jsonl",
            path / "clients.sqlite",
            *sorted(path.glob("checkpoint/*")),
        )[case % 8]
        damage(target, rng)
        before = {p: p.read_bytes() for p in files(path)}
        try:
            folder = RunFolder.read_only(path)
            restored = folder.restore()
            if restored is not None:
                toy.assert_same(restored.state.tensors(), toy.state(restored.state.round).tensors())
                toy.assert_remembers(folder, toy.memories(restored.state.round))
            assert folder.metrics() == [toy.line(r) for r in range(1, LAST + 1)]
            met["read"] += 1
        except (RunError, UserError) as error:
            assert str(path) in str(error)
            met["said"] += 1
        assert {p: p.read_bytes() for p in files(path) if p in before} == before
    assert min(met["read"], met["said"]) >= 5, met
