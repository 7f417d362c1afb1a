"""Whether a state that was read from a file can be one of this run: names, shapes, types, values.

Checksums show that a file is as it was written. They do not show that it was written for this
model and this method, or by fedloom at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.exchange_ledger import LEDGER, MEMORY_NAME, first_exchanges
from fedloom.core.federation import Federation
from fedloom.core.params import Params, zeros_view
from fedloom.core.roles import Roles
from fedloom.core.server import Cohort, Memory, Reply
from fedloom.core.state import ServerState
from fedloom.core.valid_replies import expected_uploads

_LEDGER_TYPES = {"up": torch.int64, "told": torch.uint8, "turn": torch.int64, "seal": torch.int64}


@dataclass(frozen=True)
class Expected:
    """What is known of any state of a run, whatever its round.

    begins      the memory that each stage begins with
    later       the server's memory and what it shares, after a round
    stages      the names of all stages
    exchanges   names of the answers that were pooled before round 0
    frozen      the weights that no round changes
    """

    params: Params
    begins: Mapping[str, Memory]
    later: ServerState
    stages: frozenset[str]
    exchanges: frozenset[str]
    frozen: frozenset[str]

    @staticmethod
    def of(federation: Federation, model: Chain) -> Expected:
        """What the states of this federation's runs look like."""
        params, roles = model.state_dict(), Roles.of(model)
        weights = {n: t for n, t in params.items() if n in roles.weights}
        stages = federation.method.server
        begins = {stage.name: kept for stage in stages if (kept := stage.init(weights))}
        exchanges = frozenset(exchange.name for exchange in first_exchanges(federation))
        later = _after_a_round(federation, model, ServerState(0, params, begins))
        names = frozenset(stage.name for stage in stages)
        return Expected(params, begins, later, names, exchanges, roles.frozen)


def _after_a_round(federation: Federation, model: Chain, state: ServerState) -> ServerState:
    """The state after a round in which one client has sent zeros; only its structure matters.

    If a stage cannot work with zeros, the state is returned as it is, and less is known.
    """
    expected = expected_uploads(federation.method, model, state)
    uploads = {name: zeros_view(like) for name, like in expected.items()}
    reply = Reply(client=0, samples=1, seen=1, uploads=uploads)
    clients, key = len(federation.clients), federation.key.fold("server", 0)
    cohort = Cohort(0, state.params, (reply,), clients, Roles.of(model), key)
    memory = dict(state.memory)
    try:
        for stage in federation.method.server:
            memory[stage.name], cohort = stage.step(state.memory.get(stage.name, {}), cohort)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
        return state
    return ServerState(1, cohort.params, memory, cohort.shared)


def state_problem(state: ServerState, expected: Expected) -> str | None:
    """Why this cannot be a state of the run, as a phrase; None if it can."""
    return next(_problems(state, expected), None)


def _problems(state: ServerState, expected: Expected) -> Iterator[str]:
    yield from _differences("params", state.params, expected.params)
    yield from _changed_weights(state.params, expected)
    yield from _memory_problems(state.memory, expected)
    for name in sorted(expected.exchanges - state.shared.keys()):
        yield f"the answers to the exchange '{name}' are missing"
    for name, like in expected.later.shared.items():
        if name in state.shared:
            yield from _group_problems(f"shared/{name}", state.shared[name], like, expected)
    for path, tensor in state.tensors().items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            yield f"'{path}' is not finite"


def _changed_weights(params: Params, expected: Expected) -> Iterator[str]:
    """Clients take frozen weights from the model itself, which must be the same as before."""
    for name in sorted(expected.frozen & params.keys()):
        if not torch.equal(params[name], expected.params[name].to(params[name].device)):
            yield f"'params/{name}' is frozen, and the model has other values for it now"


def _memory_problems(memory: Mapping[str, Memory], expected: Expected) -> Iterator[str]:
    known = expected.stages | ({MEMORY_NAME} if expected.exchanges else set())
    for stage in sorted(memory.keys() - known):
        yield f"it has the memory of '{stage}', which is no stage of this method"
    for stage, groups in expected.begins.items():
        stays = expected.later.memory.get(stage, {})
        for name in groups:
            if name in stays and name not in memory.get(stage, {}):
                yield f"'memory/{stage}/{name}' is missing"
    for stage, groups in expected.later.memory.items():
        for name, like in groups.items():
            if name in memory.get(stage, {}):
                path = f"memory/{stage}/{name}"
                yield from _group_problems(path, memory[stage][name], like, expected)
    if expected.exchanges:
        yield from _ledger_problems(memory.get(MEMORY_NAME, {}).get(LEDGER, {}))


def _group_problems(path: str, found: Params, like: Params, expected: Expected) -> Iterator[str]:
    """A group with a tensor for tensors of the model is the same in all rounds; others may grow."""
    if like and like.keys() <= expected.params.keys():
        yield from _differences(path, found, like)


def _ledger_problems(ledger: Params) -> Iterator[str]:
    """What is wrong with the ledger of the exchanges; see core/exchange_ledger.py."""
    types = {name: t.dtype for name, t in ledger.items()}
    if types != _LEDGER_TYPES:
        yield "the ledger of its exchanges has other entries"
        return
    shapes = {tuple(ledger[name].shape) for name in ("told", "turn", "seal")}
    if len(shapes) > 1 or len(shapes.pop()) != 1 or ledger["up"].dim():
        yield "the ledger of its exchanges has other shapes"


def _differences(path: str, found: Params, like: Params) -> Iterator[str]:
    """Names in another order count too: sums over tensors are rounded in their order."""
    if list(found) != list(like):
        names = sorted(found.keys() ^ like.keys()) or ["in another order"]
        yield f"the names in '{path}' are not those of this run ({names[0]})"
    for name, tensor in like.items():
        if name in found and _form(found[name]) != _form(tensor):
            yield f"'{path}/{name}' is {_form(found[name])}, and this run has {_form(tensor)}"


def _form(t: Tensor) -> str:
    return f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}"
