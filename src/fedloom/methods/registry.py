"""Every method by its name.

Each module of this folder is a method, built by the function with the module's name. A module may
list other names of the method as `ALIASES`. listing.py reads what needs no import.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from fedloom.core import user_code
from fedloom.core.compose import join
from fedloom.core.errors import UserError, raise_all
from fedloom.core.learning_task import TASKS
from fedloom.core.method import Method, Part
from fedloom.core.spec import Spec, argument_problems, parameters, parse
from fedloom.methods import listing


@dataclass(frozen=True)
class Entry:
    """A registered method: its factory and the documentation of its module."""

    name: str
    make: Callable[..., Method]
    paper: str
    link: str
    text: str

    @property
    def summary(self) -> str:
        """The first line of the documentation, without the name."""
        return listing.summary(self.text)

    @property
    def needs(self) -> list[str]:
        """What it requires of a model, in words."""
        return [n.text for n in self.make().needs] or ["any model"]

    @property
    def tasks(self) -> list[str]:
        """The tasks it is meant for."""
        supported = self.make().tasks
        return [task for task in TASKS if supported is None or task in supported]

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "name": self.name,
            "paper": self.paper,
            "link": self.link,
            "summary": self.summary,
            "parameters": [p.describe() for p in parameters(self.make).values()],
            "needs": self.needs,
            "tasks": self.tasks,
        }


def names() -> list[str]:
    """The names of all methods of the package."""
    return list(listing.names())


def entry(name: str) -> Entry:
    """The method with this name or alias, or a user-defined one given as file.py:function."""
    if user_code.is_reference(name):
        make = user_code.load("method", name)
        return Entry(name, make, "user-defined", "", make.__doc__ or "")
    info = listing.describe(name)
    module = importlib.import_module(f"fedloom.methods.{info.module}")
    return Entry(info.name, getattr(module, info.module), info.paper, info.link, info.text)


def method(name: str | Callable[..., Method], **parameters: Any) -> Method:
    """A method with its parameters; add methods to combine them.

    name: a registered name, "file.py:function", or a function that returns a Method.

    >>> (method("fedprox", mu=0.1) + method("fedavgm")).name
    'fedprox+fedavgm'
    """
    if isinstance(name, str):
        first, *more = parse(name)
        user_code.allow(spec.name for spec in (first, *more))
        return build([Spec(first.name, {**first.args, **parameters}), *more])
    reference = user_code.reference_to(name)
    if reference is not None:
        user_code.allow([reference])
        return build([Spec(reference, parameters)])
    label = getattr(name, "__name__", "method")
    raise_all(argument_problems(name, parameters), f"method '{label}'")
    return user_code.call_user_function("method", label, Method, name, parameters)


def build(specs: Sequence[Spec], values: Mapping[str, Method] = MappingProxyType({})) -> Method:
    """The combined method of the specs; raises all problems at once.

    values: by name, the methods that were passed as Python objects and cannot be found by name.
    """
    entries = {s.name: entry(s.name) for s in specs if s.name not in values}
    distinct = {*(e.name for e in entries.values()), *values}
    if len(distinct) < len(specs):
        listed = "+".join(s.name for s in specs)
        raise UserError(f"method '{listed}' names a method twice; name each once")
    registered = [s for s in specs if s.name in entries]
    _check_arguments(registered, entries)
    built = {s.name: _made(s, entries[s.name].make) for s in registered}
    return join([values[s.name] if s.name in values else built[s.name] for s in specs])


def build_parts(
    specs: Sequence[Spec], values: Mapping[str, Method] = MappingProxyType({})
) -> dict[str, Method]:
    """The methods of the specs one by one, by name; see `build`."""
    return {s.name: values[s.name] if s.name in values else build([s]) for s in specs}


def check_task(
    specs: Sequence[Spec], task: str, values: Mapping[str, Method] = MappingProxyType({})
) -> None:
    """Raise if one of the methods is not meant for the task."""
    built = build_parts(specs, values)
    unfit = {n: m.tasks for n, m in built.items() if m.tasks is not None and task not in m.tasks}
    if unfit:
        each = [
            f"'{user_code.short_reference(name)}' is for {' and '.join(sorted(tasks))}"
            for name, tasks in unfit.items()
        ]
        raise UserError(
            f"method {' and '.join(each)}, and the task is {task}; "
            f"methods for {task}: {', '.join(methods_for(task))}"
        )


def methods_for(task: str) -> list[str]:
    """The methods of the package that are meant for the task."""
    tasks = {name: entry(name).make().tasks for name in names()}
    return [name for name, supported in tasks.items() if supported is None or task in supported]


def _check_arguments(specs: Sequence[Spec], entries: Mapping[str, Entry]) -> None:
    problems = [
        f"{s.name}: {problem}"
        for s in specs
        for problem in argument_problems(entries[s.name].make, s.args)
    ]
    raise_all(problems, "method")


def _made(spec: Spec, make: Callable[..., Method]) -> Method:
    """The method, with the spec from which any process can build it again."""
    if user_code.is_reference(spec.name):
        made = user_code.call_user_function("method", spec.name, Method, make, spec.args)
    else:
        made = make(**spec.args)
    return replace(made, origin=(Part(spec),))
