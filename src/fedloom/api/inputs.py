"""What a user passes to `Experiment`, sorted into settings (text) and values (Python objects).

An object that can be imported by name is written into the settings by that name, so that workers
and a later `fedloom resume` can import it. Any other object, such as a lambda or a function of a
notebook, is kept as a value under "python:NAME", and the run stays in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedloom.core.code_digest import code_digest
from fedloom.core.errors import UserError, did_you_mean, shown_text
from fedloom.core.method import Method
from fedloom.core.params import sha256
from fedloom.core.spec import Spec
from fedloom.core.tensor_checks import is_plain
from fedloom.core.user_code import (
    VALUE_PREFIX,
    allow,
    call_user_function,
    is_reference,
    reference_to,
)
from fedloom.core.user_modules import may_be_named
from fedloom.data.dataset import Dataset
from fedloom.data.from_python import as_dataset, content_digest
from fedloom.settings.config import Config, load
from fedloom.settings.overrides import SHORT_NAMES, merged, method_table
from fedloom.settings.plain_values import plain

DATA_OPTIONS = ("test", "client_ids", "target", "client", "kind", "channels")


@dataclass(frozen=True)
class Inputs:
    """The settings of a run, and what was passed as objects. raw: the settings before checking."""

    raw: Mapping[str, Any]
    dataset: Dataset | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def config(self) -> Config:
        return load(self.raw, "Experiment")


def collect(given: Mapping[str, Any]) -> Inputs:
    """The arguments of an Experiment as settings and values; raises if a setting is wrong.

    Code that the arguments name may run from now on: the caller has passed it.
    """
    values: dict[str, Any] = {}
    settings = dict(given)
    settings["method"] = _method(given.get("method", "fedavg"), values)
    if "model" in given:
        settings["model"] = _model(given["model"], values)
    if "loss" in given:
        settings["loss"] = _loss(given["loss"], values)
    if "metrics" in given:
        names = _metrics(settings.pop("metrics"), values)
        evaluate = settings.get("evaluate", {})
        if isinstance(evaluate, Mapping):  # anything else is refused with the other settings
            settings["evaluate"] = {**evaluate, "metrics": names}
    options = {name: settings.pop(name) for name in DATA_OPTIONS if name in settings}
    dataset = _dataset(options, given.get("data"), given.get("task", "classification"))
    if dataset is not None:
        settings["data"] = dataset.name
        if dataset.train.users is not None:
            settings.setdefault("partition", "user")
            settings.setdefault("clients", 0)
    _check_names(settings)
    raw: dict[str, Any] = {}
    for name, value in settings.items():
        path = name if isinstance(value, Mapping) else SHORT_NAMES.get(name, name)
        raw = merged(raw, _nested(path, value))
    inputs = Inputs(raw, dataset, values)
    allow(inputs.config.references)  # raises if a setting is wrong
    return inputs


def _check_names(settings: Mapping[str, Any]) -> None:
    """Raise for an object under a name that nothing has; other wrong names are told with the rest.

    As a setting it would only be refused for its type.
    """
    for name, value in settings.items():
        if SHORT_NAMES.get(name, name).partition(".")[0] in Config.model_fields:
            continue
        try:
            plain({name: value})
        except UserError:
            guess = did_you_mean(name, ["data", *DATA_OPTIONS, *Config.model_fields])
            raise UserError(
                f"there is no setting or argument '{shown_text(str(name))}'{guess}; "
                "samples and labels are passed as data=(X, y)"
            ) from None


def _nested(path: str, value: Any) -> dict[str, Any]:
    """The settings {"a": {"b": value}} for the path "a.b"."""
    for step in reversed(path.split(".")):
        value = {step: value}
    nested: dict[str, Any] = value
    return nested


def _method(method: Any, values: dict[str, Any]) -> Any:
    """A method as settings; parts that have no importable name become values."""
    if isinstance(method, str | Mapping):
        return method
    if callable(method) and not isinstance(method, Method):
        if reference := reference_to(method):
            return reference
        method = call_user_function("method", _name_of(method), Method, method, {})
    if not isinstance(method, Method):
        raise UserError(
            f"method={method!r} is a {type(method).__name__}; "
            "pass a name, a Method, or a function that returns a Method"
        )
    specs = []
    for part in method.parts:
        spec = part.spec
        if part.value is not None:
            spec = Spec(f"{spec.name}-{code_digest(part.value)}")
            values[spec.name] = part.value
        specs.append(spec)
    return method_table(specs)


def _model(model: Any, values: dict[str, Any]) -> Any:
    """A model as settings; one that has no importable name becomes a value."""
    if isinstance(model, str | Mapping | Spec):
        return model
    if isinstance(model, nn.Module):
        name = f"{VALUE_PREFIX}{type(model).__name__}-{_module_digest(model)}"
    elif callable(model):
        if reference := reference_to(model):
            return reference
        name = f"{VALUE_PREFIX}{_name_of(model)}-{code_digest(model)}"
    else:
        raise UserError(
            f"model={model!r} is a {type(model).__name__}; pass a name, an nn.Module, a class, "
            "a function of (shape, classes), or 'file.py:function'"
        )
    values[name] = model
    return {"name": name}


def _loss(loss: Any, values: dict[str, Any]) -> str:
    """A loss as a setting; a function without an importable name becomes a value."""
    if isinstance(loss, str):
        return loss
    if not callable(loss):
        raise UserError(
            f"loss={loss!r} is a {type(loss).__name__}; pass a function of (outputs, targets) that "
            "returns their mean loss"
        )
    if isinstance(loss, type):
        name = loss.__name__
        raise UserError(f"loss={name} is a class; pass an instance of it: loss={name}()")
    if reference := _nameable("loss", loss):
        return reference
    name = f"{VALUE_PREFIX}{_name_of(loss)}-{code_digest(loss)}"
    values[name] = loss
    return name


def _nameable(kind: str, function: Callable[..., Any]) -> str | None:
    """The reference to a function, if settings may name it; one of torch or numpy they may not."""
    reference = reference_to(function)
    return reference if reference is not None and may_be_named(kind, reference) else None


def _metrics(metrics: Any, values: dict[str, Any]) -> list[str]:
    """Metrics as a setting: names, and functions with or without a name of their own.

    A function that any process can import under the name that it was given is written as that
    reference; any other becomes a value.
    """
    if isinstance(metrics, str) or not isinstance(metrics, Iterable):
        raise UserError(
            f"metrics={metrics!r} is a {type(metrics).__name__}; pass a list of names and "
            "functions, or a dictionary of functions by name"
        )
    if isinstance(metrics, Mapping):
        pairs = list(metrics.items())
    else:
        pairs = [(_metric_name(metric), metric) for metric in metrics]
    names = [name for name, _ in pairs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(
            f"metrics= has '{twice[0]}' {names.count(twice[0])} times; give each a name of its "
            "own: metrics={'first': f, 'second': g}"
        )
    return [_metric(name, metric, values) for name, metric in pairs]


def _metric_name(metric: Any) -> str:
    return metric if isinstance(metric, str) else _name_of(metric)


def _metric(name: str, metric: Any, values: dict[str, Any]) -> str:
    if isinstance(metric, str):
        return _named_metric(name, metric)
    if not callable(metric) or not name.replace("-", "_").isidentifier():
        raise UserError(
            f"metric '{name}' is {metric!r}; pass a function of (predictions, targets) that "
            "returns a number, under a name of letters, digits and _"
        )
    reference = _nameable("metrics", metric)
    if reference is not None and reference.endswith(f":{name}"):
        return reference
    value = f"{VALUE_PREFIX}{name}-{code_digest(metric)}"
    values[value] = metric
    return value


def _named_metric(name: str, metric: str) -> str:
    """A metric that was given as text, as settings write it."""
    if metric in (name, f"{metric.rpartition(':')[0]}:{name}"):
        return metric
    if is_reference(metric):
        raise UserError(
            f"metric '{name}' is '{metric}', which is reported as the name of the function; "
            "call it so, or pass the function itself"
        )
    return f"{name}={metric}"


def _module_digest(model: nn.Module) -> str:
    """Tells modules apart by their layers, their weights and the code of the user's classes."""
    classes = {type(m) for m in model.modules() if not type(m).__module__.startswith("torch.")}
    ordered = sorted(classes, key=lambda cls: cls.__qualname__)
    state = model.state_dict()  # of which models/from_user.py rejects what is not a plain tensor
    plain = {n: t for n, t in state.items() if isinstance(t, Tensor) and is_plain(t)}
    drawn = {n: t for n, t in plain.items() if not is_lazy(t)}  # lazy: by the seed
    return code_digest((repr(model), sha256(drawn), *ordered))


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return "lambda" if name == "<lambda>" else name


def _dataset(options: Mapping[str, Any], data: Any, task: str) -> Dataset | None:
    """Data that were passed as an object; None if they are named, or left to the settings."""
    if data is None or isinstance(data, str | Mapping):
        if options:
            name = next(iter(options))
            raise UserError(f"{name}= describes data that are passed as an object; leave it out")
        return None
    dataset = as_dataset(data, **options, task=task)
    if isinstance(data, Dataset):  # its name could be that of other, stored data
        dataset = replace(dataset, name=f"{VALUE_PREFIX}{data.name}-{content_digest(data)[:12]}")
    return dataset
