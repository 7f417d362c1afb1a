"""Which folders are runs, which could become one, and the line that names the format."""

import shutil
from pathlib import Path

import pytest

from fedloom.core.errors import UserError
from fedloom.runs.durable_files import sha256
from fedloom.runs.folder import RunFolder
from fedloom.runs.folder_layout import FORMAT, each_run
from runs import toy
from runs.toy import names


def test_existing_files_are_not_overwritten(run: Path, disk: Path) -> None:
    with pytest.raises(
        UserError, match=rf"holds a run already; resume it with `fedloom resume {run}`"
    ):
        RunFolder.create(run, toy.CONFIG)
    (disk / "photos").mkdir()
    (disk / "photos" / "cat.jpg").touch()
    with pytest.raises(
        UserError, match=r"photos is not empty \(it holds cat.jpg\); choose another --out"
    ):
        RunFolder.create(disk / "photos", toy.CONFIG)
    with pytest.raises(UserError, match=r"cat.jpg is a file; choose another --out"):
        RunFolder.create(disk / "photos" / "cat.jpg", toy.CONFIG)
    assert names(disk / "photos") == ["cat.jpg"]


def test_a_folder_that_is_not_a_run_is_rejected(disk: Path) -> None:
    for enter in (RunFolder.open, RunFolder.read_only):
        with pytest.raises(
            UserError,
            match=r"is not the folder of a run: it has no config.toml and no checkpoint; make one",
        ):
            enter(disk)
    assert names(disk) == []


def test_a_folder_of_runs_is_told_from_a_run(run: Path, disk: Path) -> None:
    group = disk / "compared"
    for name in ("a/seed-0", "a/seed-1", "b/seed-0", "b/seed-1"):
        shutil.copytree(run, group / name)
    shown = ", ".join(str(group / name) for name in ("a/seed-0", "a/seed-1", "b/seed-0"))
    with pytest.raises(UserError) as error:
        RunFolder.read_only(group)
    assert str(error.value).endswith(f"name a run inside it: {shown} and 1 more")


def test_a_folder_of_runs_stands_for_the_runs_inside(run: Path, disk: Path) -> None:
    group, waiting = disk / "compared", disk / "compared" / "b" / "seed-0"
    inside = [group / "a" / "seed-0", group / "a" / "seed-1", group / "c"]
    for folder in (*inside, waiting):
        shutil.copytree(run, folder)
    shutil.rmtree(waiting / "checkpoint")  # it has not finished a round
    elsewhere = disk / "no run"
    assert each_run([run, group, elsewhere]) == [run, *inside, elsewhere]


def test_a_config_that_is_not_text_is_rejected(run: Path) -> None:
    whole = (run / "config.toml").read_bytes()
    (run / "config.toml").write_bytes(whole + b"lr = \xff")
    with pytest.raises(UserError, match=rf"config.toml is not text \(byte {len(whole) + 5}\)"):
        RunFolder.open(run)
    (run / "config.toml").write_bytes(whole)
    RunFolder.open(run).close()


def test_the_first_line_of_the_config_is_the_format_of_the_folder(run: Path) -> None:
    text = (run / "config.toml").read_text()
    assert text == f"# fedloom run folder, format 2\n{toy.CONFIG}" and FORMAT == 2
    for enter in (RunFolder.open, RunFolder.read_only):
        with enter(run) as folder:
            assert folder.config_text == toy.CONFIG
            assert folder.config_sha256 == sha256(text.encode())


@pytest.mark.parametrize(
    ("header", "written"),
    [
        ("", r"1 \(or without a version\)"),
        ("# fedloom run folder\n", r"1 \(or without a version\)"),
        ("# fedloom run folder, format 1\n", "1"),
        ("# fedloom run folder, format 3\n", "3"),
        ("# fedloom run folder, format two\n", r"1 \(or without a version\)"),
        ("\n# fedloom run folder, format 2\n", r"1 \(or without a version\)"),
    ],
)
def test_other_formats_are_rejected_and_left_as_they_are(
    run: Path, header: str, written: str
) -> None:
    (run / "config.toml").write_text(header + toy.CONFIG)
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    for enter in (RunFolder.open, RunFolder.read_only):
        with pytest.raises(
            UserError,
            match=rf"^{run} was written in run-folder format {written}, and this version of "
            "fedloom reads format 2; start a new run, or use the version that wrote it$",
        ):
            enter(run)
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before
