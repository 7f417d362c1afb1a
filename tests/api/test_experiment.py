"""`Experiment`: settings by keyword, and methods and models given as Python objects."""

import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import fedloom as fl
from api.tiny import experiment, sha
from cli import talk
from fedloom.core.warn import FedloomWarning
from fedloom.experiment.callbacks import RunStart
from fedloom.experiment.prepare import prepare
from fedloom.settings.config import load


def test_keywords_are_settings() -> None:
    """Short names as on the command line, whole tables, and everything else by its name."""
    made = fl.Experiment(
        "fedprox(mu=0.1)",
        "mlp(width=4)",
        "tiny",
        partition="iid",
        clients=8,
        per_round=2,
        rounds=5,
        seed=3,
        lr=0.2,
        batch=10,
        epochs=2,
        engine="inprocess",
        workers=1,
        device="cpu",
        train={"momentum": 0.9},
        evaluate={"every": 5},
        dtype="float64",
        checkpoint_every=2,
    )
    assert made.config == load(
        {
            "method": "fedprox(mu=0.1)",
            "model": "mlp(width=4)",
            "data": {"name": "tiny", "partition": "iid", "clients": 8},
            "sample": {"per_round": 2},
            "rounds": 5,
            "seed": 3,
            "train": {"lr": 0.2, "batch": 10, "epochs": 2, "momentum": 0.9},
            "engine": "inprocess",
            "workers": 1,
            "device": "cpu",
            "evaluate": {"every": 5},
            "dtype": "float64",
            "checkpoint_every": 2,
        }
    )
    assert repr(made) == "<Experiment fedprox on tiny, seed 3>"
    assert made.label == "fedprox(mu=0.1)"


def test_settings_is_no_name_of_a_setting() -> None:
    with pytest.raises(fl.UserError, match="no setting 'settings'"):
        fl.Experiment(settings={"rounds": 1})
    with pytest.raises(fl.UserError, match="no setting 'settings'"):
        fl.Experiment().replace(settings={"rounds": 1})


def test_what_is_left_out_has_the_defaults() -> None:
    assert fl.Experiment().config == load({})


def test_the_same_run_as_the_command_line(desk: Path) -> None:
    words = ("--method", "feddyn(alpha=0.05)", "--seed", 2)
    assert (
        sha(experiment(method="feddyn(alpha=0.05)", seed=2).run())
        == (talk.run(desk / "cli", *words)["weights_sha256"])
    )


def test_replace_makes_another_experiment() -> None:
    first = experiment(method="fedprox", lr=0.2, seed=4)
    second = first.replace(method="scaffold", rounds=7)
    assert (second.config.title, second.config.rounds) == ("scaffold", 7)
    assert (second.config.train.lr, second.config.seed) == (0.2, 4)
    assert (first.config.title, first.config.rounds) == ("fedprox", 3)
    assert first.replace(lr=None).config.train.lr == load({}).train.lr
    assert first.replace(method=None).config.title == "fedavg"


def test_wrong_settings_are_all_named_when_the_experiment_is_made() -> None:
    with pytest.raises(fl.UserError) as error:
        experiment(rouns=3, lr=-1, dtype="float16")
    message = str(error.value)
    assert message.startswith("Experiment: 3 problems")
    for piece in ("no setting 'rouns'; did you mean 'rounds'?", "train.lr=-1", "dtype='float16'"):
        assert piece in message


def test_check_names_everything_that_is_wrong_and_trains_nothing(desk: Path) -> None:
    with pytest.raises(fl.UserError) as error:
        experiment(method="fedporx", model="mlpp", partition="dirichle(alpha=1)").check()
    for piece in ("did you mean 'fedprox'?", "did you mean 'mlp'?", "did you mean 'dirichlet'?"):
        assert piece in str(error.value)
    with pytest.raises(fl.UserError) as error:
        experiment(per_round=9, guard={"min_replies": 10}).check()
    assert "2 problems" in str(error.value)
    for piece in ("sample.per_round=9 is more than the 8 clients", "guard.min_replies=10"):
        assert piece in str(error.value)
    experiment(engine="pool").check()
    assert list(desk.iterdir()) == []


def term(step: fl.Step) -> torch.Tensor:
    return 0.1 * step.logits.square().mean()


def test_a_method_object_equals_its_name() -> None:
    named = experiment(method="fedprox(mu=0.3)+fedavgm")
    made = experiment(method=fl.method("fedprox", mu=0.3) + fl.method("fedavgm"))
    assert made.config == named.config and made.inputs.values == {}
    assert sha(made.run()) == sha(named.run())


def test_a_custom_method_changes_the_training() -> None:
    custom = fl.Method("quiet", fl.Phase(terms=term))
    alone, joined = experiment(method=custom), experiment(method=fl.method("fedprox") + custom)
    assert alone.config.method["name"].startswith("python:quiet-") and alone.label == "quiet"
    assert joined.label == "fedprox+quiet"
    plain, prox = experiment(), experiment(method="fedprox")
    assert len({sha(e.run()) for e in (alone, joined, plain, prox)}) == 4
    nothing = fl.Method("nothing", fl.Phase(terms=lambda step: 0 * step.ce))
    assert sha(experiment(method=nothing).run()) == sha(plain.run())


def test_a_function_that_returns_a_method(user: ModuleType) -> None:
    by_name = experiment(method="user_module:confident").run()
    given = experiment(method=user.confident)
    assert given.config.method["name"] == "user_module:confident"
    assert sha(given.run()) == sha(by_name) != sha(experiment().run())
    weighted = experiment(method=fl.method(user.confident, weight=0.0))
    assert weighted.config.method["user_module:confident"] == {"weight": 0.0}
    assert sha(weighted.run()) == sha(experiment().run())
    local = experiment(method=lambda: user.confident(weight=0.5))
    assert sha(local.run()) == sha(by_name)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (3, "method=3 is a int; pass a name, a Method, or a function that returns a Method"),
        (lambda: 3, "returned a int, not a Method"),
        (nn.Linear(1, 1), "method"),
    ],
)
def test_what_is_not_a_method_is_rejected(method: Any, message: str) -> None:
    with pytest.raises(fl.UserError, match=message):
        experiment(method=method)


def flat(classes: int = 4) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))


def test_a_model_may_be_a_lambda() -> None:
    made = experiment(model=lambda shape, classes: flat(classes))
    assert made.config.model.name.startswith("python:lambda-")
    run = made.run()
    assert isinstance(run.model, nn.Sequential) and run.model[1].weight.shape == (4, 64)
    again = experiment(model=lambda a, b: flat(b)).run()  # by position, whatever the names are
    assert sha(again) == sha(run)


def test_a_module_keeps_its_own_weights_as_the_initial_ones() -> None:
    module = flat()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    made = experiment(model=module)
    with prepare(made.config, values=made.inputs.values) as prepared:
        initial = prepared.model.state_dict()
    assert initial.keys() == {f"model.{name}" for name in before}
    assert all(initial[f"model.{name}"].equal(tensor) for name, tensor in before.items())
    run = made.run()
    after = module.state_dict()
    assert all(tensor.equal(after[name]) for name, tensor in before.items())  # a copy was trained
    assert run.model is not module and type(run.model) is type(module)
    assert not run.model.state_dict()["1.weight"].equal(before["1.weight"])
    other = experiment(model=flat())  # other weights, and so another experiment
    assert other.config.model.name != made.config.model.name and sha(other.run()) != sha(run)


@pytest.mark.parametrize("name", ["two_layers", "OneLayer", "NoArguments"])
def test_a_class_or_function_that_can_be_imported_is_stored_by_its_name(
    name: str, user: ModuleType, desk: Path
) -> None:
    made = experiment(model=getattr(user, name))
    assert made.config.model.name == f"user_module:{name}" and made.inputs.values == {}
    run = made.run("run")
    assert f'name = "user_module:{name}"' in (desk / "run/config.toml").read_text()
    assert sha(experiment(model=f"user_module:{name}").run()) == sha(run)
    assert type(run.model) is type(getattr(user, name)(*[(1, 8, 8), 4][: 2 * (name[0] != "N")]))


def test_a_function_of_a_file(user: ModuleType, desk: Path) -> None:
    made = experiment(model="user_module.py:two_layers", method="user_module.py:confident")
    assert made.config.model.name == f"{desk / 'user_module.py'}:two_layers"
    assert made.label == "user_module.py:confident"
    assert sha(made.run()) == sha(experiment(model=user.two_layers, method=user.confident).run())


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (3, "model=3 is a int; pass a name, an nn.Module, a class, a function of"),
        (lambda a: flat(), "model 'lambda' takes the parameters a; write a function of"),
        (lambda: 3, "returned a int, not a Module"),
        (flat(5), r"returns shape \(1, 5\) for one sample, and \(1, 4\) is needed"),
    ],
)
def test_what_is_not_a_model_of_the_data_is_rejected(model: Any, message: str) -> None:
    with pytest.raises(fl.UserError, match=message):
        experiment(model=model).check()


@pytest.mark.posix
def test_importable_objects_have_the_same_bits_in_the_pool(user: ModuleType) -> None:
    made = experiment(model=user.two_layers, method=user.confident)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedloomWarning)
        here = made.replace(engine="inprocess").run()
        there = made.replace(engine="pool", workers=1).run()
    assert sha(there) == sha(here)


@pytest.mark.posix
def test_other_objects_run_in_this_process_with_a_warning_that_names_them() -> None:
    quiet = fl.Method("quiet", fl.Phase(terms=term))
    made = experiment(method=fl.method("fedprox") + quiet, model=lambda shape, classes: flat())
    with pytest.warns(FedloomWarning) as caught:
        there = made.replace(engine="pool").run()
    (warning,) = [w for w in caught if w.category is FedloomWarning]
    message = str(warning.message)
    assert "cannot import method 'quiet' and model 'lambda'" in message
    assert "running in-process" in message and "Put them into a module" in message
    assert Path(warning.filename).name == Path(__file__).name  # the line of the user's code
    with warnings.catch_warnings():
        warnings.simplefilter("error", FedloomWarning)
        assert sha(made.replace(engine="inprocess").run()) == sha(there)
        assert sha(made.run()) == sha(there)  # auto does not need to be told


class Names(fl.Callback):
    """The names of its methods in the order in which they are called, and with which rounds."""

    def __init__(self, calls: list[str], name: str) -> None:
        self.calls, self.name = calls, name

    def on_start(self, start: RunStart) -> None:
        self.calls.append(f"{self.name} start {start.completed}/{start.rounds}")

    def on_round(self, record: fl.RoundRecord) -> None:
        self.calls.append(f"{self.name} round {record.round}")

    def on_end(self, result: fl.RunResult) -> None:
        self.calls.append(f"{self.name} end {result.rounds}")


def test_callbacks_are_called_in_order() -> None:
    calls: list[str] = []
    experiment(rounds=2).run(callbacks=[Names(calls, "a"), Names(calls, "b")])
    assert calls == [
        "a start 0/2",
        "b start 0/2",
        "a round 1",
        "b round 1",
        "a round 2",
        "b round 2",
        "a end 2",
        "b end 2",
    ]


@pytest.mark.parametrize("wrong", [[print], [fl.Progress], fl.Progress(), ["progress"]])
def test_what_is_no_callback_is_refused_and_leaves_no_folder(wrong: Any, desk: Path) -> None:
    with pytest.raises(fl.UserError, match=r"callback.* pass a list of objects of classes"):
        experiment(rounds=1).run("run", callbacks=wrong)
    assert not Path("run").exists()


def test_the_package_exports_what_it_lists() -> None:
    assert all(getattr(fl, name) is not None for name in fl.__all__)
    assert set(fl.__all__) - {"__version__"} <= set(dir(fl))
    with pytest.raises(AttributeError, match="module 'fedloom' has no attribute 'Experimet'"):
        fl.Experimet  # noqa: B018


def test_an_edited_function_is_not_taken_for_the_one_that_made_the_folder(desk: Path) -> None:
    def method(weight: float) -> fl.Method:
        return fl.Method("mine", fl.Phase(terms=lambda step: weight * step.logits.square().mean()))

    experiment(method=method(0.1)).run("run")
    assert experiment(method=method(0.1)).run("run").config.title == "mine"
    with pytest.raises(fl.UserError, match=r"holds a run with other settings: method\.name is"):
        experiment(method=method(0.2)).run("run")


def test_a_model_with_other_weights_each_time_is_rejected(desk: Path) -> None:
    draws = iter(range(100))

    def unseeded(shape: tuple[int, ...], classes: int) -> nn.Module:
        module = flat(classes)
        nn.init.constant_(next(module.parameters()), float(next(draws)))
        return module

    with pytest.raises(
        fl.UserError, match="'unseeded' has different initial weights each time it is"
    ):
        experiment(model=unseeded).run()


def test_modules_are_told_apart_by_weights_layers_and_code() -> None:
    def squashed(power: float) -> nn.Module:
        class Squashed(nn.Sequential):
            def forward(self, x: torch.Tensor) -> Any:
                return super().forward(x) ** power

        torch.manual_seed(0)
        return Squashed(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 4))

    one, dropping, other = squashed(1.0), squashed(1.0), squashed(2.0)
    dropping[1].p = 0.1
    names = [experiment(model=m).config.model.name for m in (one, one, dropping, other)]
    assert names[0] == names[1] and len(set(names)) == 3
