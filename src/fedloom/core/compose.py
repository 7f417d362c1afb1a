"""Combining methods: `fedprox+fedavgm` has the loss terms, server stages and memories of both.

Methods that do not go together are rejected with a message that says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from itertools import chain as concatenated
from typing import Any

from fedloom.core.chain import Chain
from fedloom.core.errors import raise_all
from fedloom.core.method import Method, Phase
from fedloom.core.select import Selector, nothing
from fedloom.core.server import KINDS, Stage, mean


def join(methods: Sequence[Method]) -> Method:
    """One method that does what all of them do; raises UserError with every conflict at once."""
    if len(methods) == 1:
        return methods[0]

    def all_of(field: str) -> tuple[Any, ...]:
        return tuple(concatenated.from_iterable(getattr(m, field) for m in methods))

    name = "+".join(m.name for m in methods)
    conflicts: list[str] = []
    joined = Method(
        name=name,
        phases=_joined_phases(methods, conflicts),
        after=all_of("after"),
        server=_joined_stages(methods),
        private=_union([m.private for m in methods]),
        prologue=all_of("prologue"),
        finale=_single("finale", [m.finale for m in methods], (), conflicts),
        evaluates=_single("evaluated slot", [m.evaluates for m in methods], "model", conflicts),
        sends=all_of("sends"),
        needs=all_of("needs"),
        reshape=all_of("reshape"),
        tasks=_common_tasks(methods, conflicts),
        uses_lr_sum=any(m.uses_lr_sum for m in methods),
        fixed_loss=any(m.fixed_loss for m in methods),
        loss_floor=_lowest(m.loss_floor for m in methods),
        origin=all_of("parts"),
    )
    raise_all(list(dict.fromkeys(conflicts)), f"method '{name}'")
    return joined


def _single(what: str, values: Iterable[Any], default: Any, conflicts: list[str]) -> Any:
    """The one value that differs from the default; several different ones are a conflict."""
    chosen: list[Any] = []
    for value in values:
        if value != default and value not in chosen:
            chosen.append(value)
    if len(chosen) > 1:
        conflicts.append(f"two methods set their own {what}; at most one of them can")
    return chosen[0] if chosen else default


def _common_tasks(methods: Sequence[Method], conflicts: list[str]) -> frozenset[str] | None:
    """The tasks that all methods support; None for any."""
    limited = [m.tasks for m in methods if m.tasks is not None]
    if not limited:
        return None
    common = frozenset.intersection(*limited)
    if not common:
        conflicts.append("no task is supported by all of the methods")
    return common


def _lowest(floors: Iterable[float | None]) -> float | None:
    """The lowest of the floors that are known: a sum of losses may be as low as any of them."""
    return min((floor for floor in floors if floor is not None), default=None)


def _joined_phases(methods: Sequence[Method], conflicts: list[str]) -> tuple[Phase, ...]:
    """Phases of the same slot are merged into one; other slots follow in order.

    If one method trains a slot in several phases, the other methods' phases of that slot are merged
    into each of them.
    """
    multi_phase = [m for m in methods if _repeats_a_slot(m)]
    problems = _multi_phase_conflicts(multi_phase, methods)
    if problems:
        conflicts += problems
        return ()
    by_slot = _phases_by_slot([m for m in methods if not _repeats_a_slot(m)])
    repeated = multi_phase[0].phases if multi_phase else ()
    groups = [[phase, *by_slot.get(phase.slot, ())] for phase in repeated]
    for phase in repeated:
        by_slot.pop(phase.slot, None)
    groups += by_slot.values()
    return tuple(_merged(group, conflicts) for group in groups)


def _phases_by_slot(methods: Sequence[Method]) -> dict[str, list[Phase]]:
    by_slot: dict[str, list[Phase]] = {}
    for method in methods:
        for phase in method.phases:
            by_slot.setdefault(phase.slot, []).append(phase)
    return by_slot


def _repeats_a_slot(method: Method) -> bool:
    return len({p.slot for p in method.phases}) < len(method.phases)


def _multi_phase_conflicts(multi_phase: Sequence[Method], methods: Sequence[Method]) -> list[str]:
    """Why methods cannot join one that trains a slot in several phases.

    A second such method cannot, nor a method that uses the result of a single descent.
    """
    if not multi_phase:
        return []
    first = multi_phase[0]
    if len(multi_phase) > 1:
        both = f"'{first.name}' and '{multi_phase[1].name}'"
        return [f"{both} both train a slot in several phases; at most one of them can"]
    single_descent = [
        m.name for m in methods if m is not first and (m.after or any(p.makes for p in m.phases))
    ]
    return [
        f"'{name}' uses the result of one descent, but '{first.name}' makes several; "
        "they cannot be combined"
        for name in single_descent
    ]


def _merged(phases: list[Phase], conflicts: list[str]) -> Phase:
    """Phases of one slot as one: the terms of all, and every other setting from at most one."""
    default, slot = Phase(), phases[0].slot
    settings = {
        f.name: _single(
            f"{f.name} for '{slot}'",
            [getattr(p, f.name) for p in phases],
            getattr(default, f.name),
            conflicts,
        )
        for f in fields(Phase)
        if f.name not in ("terms", "slot")
    }
    return replace(phases[0], terms=tuple(t for p in phases for t in p.terms), **settings)


def _joined_stages(methods: Sequence[Method]) -> tuple[Stage, ...]:
    """All stages, ordered by kind; any other combiner of the model replaces the default mean."""
    stages: dict[str, Stage] = {s.name: s for m in methods for s in m.server}
    combiners = [s.name for s in stages.values() if s.kind == "combine" and s.handles == "model"]
    default = mean().name
    if any(name != default for name in combiners):
        stages.pop(default, None)
    return tuple(sorted(stages.values(), key=lambda s: KINDS.index(s.kind)))


def _union(selectors: Sequence[Selector]) -> Selector:
    """The tensors chosen by any of the selectors; stays `nothing` or one selector if it can."""
    used = [s for s in selectors if s is not nothing]
    if len(used) <= 1:
        return used[0] if used else nothing

    def choose(chain: Chain) -> frozenset[str]:
        return frozenset().union(*(s(chain) for s in used))

    return choose
