"""Joining methods: `fedprox+fedavgm` has the terms, the stages and the memories of both, or is refused in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

from fedloom.core.chain import Chain
from fedloom.core.errors import raise_all
from fedloom.core.method import Method, Phase
from fedloom.core.select import Selector, nothing
from fedloom.core.server import KINDS, Stage, mean


def join(methods: Sequence[Method]) -> Method:
    """One method that does what all of them do."""
    if len(methods) == 1:
        return methods[0]
    name = "+".join(m.name for m in methods)
    said: list[str] = []
    phases = _phases(methods, said)
    joined = Method(
        name=name,
        phases=phases,
        after=tuple(a for m in methods for a in m.after),
        server=_stages(methods),
        private=_union([m.private for m in methods]),
        prologue=tuple(e for m in methods for e in m.prologue),
        finale=_one("finale", [m.finale for m in methods], (), said),
        evaluates=_one("evaluated slot", [m.evaluates for m in methods], "model", said),
        sends=tuple(s for m in methods for s in m.sends),
        needs=tuple(n for m in methods for n in m.needs),
        reshape=tuple(r for m in methods for r in m.reshape),
        origin=tuple(part for m in methods for part in m.parts),
    )
    raise_all(list(dict.fromkeys(said)), f"method '{name}'")
    return joined


def _one(what: str, values: Iterable[Any], default: Any, said: list[str]) -> Any:
    """The one value that is not the default, or a complaint."""
    own: list[Any] = []
    for value in values:
        if value != default and value not in own:
            own.append(value)
    if len(own) > 1:
        said.append(f"two methods bring a {what} of their own; only one of them can")
    return own[0] if own else default


def _phases(methods: Sequence[Method], said: list[str]) -> tuple[Phase, ...]:
    """Phases of the same slot become one; the others stand in order. Of one method's several, each takes in those of the others."""
    several = [m for m in methods if len({p.slot for p in m.phases}) < len(m.phases)]
    if several and (unfit := _unfit(several, methods)):
        said += unfit
        return ()
    frame, by_slot = several[0].phases if several else (), dict[str, list[Phase]]()
    for phase in (p for m in methods if not several or m is not several[0] for p in m.phases):
        by_slot.setdefault(phase.slot, []).append(phase)
    framed = tuple(_merged([phase, *by_slot.get(phase.slot, ())], said) for phase in frame)
    slots = {phase.slot for phase in frame}
    return (*framed, *(_merged(same, said) for slot, same in by_slot.items() if slot not in slots))


def _unfit(several: Sequence[Method], methods: Sequence[Method]) -> list[str]:
    """Who cannot join a method that trains a slot in several phases: another such, and who reckons with one descent."""
    if len(several) > 1:
        return [
            f"'{several[0].name}' and '{several[1].name}' train a slot in several phases; only one of them can"
        ]
    backward = [
        m.name
        for m in methods
        if m is not several[0] and (m.after or any(p.makes for p in m.phases))
    ]
    return [
        f"'{name}' looks back on one descent, and '{several[0].name}' makes several; they do not join"
        for name in backward
    ]


def _merged(same: list[Phase], said: list[str]) -> Phase:
    plain = Phase()
    settings = [f.name for f in fields(Phase) if f.name not in ("terms", "slot")]
    chosen = {
        n: _one(f"{n} for '{same[0].slot}'", [getattr(p, n) for p in same], getattr(plain, n), said)
        for n in settings
    }
    return replace(same[0], terms=tuple(t for p in same for t in p.terms), **chosen)


def _stages(methods: Sequence[Method]) -> tuple[Stage, ...]:
    """Stages by kind. Of the combiners of an upload, one that a method chose itself replaces the plain mean by samples."""
    stages: dict[str, Stage] = {s.name: s for m in methods for s in m.server}
    plain = mean().name
    if any(
        s.kind == "combine" and s.handles == "model" and s.name != plain for s in stages.values()
    ):
        stages.pop(plain, None)
    return tuple(sorted(stages.values(), key=lambda s: KINDS.index(s.kind)))


def _union(selectors: Sequence[Selector]) -> Selector:
    own = [s for s in selectors if s is not nothing]
    if len(own) <= 1:
        return own[0] if own else nothing
    choose: Callable[[Chain], frozenset[str]] = lambda chain: frozenset().union(
        *(s(chain) for s in own)
    )
    return choose
