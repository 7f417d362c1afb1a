"""Digests of functions: equal for the same code, different for edited code or other values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from fedloom.core.code_digest import code_digest
from fedloom.core.method import Method, Phase
from fedloom.core.server import apply_mean, mean
from fedloom.methods.fedprox import fedprox

SCALE = 2.0


def scaled(weight: float) -> Callable[[Any], Any]:
    return lambda step: weight * step


def with_global(step: Any) -> Any:
    return SCALE * step


def helper(step: Any) -> Any:
    return step + 1


def with_helper(step: Any) -> Any:
    return helper(step)


def test_the_same_code_has_the_same_digest() -> None:
    assert code_digest(scaled(0.1)) == code_digest(scaled(0.1))
    assert code_digest(Method("a", Phase(terms=scaled(0.1)))) == code_digest(
        Method("a", Phase(terms=scaled(0.1)))
    )
    assert code_digest(fedprox(0.1)) == code_digest(fedprox(0.1))
    assert code_digest(net(1)) == code_digest(net(1))


def net(width: int) -> type:
    class Net:
        def layers(self) -> int:
            return width

    return Net


DIFFERENT: dict[str, tuple[Any, Any]] = {
    "a closure": (scaled(0.1), scaled(0.2)),
    "code": (lambda step: step + 1, lambda step: step - 1),
    "a default": (lambda step, k=1: step, lambda step, k=2: step),
    "arguments of a partial": (partial(helper, 1), partial(helper, 2)),
    "a term": (Method("a", Phase(terms=scaled(0.1))), Method("a", Phase(terms=scaled(0.2)))),
    "a parameter": (fedprox(0.1), fedprox(0.2)),
    "a stage": (Method("a"), Method("a", server=(mean("clients"), apply_mean()))),
    "a field": (Method("a"), replace(Method("a"), sends=("control",))),
    "a class": (net(1), net(2)),
    "a tensor": (torch.zeros(2), torch.ones(2)),
}


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=DIFFERENT)
def test_a_change_shows(pair: tuple[Any, Any]) -> None:
    assert code_digest(pair[0]) != code_digest(pair[1])


def test_used_globals_count(monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_digest(with_global), code_digest(with_helper)
    monkeypatch.setitem(with_global.__globals__, "SCALE", 3.0)
    changed: dict[str, Any] = {"__name__": __name__}
    exec("def helper(step):\n    return step - 1", changed)
    monkeypatch.setitem(with_helper.__globals__, "helper", changed["helper"])
    assert code_digest(with_global) != before[0]
    assert code_digest(with_helper) != before[1]


def test_objects_that_contain_themselves_end() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert len(code_digest(loop)) == 12
