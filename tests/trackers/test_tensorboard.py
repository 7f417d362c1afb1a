"""TensorBoard event files, read back with TensorBoard's own reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli import talk
from fedloom.core.errors import UserError
from fedloom.experiment.execute import execute
from trackers.following import METRICS, PERSONAL, accuracies, cut_off, resume, settings

pytest.importorskip("tensorboard", reason='needs: pip install "fedloom[tensorboard]"')

from fedloom.trackers.tensorboard import TensorBoard

ENDED = "_hparams_/session_end_info"


def read(folder: Path) -> Any:
    """Everything in the event files of a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    return events.Reload()


def steps_that_the_page_shows(folder: Path, tag: str) -> list[int]:
    """As TensorBoard's server reads them where its data server cannot run."""
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

    return [event.step for event in EventAccumulator(str(folder)).Reload().Tensors(tag)]


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in read(folder).Scalars(tag)]


def steps(folder: Path, tag: str) -> list[int]:
    return [step for step, _ in scalars(folder, tag)]


def test_a_run_is_written_with_its_settings(desk: Path) -> None:
    said = talk.fedloom(
        "run", *talk.TINY, "--method", "finetune", "--rounds", 3, "--out", "run",
        "--track", "tensorboard", "--track-clients",
    )  # fmt: skip
    assert "tensorboard: tensorboard --logdir run/tensorboard" in said.flat
    events = read(Path("run/tensorboard"))
    clients = {"client/accuracy", "client/rounds", "client/rejected"}
    assert set(events.Tags()["scalars"]) == METRICS | PERSONAL | clients
    told = {event.step: event.value for event in events.Scalars("accuracy")}
    assert told == pytest.approx(accuracies(Path("run")))
    assert [event.step for event in events.Scalars("client/accuracy")] == list(range(8))
    (text,) = events.Tensors("settings/text_summary")
    assert b'    name = "finetune"' in text.tensor_proto.string_val[0]
    assert hyperparameters(events)["train.batch"] == 10
    assert ENDED in events.PluginTagToContent("hparams")


def hyperparameters(events: Any) -> dict[str, Any]:
    """The settings as TensorBoard's table of hyperparameters takes them from the files."""
    from tensorboard.plugins.hparams import plugin_data_pb2

    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    facts = plugin_data_pb2.HParamsPluginData.FromString(content)
    values = facts.session_start_info.hparams
    return {name: getattr(v, str(v.WhichOneof("kind"))) for name, v in values.items()}


def test_a_resumed_run_has_every_round_once(desk: Path) -> None:
    """Round 3 was written, but its checkpoint was not: it is run and written again."""
    cut_off(desk / "run", 3, TensorBoard(), checkpoint_every=2)
    assert steps(desk / "run" / "tensorboard", "accuracy") == [1, 2, 3]
    assert ENDED not in read(desk / "run" / "tensorboard").PluginTagToContent("hparams")
    resume(desk / "run", TensorBoard())
    for tag in METRICS:
        assert steps(desk / "run" / "tensorboard", tag) == [1, 2, 3, 4]
        assert steps_that_the_page_shows(desk / "run" / "tensorboard", tag) == [1, 2, 3, 4]
    told = dict(scalars(desk / "run" / "tensorboard", "accuracy"))
    assert told == pytest.approx(accuracies(desk / "run"))


def test_a_finished_run_can_be_written_afterwards_and_again(desk: Path) -> None:
    talk.run(Path("run"))
    for _ in range(2):
        talk.fedloom("resume", "run", "--track", "tensorboard")
        assert steps(Path("run/tensorboard"), "accuracy") == [1, 2, 3]


def test_runs_share_a_folder_without_mixing(desk: Path) -> None:
    """Two runs of one name, one of which is resumed: each has a folder of its own."""
    cut_off(desk / "first", 1, TensorBoard("tb"))
    execute(settings(), desk / "second", callbacks=[TensorBoard("tb")])
    resume(desk / "first", TensorBoard("tb"))
    assert sorted(p.name for p in Path("tb").iterdir()) == ["fedavg-s0", "fedavg-s0-2"]
    for folder in Path("tb").iterdir():
        assert steps(folder, "accuracy") == [1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_all_runs_of_a_comparison_are_written(desk: Path, jobs: int) -> None:
    talk.fedloom(
        "compare", "--methods", "fedavg,fedprox(mu=0.1)", *talk.TINY, "--rounds", 2,
        "--jobs", jobs, "--track", "tensorboard=tb",
    )  # fmt: skip
    assert {p.name: steps(p, "accuracy") for p in Path("tb").iterdir()} == {
        "fedavg-s0": [1, 2],
        "fedprox-s0": [1, 2],
    }


def test_a_run_in_memory_has_a_folder_by_default(desk: Path) -> None:
    execute(settings(), callbacks=[TensorBoard()])
    assert steps(Path("runs/tensorboard/fedavg-s0"), "accuracy") == [1, 2, 3, 4]


def test_no_link_is_followed_out_of_a_run_folder(desk: Path) -> None:
    cut_off(desk / "run", 1)
    (desk / "elsewhere").mkdir()
    (desk / "run" / "tensorboard").symlink_to(desk / "elsewhere")
    said: list[str] = []
    resume(desk / "run", TensorBoard(), warn=said.append)
    assert len(said) == 1 and "tensorboard has stopped" in said[0]
    assert not list((desk / "elsewhere").iterdir())


def test_a_file_is_no_folder(desk: Path) -> None:
    Path("tb").write_text("")
    with pytest.raises(UserError, match="'tb' is a file; name a folder"):
        TensorBoard("tb")


def test_a_folder_that_cannot_be_written_to_does_not_stop_the_run(desk: Path) -> None:
    Path("file").write_text("")
    said: list[str] = []
    execute(settings(), callbacks=[TensorBoard("file/tb")], warn=said.append)
    assert len(said) == 1 and "tensorboard has stopped (NotADirectoryError" in said[0]
