"""What tuning may vary for a method: settings that all methods share, and its own parameters.

A method's parameter is varied if it is a number whose declaration says where: between both bounds,
or without an upper one from a tenth of the default to ten times it. What the user has given a value
stays as it is, and so do switches, names and requirements such as a guarantee of privacy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedloom.core.errors import UserError, raise_all, unknown_name
from fedloom.core.signature import Parameter, parameters
from fedloom.experiment.build_solver import uses_learning_rate
from fedloom.experiment.prepare import check_names
from fedloom.methods.registry import entry
from fedloom.settings.config import DEFAULTS, Config, load
from fedloom.settings.overrides import overlay
from fedloom.settings.search_space import Axis, Combination, Range, check_axes

FACTOR = 10  # how far from its default a number without bounds may go, up and down
EDGE = 0.01  # how far from a bound that it must not reach a number stays, as a share of the range
OWN = "method."  # where the names of methods' parameters begin


def check_over(over: Sequence[Axis], configs: Sequence[Config]) -> None:
    """Raise for what tuning must not vary, and for parameters of methods that are not tuned."""
    check_axes(over)
    methods = sorted({spec.name for config in configs for spec in config.method_specs})
    for axis in over:
        if not axis.setting.startswith((OWN, "train.")):
            raise UserError(
                f"--over {axis.setting} would change the task, not how a method trains; "
                "vary train.* or method.NAME.PARAMETER, and use fedloom sweep for the rest"
            )
        if axis.setting.startswith(OWN) and (name := _owner(axis)) not in methods:
            raise unknown_name("tuned method", name, methods)


def search_space(config: Config, over: Sequence[Axis]) -> list[Axis]:
    """The axes of a method: those shared by all, then its own.

    Without a shared setting in `over` it is the learning rate; a method that has its own does not
    get train.lr.
    """
    shared = [axis for axis in over if not axis.setting.startswith(OWN)]
    shared = shared or [Axis("train.lr", around(config.train.lr))]
    if not uses_learning_rate(config.train, check_names(config)):
        shared = [axis for axis in shared if axis.setting != "train.lr"]
    given = {axis.setting: axis for axis in over}
    own = []
    for spec in config.method_specs:
        for name, parameter in parameters(entry(spec.name).make).items():
            setting = f"{OWN}{spec.name}.{name}"
            values = None if name in spec.args else parameter_range(parameter)
            if setting in given:
                own.append(given.pop(setting))
            elif values is not None:
                own.append(Axis(setting, values))
    unknown = [axis for axis in given.values() if _is_of(axis, config)]
    axes = [*shared, *own, *unknown]  # an unknown one is reported when its values are checked
    if not axes:
        names = "+".join(spec.name for spec in config.method_specs)
        raise UserError(
            f"method '{names}' has nothing to vary: it does not use train.lr, and all its own "
            "parameters are given; leave one out, or add --over"
        )
    return axes


def parameter_range(parameter: Parameter) -> Range | None:
    """The numbers to try for a parameter; None if it should stay as it is."""
    about, default = parameter.about, parameter.default
    is_number = isinstance(default, int | float) and not isinstance(default, bool)
    if about.fixed or parameter.choices or not is_number:
        return None
    low = about.above if about.low is None else about.low
    high = about.below if about.high is None else about.high
    if low is not None and high is not None:
        if float not in parameter.kinds:
            return Range(int(low), int(high))
        edge = EDGE * (high - low)
        return Range(
            float(low if about.low is not None else low + edge),
            float(high if about.high is not None else high - edge),
        )
    if float not in parameter.kinds or default <= 0:
        return None
    wide = around(default)
    return wide if low is None else Range(max(wide.low, float(low)), wide.high)


def around(value: float) -> Range:
    """From a tenth of a positive number to ten times it.

    >>> print(around(0.05))
    0.005..0.5 (log)
    """
    return Range(float(f"{value / FACTOR:.4g}"), float(f"{value * FACTOR:.4g}"))


def with_values(raw: Mapping[str, Any], config: Config, combination: Combination) -> dict[str, Any]:
    """The settings of a method with a combination of values from its search space.

    Parameters are put into the method's table, since the name of a user's method may hold dots.
    """
    names = "+".join(spec.name for spec in config.method_specs)
    table: dict[str, Any] = {"name": names}
    for spec in config.method_specs:
        table |= {spec.name: dict(spec.args)} if spec.args else {}
    shared = []
    for setting, value in combination:
        if not setting.startswith(OWN):
            shared.append((setting, value))
            continue
        name, _, parameter = setting.removeprefix(OWN).rpartition(".")
        table.setdefault(name, {})[parameter] = value
    return overlay(raw, [("method", table), *shared], DEFAULTS)


def check_space(raw: Mapping[str, Any], config: Config, axes: Sequence[Axis]) -> None:
    """Raise for every value of the axes, or end of a range, that the settings do not accept."""
    problems: dict[str, None] = {}
    for axis in axes:
        values = axis.values
        for value in (values.low, values.high) if isinstance(values, Range) else values:
            try:
                check_names(load(with_values(raw, config, ((axis.setting, value),))))
            except UserError as error:
                problems[str(error)] = None
    raise_all(problems, "--over")


def _owner(axis: Axis) -> str:
    """The method whose parameter an axis is."""
    return axis.setting.removeprefix(OWN).rpartition(".")[0]


def _is_of(axis: Axis, config: Config) -> bool:
    is_own = axis.setting.startswith(OWN)
    return is_own and _owner(axis) in [spec.name for spec in config.method_specs]
