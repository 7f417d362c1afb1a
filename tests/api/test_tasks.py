"""Numbers, labels and tokens from Python: what a user passes, gets back, and is told."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedloom as fl
from fedloom.reports.client_scores import by_class

DRAWS = np.random.default_rng(0)
X = DRAWS.normal(size=(120, 4)).astype(np.float32)
CLIENTS = np.repeat(["a", "b", "c"], 40)
NUMBERS = 140 + X @ np.array([9.0, -6.0, 4.0, 0.0]) + DRAWS.normal(size=120)
LABELS = (X[:, :3] + DRAWS.normal(size=(120, 3)) / 3 > 0).astype(int)
TOKENS = np.arange(600).reshape(100, 6) % 7
TARGETS = {"regression": NUMBERS, "multilabel": LABELS}
every_task = pytest.mark.parametrize("task", TARGETS)


def experiment(kind: str, **given: Any) -> fl.Experiment:
    settings: dict[str, Any] = {
        "model": "mlp(width=8)",
        "data": (X, TARGETS[kind]),
        "client_ids": CLIENTS,
        "task": kind,
        "per_round": 3,
        "rounds": 3,
        "engine": "inprocess",
    }
    return fl.Experiment(**{**settings, **given})


def huber(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.huber_loss(outputs.view_as(targets), targets)


@every_task
@pytest.mark.parametrize("method", ["scaffold", "ditto", "fedrep+fedprox"])
def test_the_pool_and_a_resumed_run_have_the_same_bits(
    task: str, method: str, tmp_path: Path
) -> None:
    whole = experiment(task, method=method).run()
    pool = experiment(task, method=method, engine="pool", workers=2).run()
    assert pool.result.weights_sha256 == whole.result.weights_sha256
    assert pool.result.metrics == whole.result.metrics

    class Stop(fl.Callback):
        def on_round(self, record: fl.RoundRecord) -> None:
            if record.round == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        experiment(task, method=method).run(tmp_path / "run", callbacks=[Stop()])
    resumed = experiment(task, method=method).run(tmp_path / "run")
    assert resumed.result.weights_sha256 == whole.result.weights_sha256
    assert resumed.result.metrics == whole.result.metrics
    assert resumed.result.personal_models == whole.result.personal_models


def test_predictions_are_in_the_units_of_the_data() -> None:
    run = experiment("regression", rounds=10, lr=0.1, epochs=10).run()
    predicted = run.predict(X)
    assert predicted.shape == (120,)
    assert 120 < predicted.mean() < 160
    assert np.corrcoef(predicted, NUMBERS)[0, 1] > 0.9
    assert np.abs(run.predict(X, client=1) - predicted).max() == 0  # FedAvg has one model


def test_the_scale_of_targets_changes_nothing_but_the_units() -> None:
    """Grams or kilograms: the same training, up to rounding of the targets."""
    large = experiment("regression", data=(X, 1024 * NUMBERS)).run()
    small = experiment("regression").run()
    assert large.accuracy == pytest.approx(small.accuracy, abs=1e-4)
    ratio = large.result.metrics["mae"] / small.result.metrics["mae"]
    assert ratio == pytest.approx(1024, rel=1e-4)


def test_without_standardising_the_model_sees_the_numbers_as_they_are() -> None:
    """Targets of mean 0 and deviation 1 need no scaling: the same run, up to rounding."""
    scaled = (NUMBERS - NUMBERS.mean()) / NUMBERS.std()
    raw = experiment("regression", data=(X, scaled), **{"data.standardise": False}).run()
    assert raw.accuracy == pytest.approx(experiment("regression").run().accuracy, abs=0.01)
    assert abs(raw.predict(X).mean()) < 1


def test_probabilities_of_labels() -> None:
    predicted = experiment("multilabel", rounds=10, lr=0.5, epochs=10).run().predict(X)
    assert predicted.shape == LABELS.shape
    assert ((predicted > 0.5) == LABELS).mean() > 0.85


def test_a_loss_of_the_user_by_name_and_as_a_value() -> None:
    named = experiment("regression", loss=huber)
    assert named.config.loss.endswith("test_tasks.py:huber") or ":huber" in named.config.loss
    value = experiment("regression", loss=lambda z, y: huber(z, y))
    plain = experiment("regression").run()
    ours = named.run()
    assert ours.result.weights_sha256 == value.run().result.weights_sha256
    assert ours.result.weights_sha256 != plain.result.weights_sha256


@pytest.mark.parametrize("settings", [{}, {"dtype": "float64", "data.standardise": False}])
def test_a_loss_of_the_user_gets_targets_in_the_type_of_the_outputs(settings: Any) -> None:
    """torch's Huber loss has no gradient if the two types differ."""
    both = np.stack([NUMBERS, NUMBERS / 100], axis=1)
    types = set()

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        types.add((outputs.dtype, targets.dtype))
        return huber(outputs, targets)

    for y in (NUMBERS, both):
        assert experiment("regression", data=(X, y), loss=loss, **settings).run().result.rounds == 3
    wanted = getattr(torch, settings.get("dtype", "float32"))
    assert types == {(wanted, wanted)}


def test_functions_of_torch_may_be_passed_as_loss_and_metric(tmp_path: Path) -> None:
    """Settings may not name them, so they are kept as values."""
    given = {"loss": F.smooth_l1_loss, "metrics": [F.l1_loss]}
    run = experiment("regression", **given).run(tmp_path / "run")
    own = experiment("regression", loss=lambda z, y: F.smooth_l1_loss(z, y)).run()
    assert run.result.weights_sha256 == own.result.weights_sha256
    mae = experiment("regression", loss=F.smooth_l1_loss).run().result.metrics["mae"]
    assert run.result.metrics["l1_loss"] == pytest.approx(mae)
    assert fl.open(tmp_path / "run", **given).result.metrics == run.result.metrics
    said = r"cannot import loss 'smooth_l1_loss' and metric 'l1_loss' \("
    with pytest.warns(UserWarning, match=said):
        experiment("regression", engine="pool", workers=1, **given).run()


def test_a_loss_that_is_none() -> None:
    with pytest.raises(fl.UserError, match="loss=3 is a int; pass a function"):
        experiment("regression", loss=3)
    with pytest.raises(fl.UserError, match=r"loss=MSELoss is a class; .* loss=MSELoss\(\)"):
        experiment("regression", loss=nn.MSELoss)
    with pytest.raises(fl.UserError, match="loss='huber' is not a function"):
        experiment("regression", loss="huber").check()


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (lambda z, y: 3.0, r"returns a float, which has no gradient: .* without \.item"),
        (lambda z, y: None, "returns None, which has no gradient"),
        (lambda z, y: huber(z, y).detach(), "does not depend on the outputs"),
        (lambda z, y: (z.view_as(y) - y) ** 2, r"returns shape \(.*\): return its .mean"),
        (lambda z, y: 1 / 0, r"fails on outputs of shape \(.*\) and .*: ZeroDivisionError: div"),
        (lambda z, y: huber(z, y) / 0, "is inf on outputs of the new model, so no client could"),
        (nn.PReLU(), r"has weights of its own \('weight'\), .* freeze them with requires_grad_\(F"),
        (lambda z: z.mean(), r"TypeError: .*; a loss gets \(outputs, targets\) of a batch and"),
    ],
)
def test_a_loss_that_cannot_be_minimised_is_refused_before_round_0(loss: Any, said: str) -> None:
    with pytest.raises(fl.UserError, match=rf"loss '.*' .*{said}"):
        experiment("regression", loss=loss).run()


def test_a_loss_may_have_weights_that_stay() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = nn.Parameter(torch.tensor(0.5), requires_grad=False)

        def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
            return self.factor * huber(outputs, targets)

    assert experiment("regression", loss=Scaled(), rounds=1).run().result.rounds == 1


def in_place(outputs: Tensor, targets: Tensor) -> Tensor:
    targets.mul_(0.8).add_(0.1)
    return outputs.mul_(0.5).sub_(targets).square().mean()


def on_copies(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs * 0.5 - (targets * 0.8 + 0.1)).square().mean()


@every_task
@pytest.mark.parametrize("settings", [{}, {"train": {"sam": 0.05}}])
def test_a_loss_may_change_what_it_gets(task: str, settings: Any) -> None:
    """Neither the predictions nor the data of an evaluation change with it."""
    given = {**settings, "data.standardise": False, "lr": 1e-4}
    one, other = (experiment(task, loss=loss, **given).run() for loss in (in_place, on_copies))
    assert one.result.weights_sha256 == other.result.weights_sha256
    assert one.result.metrics == other.result.metrics
    assert [r.test_loss for r in one.history] == [r.test_loss for r in other.history]


def test_an_evaluation_that_fails_names_no_client() -> None:
    def fails_later(outputs: Tensor, targets: Tensor) -> Tensor:
        if not outputs.requires_grad:  # in training they do
            raise ValueError("only for training")
        return huber(outputs, targets)

    with pytest.raises(fl.RunError) as error:
        experiment("regression", loss=fails_later).run()
    said = "of the test data: ValueError: only for training"
    assert said in str(error.value) and "client" not in str(error.value)


def test_a_metric_of_the_user_is_reported_with_the_others() -> None:
    def worst(predictions: Tensor, targets: Tensor) -> float:
        return float((predictions.view_as(targets) - targets).abs().max())

    run = experiment("regression", metrics={"largest_error": worst}).run()
    assert list(run.result.metrics) == ["largest_error", "r2"]
    assert list(run.client(0).metrics) == ["largest_error", "r2"]
    assert run.client(0).metrics["largest_error"] == run.result.metrics["largest_error"]


def test_functions_of_the_user_get_outputs_in_the_shape_of_the_targets() -> None:
    """As the built-in ones do: (n, 1) - (n,) would be all n * n differences."""
    metrics = {"error": lambda p, t: (p - t).abs().mean(), "mae": "mae"}
    settings = {"rounds": 5, "lr": 0.1, "epochs": 5}
    own = experiment(
        "regression", metrics=metrics, loss=lambda z, t: ((z - t) ** 2).mean(), **settings
    ).run()
    assert own.result.metrics["error"] == pytest.approx(own.result.metrics["mae"], rel=1e-5)
    plain = experiment("regression", **settings).run()
    assert own.accuracy == pytest.approx(plain.accuracy, abs=1e-4)


@pytest.mark.parametrize(
    ("metrics", "sentence"),
    [
        ({"r2": lambda p, t: 1.0}, "metric 'r2' is built in for regression.*such as own_r2"),
        ({"rmse": "mae"}, "metric 'rmse' is built in for regression"),
        ([lambda p, t: 1.0, lambda p, t: 2.0], "'lambda' 2 times; give each a name of its own"),
        ({"err": "no"}, "no metric 'err=no'"),
        ({"err": "mine.py:f"}, "which is reported as the name of the function"),
        ({"": "mae"}, "metric '=mae' has no name before the =; write NAME=mae, or mae"),
    ],
)
def test_names_of_metrics_that_cannot_be_kept(metrics: Any, sentence: str) -> None:
    with pytest.raises(fl.UserError, match=sentence):
        experiment("regression", metrics=metrics).check()


def test_what_is_no_table_or_task_is_refused_in_words() -> None:
    with pytest.raises(fl.UserError, match="evaluate"):
        experiment("regression", metrics=["mae"], evaluate="own")
    with pytest.raises(fl.UserError, match=r"no task '\['regression'\]'"):
        experiment("regression", task=["regression"])


def test_a_built_in_metric_is_reported_under_the_name_it_was_given(tmp_path: Path) -> None:
    given = {"err": "mae", "mae": "mae"}
    run = experiment("regression", metrics=given).run(tmp_path / "run")
    assert run.result.metrics["err"] == run.result.metrics["mae"]
    stored = fl.open(tmp_path / "run")
    assert list(stored.result.metrics) == ["err", "mae", "r2"]


def test_a_metric_that_fails_is_told_the_shapes_that_it_got() -> None:
    shapes = []

    def broken(predictions: Tensor, targets: Tensor) -> float:
        shapes.append((tuple(predictions.shape), tuple(targets.shape)))
        raise ValueError("broken")

    with pytest.raises(fl.UserError) as error:
        experiment("regression", metrics=[broken]).run()
    assert [len(shape) for shape in shapes[0]] == [1, 1]
    of_both = f"predictions of shape {shapes[0][0]} and targets of shape {shapes[0][1]}"
    assert f"metric 'broken' failed on {of_both}: ValueError: broken" in str(error.value)


def test_a_metric_that_changes_what_it_gets_spoils_no_other() -> None:
    def spoil(predictions: Tensor, targets: Tensor) -> float:
        predictions.zero_(), targets.zero_()
        return 0.0

    run = experiment("regression", metrics={"spoil": spoil, "mae": "mae"}).run()
    assert run.result.metrics["mae"] == experiment("regression").run().result.metrics["mae"]


@every_task
def test_the_model_of_a_client_and_its_scores(task: str) -> None:
    client = experiment(task, method="finetune").run().client(1)
    assert client.mean_class_recall is None and client.samples == 32
    score = {"regression": "r2", "multilabel": "label_accuracy"}[task]
    assert client.accuracy == client.metrics[score]


class Last(nn.Module):
    """Scores for the last position only."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(7, 4), nn.Linear(4, 7)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embedding(x))[:, -1]


class Every(Last):
    """Scores for every position."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embedding(x))


def tokens(model: type[nn.Module]) -> fl.Experiment:
    data = TOKENS[:, :-1], TOKENS[:, 1:]
    settings = {"task": "next-token", "partition": "iid", "clients": 4, "per_round": 4}
    return fl.Experiment(model=model, data=data, rounds=5, lr=5.0, **settings)


def test_tokens_need_a_score_at_every_position() -> None:
    with pytest.raises(fl.UserError, match=r"returns shape \(1, 7\).* and \(1, 5, 7\) is needed"):
        tokens(Last).check()
    run = tokens(Every).run()
    assert run.accuracy > 0.9  # the next number follows from the last one
    assert run.predict(TOKENS[:2, :-1]).tolist() == TOKENS[:2, 1:].tolist()
    small = TOKENS[:2, :-1].astype(np.uint8)  # training takes tokens of any integer type, too
    assert run.predict(small).tolist() == TOKENS[:2, 1:].tolist()
    assert run.predict(torch.from_numpy(small)).tolist() == TOKENS[:2, 1:].tolist()


@pytest.mark.filterwarnings("error")
def test_samples_that_are_no_tokens_of_the_model() -> None:
    run, few = tokens(Every).replace(rounds=1).run(), TOKENS[:2, :-1]
    for wrong, said in ((few + 100, "IndexError"), (few / 2, "float.*RuntimeError: Expected")):
        with pytest.raises(fl.UserError, match=rf"the model fails on .*{said}.* like those of"):
            run.predict(wrong)
    read_only = few.copy()
    read_only.flags.writeable = False
    assert (run.predict(read_only) == run.predict(few)).all()


def test_predict_takes_numbers_of_any_type_that_training_takes() -> None:
    x = np.arange(40.0).reshape(20, 2) / 40
    settings = {"partition": "iid", "clients": 2, "per_round": 2, "rounds": 1}
    run = fl.Experiment("fedavg", "mlp(width=4)", (x, np.arange(20) % 2), **settings).run()
    same = (x.astype(np.longdouble), x.astype(">f4"), torch.tensor(x, requires_grad=True))
    assert all((run.predict(samples) == run.predict(x)).all() for samples in same)
    assert len(run.predict(torch.tensor(x).bfloat16())) == 20 and len(run.predict(x[:0])) == 0
    hole = np.where(x == x[3, 1], np.nan, x)
    for wrong, said in (
        (hole, "NaN or infinity in sample 3"),  # was a class
        (x * 1e300, "NaN or infinity in sample 0"),
        (np.ma.masked_invalid(hole), r"1 masked values \(the first is in sample 3\)"),
        (x.astype(str), "values of type <U32, expected numbers"),
    ):
        with pytest.raises(fl.UserError, match=f"the samples: found {said}"):
            run.predict(wrong)


def test_predict_takes_volumes_as_fractions_or_bytes_as_it_takes_images() -> None:
    volumes = np.random.default_rng(0).integers(0, 255, (20, 1, 4, 4, 4), dtype=np.uint8)
    settings = {"partition": "iid", "clients": 2, "per_round": 2, "rounds": 1}
    run = fl.Experiment("fedavg", "mlp(width=4)", (volumes, np.arange(20) % 2), **settings).run()
    for samples in (volumes / 255, volumes.astype(float), volumes[:, 0]):
        assert (run.normalise(samples) == run.normalise(volumes)).all()
    with pytest.raises(fl.UserError, match="found pixels from -1 to"):
        run.predict(volumes - 1.0)


def test_every_client_needs_a_token_to_predict() -> None:
    targets = (TOKENS + 1) % 7
    targets[:50] = -100
    own = {"clients": None, "partition": None, "client_ids": np.arange(100) // 25}
    every = tokens(Every).replace(data=(TOKENS, targets), test=(TOKENS, TOKENS), **own)
    with pytest.raises(fl.UserError, match=r"client 0 \(and 1 more\) has no token to predict"):
        every.check()
    targets[0, 0] = targets[49, 5] = 1
    every.replace(data=(TOKENS, targets)).check()


def three_times(outputs: Tensor, targets: Tensor) -> Tensor:
    return 3 * F.cross_entropy(outputs.flatten(0, 1), targets.flatten())


@pytest.mark.posix
@pytest.mark.parametrize("engine", [{}, {"engine": "pool", "workers": 1}])
def test_perplexity_is_of_the_cross_entropy_whatever_the_loss(engine: Any) -> None:
    """Three times the loss at a third of the learning rate is the same training."""
    plain = tokens(Every).replace(lr=3.0, rounds=2).run().result
    own = tokens(Every).replace(lr=1.0, rounds=2, loss=three_times, **engine).run().result
    assert own.test_loss == pytest.approx(3 * plain.test_loss, rel=1e-4)
    assert own.metrics["perplexity"] == pytest.approx(plain.metrics["perplexity"], rel=1e-4)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"method": "kd"},
            "method 'kd' is for classification and next-token, and the task is regression",
        ),
        ({"client_ids": None}, r"data.partition=dirichlet\(alpha=0.3\) splits samples by class"),
        ({"data": {"per_class": 5}}, "selects samples by class"),
        ({"task": "classification"}, "set task=regression"),
        ({"task": "multilabel"}, "give one column per label"),
        ({"task": "rank"}, "no task 'rank'"),
        ({"model": nn.Linear(4, 3)}, r"returns shape \(1, 3\).* and \(1, 1\) is needed"),
    ],
)
def test_what_does_not_fit_is_said_before_round_0(given: dict[str, Any], sentence: str) -> None:
    if "data" in given:
        given = {"data": "crowd-3", "client_ids": None, "partition": "user"}
        sentence = "targets of 'crowd-3' are classes, for task=classification"
    with pytest.raises(fl.UserError, match=sentence):
        experiment("regression", **given).check()


def test_one_test_sample_is_too_few_for_r2() -> None:
    with pytest.raises(
        fl.UserError, match=r"needs at least two test samples, and '.*' has 1; prov"
    ):
        experiment("regression", test=(X[:1], NUMBERS[:1])).check()


def test_settings_that_look_at_classes_are_refused_together() -> None:
    settings = {"data": {"name": "crowd-3", "per_class": 5, "longtail": 10}, "client_ids": None}
    with pytest.raises(fl.UserError) as caught:
        experiment("regression", **settings).check()
    for part in ("data.partition=", "data.per_class=5", "data.longtail=10"):
        assert part in str(caught.value)


def test_a_model_may_return_a_vector_for_a_single_number() -> None:
    model = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))
    assert experiment("regression", model=model).run().predict(X).shape == (120,)


def test_several_numbers_at_once() -> None:
    both = np.stack([NUMBERS, NUMBERS / 100], axis=1)
    run = experiment("regression", data=(X, both)).run()
    predicted = run.predict(X)
    assert predicted.shape == both.shape
    assert np.allclose(predicted.mean(0), both.mean(0), rtol=0.1)


def test_vectorised_clients_learn_numbers_and_labels_but_no_tokens() -> None:
    for task in TARGETS:
        exact = experiment(task).run()
        fast = experiment(task, engine="vectorised").run()
        assert fast.accuracy == pytest.approx(exact.accuracy, abs=1e-4)
    with pytest.warns(UserWarning, match="needs the loss of every sample"):
        tokens(Every).replace(engine="vectorised").run()
    with pytest.warns(UserWarning, match="which neither a loss of your own nor"):
        experiment("regression", loss=huber, engine="vectorised").run()


@every_task
def test_runs_are_compared_and_reported(task: str, tmp_path: Path) -> None:
    names = ("fedavg", "ditto")
    runs = {name: experiment(task, method=name).run(tmp_path / name) for name in names}
    page = fl.compare(*runs.values()).report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert {"regression": "R2", "multilabel": "label accuracy"}[task] in page
    recalls = by_class({name: [run.result.global_model] for name, run in runs.items()}, {})
    assert recalls is None or recalls.classes  # a plot of no classes cannot be drawn


@every_task
def test_a_folder_is_opened_with_the_same_data(task: str, tmp_path: Path) -> None:
    """The task is that of the run; it had to be passed again."""
    run = experiment(task).run(tmp_path / "run")
    again = fl.open(tmp_path / "run", data=(X, TARGETS[task]), client_ids=CLIENTS)
    assert np.array_equal(again.predict(X[:5]), run.predict(X[:5]))
    with pytest.raises(fl.UserError, match="another version of it; pass the same options with"):
        fl.open(tmp_path / "run", data=(X, TARGETS[task]))
