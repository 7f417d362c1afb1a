"""`Run` and `open`: runs in memory and in folders, resumed, and their models."""

import itertools
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import fedloom as fl
from api.tiny import experiment, sha
from cli import talk
from fedloom.core.warn import FedloomWarning
from fedloom.experiment.execute import execute
from fedloom.experiment.train import Interrupted


class StopAfter(fl.Callback):
    """Interrupts the run after a round, as Ctrl-C in a notebook does."""

    def __init__(self, last: int) -> None:
        self.last = last

    def on_round(self, record: fl.RoundRecord) -> None:
        if record.round == self.last:
            raise KeyboardInterrupt


class Rounds(fl.Callback):
    """The rounds that were trained."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_round(self, record: fl.RoundRecord) -> None:
        self.seen.append(record.round)


def flat(shape: Any, classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))


def local_flat() -> Any:
    """A function of (shape, classes) that no other process can import."""
    return lambda shape, classes: flat(shape, classes)


def quiet(weight: float = 0.1) -> fl.Method:
    return fl.Method("quiet", fl.Phase(terms=lambda step: weight * step.logits.square().mean()))


def interrupted(made: fl.Experiment, folder: str, after: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        made.run(folder, [StopAfter(after)])


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_model_can_be_asked_for_where_gradients_are_off(mode: Any, desk: Path) -> None:
    run = experiment(model=flat).run()
    with mode():
        assert run.model(torch.zeros(2, 1, 8, 8)).shape[0] == 2


@pytest.mark.parametrize("method", ["scaffold", "ditto"])
def test_a_folder_changes_nothing(method: str, desk: Path) -> None:
    made = experiment(method=method)
    memory, folder = made.run(), made.run("run")
    assert sha(memory) == sha(folder) == sha(fl.open("run"))
    assert (memory.folder, folder.folder) == (None, Path("run"))
    assert repr(memory).endswith("in memory>") and repr(folder).endswith("in run>")
    assert memory.accuracy == folder.accuracy == folder.history[-1].accuracy
    assert [r.train_loss for r in memory.history] == [r.train_loss for r in folder.history]
    opened = fl.open("run")
    assert list(opened.history) == list(folder.history) and opened.result == folder.result
    assert opened.config == folder.config == memory.config
    weights = opened.model.state_dict()
    assert all(tensor.equal(weights[name]) for name, tensor in memory.model.state_dict().items())


def test_a_finished_folder_is_returned_as_it_is(desk: Path) -> None:
    made, rounds = experiment(), Rounds()
    first = made.run("run")
    before = (desk / "run/metrics.jsonl").read_bytes()
    again = made.run("run", [rounds])
    assert rounds.seen == [] and again.result == first.result
    assert (desk / "run/metrics.jsonl").read_bytes() == before


def test_a_folder_with_other_settings_is_rejected(desk: Path) -> None:
    experiment().run("run")
    with pytest.raises(fl.UserError) as error:
        experiment(lr=0.5).run("run")
    assert "'run' holds a run with other settings" in str(error.value)
    assert "train.lr is 0.05 there and 0.5 here; choose another folder" in str(error.value)
    (desk / "notes").mkdir()
    (desk / "notes/mine.txt").write_text("not a run")
    with pytest.raises(fl.UserError):
        experiment().run("notes")
    assert [p.name for p in (desk / "notes").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("method", ["scaffold", "feddyn", "ditto"])
@pytest.mark.parametrize("after", [1, 2])
def test_an_interrupted_run_resumes_to_the_same_weights(
    method: str, after: int, desk: Path
) -> None:
    """By running the experiment again, and by opening the folder."""
    made = experiment(method=method)
    whole = made.run()
    for folder, resume in (
        ("again", lambda rounds: made.run("again", [rounds])),
        ("opened", lambda rounds: fl.open("opened").resume([rounds])),
    ):
        interrupted(made, folder, after)
        half = fl.open(folder)
        assert half.result is None and len(half.history) == after
        assert f"{after} of 3 rounds" in repr(half)
        rounds = Rounds()
        resumed = resume(rounds)
        assert rounds.seen == list(range(after + 1, 4))
        assert sha(resumed) == sha(whole)
        assert resumed.result is not None and whole.result is not None
        assert resumed.result.personal_models == whole.result.personal_models
        assert [r.accuracy for r in resumed.history] == [r.accuracy for r in whole.history]


def test_a_run_that_was_asked_to_stop_resumes_to_the_same_weights(desk: Path) -> None:
    """With fewer checkpoints than rounds: a stop saves the round after which it comes."""
    made, asked = experiment(method="scaffold", checkpoint_every=3, rounds=4), itertools.count(1)
    with pytest.raises(Interrupted, match="stopped after round 2 of 4"):
        execute(made.config, Path("run"), stop=lambda: next(asked) == 2)
    rounds = Rounds()
    assert sha(fl.open("run").resume([rounds])) == sha(made.run())
    assert rounds.seen == [3, 4]


def test_resume_of_a_finished_run_returns_at_once(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = experiment().run()
    experiment().run("run")

    def never(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("nothing has to be prepared")

    monkeypatch.setattr("fedloom.api.run.execute", never)
    run = fl.open("run")
    assert run.resume() is run and memory.resume() is memory


@pytest.mark.posix
def test_resume_with_another_engine_has_the_same_bits(desk: Path) -> None:
    made = experiment(method="scaffold", engine="pool", workers=1)
    interrupted(made, "run", 1)
    assert sha(fl.open("run").resume(engine="inprocess")) == sha(made.run())


def test_python_objects_are_needed_again_only_to_train_or_to_use_the_models(desk: Path) -> None:
    method, model = fl.method("fedprox") + quiet(), local_flat()
    made = experiment(method=method, model=model)
    whole = made.run()
    interrupted(made, "run", 2)
    bare = fl.open("run")
    assert len(bare.history) == 2 and bare.config.title == "fedprox+quiet"
    for use in (lambda: bare.model, bare.resume, lambda: bare.client(0)):
        with pytest.raises(fl.UserError) as error:
            use()
        for kind, name in (("method", "quiet"), ("model", "lambda")):
            assert f"{kind} '{name}' was passed as a Python object" in str(error.value)
            assert f"fedloom.open(FOLDER, {kind}=...)" in str(error.value)
    with pytest.raises(fl.UserError, match="model 'lambda' was passed as a Python object"):
        fl.open("run", method=method).resume()
    resumed = fl.open("run", method=method, model=model).resume()
    assert sha(resumed) == sha(whole)
    assert isinstance(resumed.model, nn.Sequential)


@pytest.mark.parametrize(
    ("wrong", "then", "now"),
    [
        ({"method": fl.Method("other", fl.Phase())}, "method 'quiet'", "'other'"),
        ({"method": "fedavg"}, "method 'quiet'", "'fedavg'"),
        ({"model": "mlp"}, "model 'lambda'", "'mlp'"),
        ({"model": flat((1, 8, 8), 4)}, "model 'lambda'", "'Sequential'"),
        ({"data": "fashion-mnist"}, "data 'tiny'", "'fashion-mnist'"),
    ],
    ids=["method", "method name", "model name", "module", "data"],
)
def test_another_object_than_the_run_was_made_with_is_rejected(
    wrong: dict[str, Any], then: str, now: str, desk: Path
) -> None:
    experiment(method=quiet(), model=local_flat(), rounds=1).run("run")
    with pytest.raises(fl.UserError) as error:
        fl.open("run", **wrong)
    assert f"the run was made with {then}, and this is {now}" in str(error.value)


def test_a_module_with_other_weights_is_rejected(desk: Path) -> None:
    module = flat((1, 8, 8), 4)
    run = experiment(model=module, rounds=1).run("run")
    assert fl.open("run", model=module).model.state_dict().keys() == run.model.state_dict().keys()
    with pytest.raises(
        fl.UserError, match="the run was made with model 'Sequential', and this is another"
    ):
        fl.open("run", model=flat((1, 8, 8), 4))


def test_importable_objects_are_found_by_open(user: ModuleType, desk: Path) -> None:
    made = experiment(method=user.confident, model=user.OneLayer)
    interrupted(made, "run", 1)
    resumed = fl.open("run").resume()
    assert sha(resumed) == sha(made.run()) and isinstance(resumed.model, user.OneLayer)


@pytest.mark.parametrize("folder", [None, "run"])
@pytest.mark.parametrize("method", ["ditto", "finetune(lr=0.2, batch=10)"])
def test_the_models_of_clients_have_the_scores_of_the_result(
    method: str, folder: str | None, desk: Path
) -> None:
    run = experiment(method=method).run(folder)
    assert run.result is not None and run.result.personal_models is not None
    scores = run.result.personal_models
    clients = [run.client(number) for number in range(8)]
    images, labels = test_images()
    for number, client in enumerate(clients):
        assert client.number == number and client.samples == sum(client.counts)
        with torch.no_grad():
            predicted = client.model(run.normalise(images)).argmax(1).numpy()
        correct = [int((predicted[labels == c] == c).sum()) for c in range(4)]
        assert correct == list(scores.correct[number])
        assert client.accuracy == pytest.approx(sum(correct) / 80)
        held = [c for c in range(4) if client.counts[c]]
        recall = sum(correct[c] / 20 for c in held) / len(held)
        assert client.mean_class_recall == pytest.approx(recall)
    for name in ("label_weighted_accuracy", "mean_class_recall"):
        mean = np.mean([getattr(client, name) for client in clients])
        assert mean == pytest.approx(getattr(scores, name).mean)
    assert sum(client.samples for client in clients) == 240


def test_clients_of_a_method_that_does_not_personalise_have_the_global_model() -> None:
    run = experiment().run()
    weights = run.client(3).model.state_dict()
    assert all(tensor.equal(weights[name]) for name, tensor in run.model.state_dict().items())
    with pytest.raises(fl.UserError, match="client 8 is not one of the 8 clients; choose a number"):
        run.client(8)


def test_open_takes_no_settings(desk: Path) -> None:
    """They were read and then ignored: a run goes on with those of its folder."""
    experiment(rounds=1).run("one")
    for name, value in {"rounds": 10, "lr": 0.3, "partition": "iid"}.items():
        with pytest.raises(fl.UserError, match=f"{name}= cannot be given to fedloom.open: a run"):
            fl.open("one", **{name: value})


def test_an_object_under_a_wrong_name_is_told_where_data_belong() -> None:
    x = np.zeros((4, 2))
    for wrong in ({"X": x, "y": x[:, 0]}, {"dta": (x, x[:, 0])}):
        with pytest.raises(fl.UserError, match=r"no setting or argument .* as data=\(X, y\)"):
            fl.Experiment(**wrong)


def test_a_client_is_named_by_a_number_of_any_integer_type(desk: Path) -> None:
    """Of a run in a folder, NumPy's integers found no memories, and so the global model."""
    run = experiment(method="ditto").run("ditto")
    images, _ = test_images()
    expected, predicted = run.client(2), run.predict(images, client=2)
    assert not np.array_equal(predicted, run.predict(images))
    for number in (np.int64(2), np.uint8(2), torch.tensor(2)):
        client = run.client(number)  # type: ignore[arg-type]
        assert (client.number, client.accuracy) == (2, expected.accuracy)
        assert np.array_equal(run.predict(images, client=number), predicted)  # type: ignore[arg-type]
    for wrong in (2.0, "2", True, None):
        with pytest.raises(fl.UserError, match=f"client {wrong!r} is not one of the 8 clients"):
            run.client(wrong)  # type: ignore[arg-type]


def test_images() -> tuple[np.ndarray, np.ndarray]:
    """The raw test images of the tiny data set and their classes."""
    with np.load(talk.write_tiny(Path("images.npz"))) as arrays:
        return arrays["x_test"], arrays["y_test"]


test_images.__test__ = False  # type: ignore[attr-defined]


@pytest.mark.parametrize("folder", [None, "run"])
def test_predictions_for_raw_images(folder: str | None, desk: Path) -> None:
    run = experiment(method="ditto").run(folder)
    images, labels = test_images()
    assert images.dtype == np.uint8
    with torch.no_grad():
        expected = run.model(run.normalise(images)).argmax(1).numpy()
    predicted = run.predict(images)
    assert run.classes == ("0", "1", "2", "3") and predicted.dtype == np.int64
    assert np.array_equal(predicted, expected)
    assert (predicted == labels).mean() == pytest.approx(run.accuracy)
    assert np.array_equal(run.predict(torch.from_numpy(images)), expected)
    personal = run.client(2)
    with torch.no_grad():
        expected = personal.model(run.normalise(images)).argmax(1).numpy()
    assert np.array_equal(run.predict(images, client=2), expected)
    assert (expected == labels).mean() == pytest.approx(personal.accuracy)


@pytest.mark.parametrize("names", [("1", "01"), ("01", "02"), ("²", "--1"), ("1" * 25, "2")])
def test_class_names_that_are_no_plain_integers_stay_as_they_are(names: tuple[str, str]) -> None:
    """As integers, 1 and 01 would be the same class."""
    x = np.random.default_rng(0).normal(size=(40, 3))
    y = np.where(x[:, 0] > 0, *names)
    settings: dict[str, Any] = {"clients": 2, "partition": "iid", "per_round": 2, "rounds": 5}
    run = fl.Experiment("fedavg", "mlp(width=8)", (x, y), lr=0.5, epochs=5, **settings).run()
    assert (run.predict(x) == y).mean() > 0.8


def test_samples_of_another_shape_are_rejected(desk: Path) -> None:
    run = experiment(rounds=1).run()
    with pytest.raises(fl.UserError, match=r"the model takes \(1, 8, 8\); pass an array"):
        run.predict(np.zeros((3, 1, 9, 9), np.uint8))


def test_the_model_is_ready_to_be_used() -> None:
    run = experiment().run()
    assert not run.model.training and run.model is run.model
    assert run.model(torch.zeros(2, 1, 8, 8)).shape == (2, 4)


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4))


@pytest.mark.parametrize("model", ["mlp(layers=1,width=4)", two_layers])
@pytest.mark.parametrize("folder", [None, "run"])
def test_weights_are_saved_as_safetensors(model: Any, folder: str | None, desk: Path) -> None:
    run = experiment(method="ditto", model=model).run(folder)
    path = run.save("new/weights.safetensors")
    assert path == Path("new/weights.safetensors")
    saved, weights = load_file(path), run.model.state_dict()
    assert saved.keys() == weights.keys()
    assert all(saved[name].equal(tensor) for name, tensor in weights.items())


def test_a_plot_is_a_figure_and_can_be_saved(desk: Path) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    run = experiment().run()
    figure = run.plot("curve.png")
    assert isinstance(figure, figures.Figure)
    (line,) = [x for x in figure.axes[0].lines if len(x.get_xdata()) == 3]
    assert list(line.get_ydata()) == pytest.approx([100 * a for a in run.history.accuracy.values()])
    assert Path("curve.png").read_bytes().startswith(b"\x89PNG")
    assert isinstance(run.plot(), figures.Figure)


def test_a_run_without_an_evaluation_says_so(desk: Path) -> None:
    interrupted(experiment(evaluate={"every": 3}), "run", 1)
    with pytest.raises(fl.UserError, match=r"has not been evaluated yet; call resume\(\)"):
        _ = fl.open("run").accuracy


def test_what_is_not_a_run_cannot_be_opened(desk: Path) -> None:
    with pytest.raises(fl.UserError, match="nowhere is not the folder of a run"):
        fl.open("nowhere")


def test_the_model_of_an_unfinished_run_comes_with_a_warning(desk: Path) -> None:
    interrupted(experiment(), "run", 2)
    with pytest.warns(FedloomWarning, match="unfinished; this is its model after round 2 of"):
        assert isinstance(fl.open("run").model, nn.Module)


def test_a_dataset_object_is_known_by_its_content_not_by_its_name(desk: Path) -> None:
    data = fl.data.load("tiny")
    turned = replace(data, train=replace(data.train, y=data.train.y.flip(0)))
    experiment(data=data, rounds=1).run("run")
    assert fl.open("run", data=data).resume().accuracy >= 0
    with pytest.raises(fl.UserError, match="holds a run with other settings: data"):
        experiment(data=turned, rounds=1).run("run")
    with pytest.raises(fl.UserError, match="data 'tiny', and this is another version of it"):
        fl.open("run", data=turned)
