"""The files of checkpoints: which are kept, and which are deleted."""

from pathlib import Path

from runs import toy
from runs.toy import names


def test_the_last_three_checkpoints_are_kept(run: Path) -> None:
    kept = [f"MANIFEST-{r}.json" for r in (3, 4, 5)]
    kept += ["frozen.safetensors", *(f"round-{r}.safetensors" for r in (3, 4, 5))]
    assert names(run / "checkpoint") == kept
    assert names(run) == ["checkpoint", "clients.sqlite", "config.toml", "lock", "metrics.jsonl"]


def test_half_written_files_of_a_crash_are_deleted(run: Path) -> None:
    for name in (
        "MANIFEST-5.json.tmp",
        "round-2.safetensors.tmp",
        "round-1.safetensors",
        "notes.txt",
    ):
        (run / "checkpoint" / name).touch()
    assert toy.assert_resumes(run, last=6) == 5
    kept = (
        [f"MANIFEST-{r}.json" for r in (4, 5, 6)]
        + ["frozen.safetensors", "notes.txt"]
        + [f"round-{r}.safetensors" for r in (4, 5, 6)]
    )
    assert names(run / "checkpoint") == kept
