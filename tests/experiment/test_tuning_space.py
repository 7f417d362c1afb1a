"""What tuning varies for a method, read from the declarations of its parameters."""

from typing import Annotated, Literal

import pytest

from fedloom.core.errors import UserError
from fedloom.core.signature import Param, parameters
from fedloom.experiment.tuning_space import parameter_range, search_space, with_values
from fedloom.methods.registry import entry, names
from fedloom.settings.config import load
from fedloom.settings.search_space import Axis


def example(
    open_: Annotated[float, Param("", above=0)] = 0.5,
    share: Annotated[float, Param("", low=0, below=1)] = 0.9,
    count: Annotated[int, Param("", low=1, high=4)] = 2,
    off: Annotated[float, Param("", low=0)] = 0.0,
    many: Annotated[int, Param("", low=1)] = 10,
    switch: bool = True,
    word: Literal["a", "b"] = "a",
    absent: Annotated[float | None, Param("", above=0)] = None,
    promise: Annotated[float, Param("", above=0, below=1, fixed=True)] = 1e-5,
) -> None: ...


@pytest.mark.parametrize(
    ("name", "expected"),
    [("open_", "0.05..5 (log)"), ("share", "0..0.99"), ("count", "1..4")]
    + [(name, "None") for name in ("off", "many", "switch", "word", "absent", "promise")],
)
def test_numbers_with_a_declared_place_are_varied(name: str, expected: str) -> None:
    assert str(parameter_range(parameters(example)[name])) == expected


@pytest.mark.parametrize("method", names())
def test_the_range_of_every_parameter_of_every_method_is_accepted(method: str) -> None:
    for parameter in parameters(entry(method).make).values():
        found = parameter_range(parameter)
        if found is not None:
            assert parameter.problem(found.low) is None and parameter.problem(found.high) is None
            assert found.low <= parameter.default <= found.high


def test_a_guarantee_of_privacy_is_never_tuned() -> None:
    tuned = {axis.setting for axis in search_space(load({"method": "fedmix"}), ())}
    assert "method.fedmix.lam" in tuned
    assert not tuned & {f"method.fedmix.{name}" for name in ("delta", "epsilon", "clip", "noise")}


@pytest.mark.parametrize("method", names())
def test_the_learning_rate_is_varied_where_it_is_used(method: str) -> None:
    """pFedMe and Per-FedAvg have learning rates of their own."""
    varied = [axis.setting for axis in search_space(load({"method": method}), ())]
    assert ("train.lr" in varied) is (method not in ("pfedme", "perfedavg"))
    assert len(varied) == len(set(varied)) and varied
    over = (Axis("train.batch", (8, 16)), Axis("train.lr", (0.1, 0.2)))
    asked = [axis.setting for axis in search_space(load({"method": method}), over)]
    assert "train.batch" in asked and ("train.lr" in asked) is ("train.lr" in varied)


def test_a_method_with_nothing_to_vary_is_rejected() -> None:
    given = {name: p.default for name, p in parameters(entry("pfedme").make).items()}
    with pytest.raises(UserError, match="'pfedme' has nothing to vary"):
        search_space(load({"method": {"name": "pfedme", "pfedme": given}}), ())


def test_what_the_user_has_fixed_stays() -> None:
    raw = {"method": "fedprox(mu=0.3)+fedavgm"}
    config = load(raw)
    settings = [axis.setting for axis in search_space(config, ())]
    assert settings == ["train.lr", "method.fedavgm.beta", "method.fedavgm.lr"]
    changed = load(with_values(raw, config, (("train.lr", 0.2), ("method.fedavgm.beta", 0.5))))
    assert [dict(spec.args) for spec in changed.method_specs] == [{"mu": 0.3}, {"beta": 0.5}]
    assert changed.train.lr == 0.2
